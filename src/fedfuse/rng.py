"""Randomness by key: each generator is seeded with a hash of the run's seed and its purpose.

Nothing else in the package seeds or draws, so results do not depend on the engine, the number of workers, the order of
arrival or whether a run was resumed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import RLock

import torch

_global_generator = RLock()


def key(seed: int, purpose: str, *parts: int | str) -> int:
    """Return a 63-bit seed for this purpose. Parts are length-prefixed, so ("a", "bc") and ("ab", "c") differ."""
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, purpose, *parts):
        text = f"{type(part).__name__}:{part}".encode()
        digest.update(len(text).to_bytes(4, "big") + text)
    return int.from_bytes(digest.digest(), "big") >> 1


def generator(seed: int, purpose: str, *parts: int | str) -> torch.Generator:
    """Return a new CPU generator for this purpose. The same key always gives the same stream."""
    return torch.Generator().manual_seed(key(seed, purpose, *parts))


@contextmanager
def ambient(rng: torch.Generator, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's global generator from `rng`, for code that can draw from no other (initialisers, dropout).

    That of the `device`, where layers may draw, is seeded too. The states are restored afterwards. Only one thread at
    a time may use them; the others wait.
    """
    with _global_generator, _forked(device):
        torch.manual_seed(int(torch.randint(2**62, (), generator=rng)))
        yield


def _forked(device: torch.device | None) -> AbstractContextManager[None]:
    """Restore the global generators of the CPU and of the device afterwards."""
    backend = None if device is None or device.type == "cpu" else getattr(torch, device.type, None)
    if device is None or not hasattr(backend, "get_rng_state"):
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device.index or 0], device_type=device.type)

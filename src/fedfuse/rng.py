"""Randomness by key: each generator is seeded with a hash of the run's seed and its purpose.

Nothing else in the package seeds or draws, so results do not depend on the engine, the number of workers, the order of
arrival or whether a run was resumed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
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
    seed = int(torch.randint(2**62, (), generator=rng))
    with _global_generator, torch.random.fork_rng(devices=[]), _seeded(device, seed):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would also seed devices that are not restored
        yield


@contextmanager
def _seeded(device: torch.device | None, seed: int) -> Iterator[None]:
    """Seed the global generator of an accelerator, and restore it afterwards."""
    backend = None if device is None or device.type == "cpu" else getattr(torch, device.type, None)
    if device is None or backend is None or not hasattr(backend, "get_rng_state"):
        yield
        return
    place = () if device.type == "mps" else (device,)  # there is only one
    state = backend.get_rng_state(*place)
    try:
        with nullcontext() if device.index is None else torch.accelerator.device_index(device.index):
            backend.manual_seed(seed)
        yield
    finally:
        backend.set_rng_state(state, *place)

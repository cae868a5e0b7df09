"""What every part may ask for: the run's settings, its data, its nets, and randomness by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fedfuse import models, rng
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.local_settings import LocalSettings
from fedfuse.types import FedfuseError, Snapshot

_MOST_NETS = 32  # far more than a run has architectures, unless its nets grow (FedMA): each width is another one


@dataclass(frozen=True)
class Nets:
    """Live nets of this process, one per architecture and use, reused from client to client.

    Building a net costs more than a short client's training, so values are copied into nets that exist.
    """

    classes: int
    shape: tuple[int, ...]
    draws: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)  # by architecture: random layers
    concurrent: bool = False  # whether other threads train nets at the same time
    _nets: dict[tuple[str, str], nn.Module] = field(default_factory=dict, repr=False, compare=False)

    def scratch(self, arch: str, use: str = "work") -> nn.Module:
        """A net with whatever values its last user left.

        Pass different `use` keys for nets that are needed at the same time.
        """
        net = self._nets.pop((arch, use), None)
        if net is None:
            with rng.ambient(rng.generator(0, "scratch")):
                net = models.build(arch, classes=self.classes, shape=self.shape)
            net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._nets[arch, use] = net
        if len(self._nets) > _MOST_NETS:  # drop the least recently used
            del self._nets[next(iter(self._nets))]
        return net

    def load(self, snapshot: Snapshot, use: str = "work") -> nn.Module:
        """The scratch net with this snapshot's values."""
        return snapshot.load_into(self.scratch(snapshot.arch, use))

    @contextmanager
    def layer_randomness(self, arch: str, generator: torch.Generator) -> Iterator[None]:
        """Let layers that draw for themselves (dropout) draw from `generator`.

        They can only draw from torch's global generator, which one thread at a time may have. So where threads train
        nets, one whose layers did not draw in its first training is not made to wait for it.
        """
        if self.concurrent and self.draws.get(arch) is False:
            yield
            return
        with rng.ambient(generator):
            before = torch.random.get_rng_state()
            yield
            self.draws[arch] = self.draws.get(arch, False) or not torch.equal(before, torch.random.get_rng_state())

    def initial(self, arch: str, generator: torch.Generator) -> Snapshot:
        """Fresh weights, drawn from `generator` alone."""
        with rng.ambient(generator):
            return Snapshot.of(arch, models.build(arch, classes=self.classes, shape=self.shape))


@dataclass(frozen=True)
class FreshPool:
    """A pool that is drawn anew each round. The last draw is cached, for all that ask in its round."""

    draw: Callable[[torch.Generator], Examples]
    _cache: dict[int, Examples] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, generator: torch.Generator) -> Examples:
        if (key := generator.initial_seed()) not in self._cache:
            self._cache.clear()
            self._cache[key] = self.draw(generator)
        return self._cache[key]


@dataclass(frozen=True)
class Context:
    """One round's view of the run. `round` counts from 1."""

    seed: int
    rounds: int
    local: LocalSettings
    data: Federation
    archs: tuple[str, ...]  # the architecture of each client, by client number
    nets: Nets
    round: int = 0
    fresh_pool: FreshPool | None = None
    small_models: bool = True  # whether the server holds models of the clients' architectures
    server: str | None = None  # the architecture of the server's own large model, where the algorithm has one

    def rng(self, purpose: str, *parts: int | str) -> torch.Generator:
        """The generator of this purpose: `ctx.rng("shuffle", ctx.round, client)`."""
        return rng.generator(self.seed, purpose, *parts)

    def initial(self) -> dict[str, Snapshot]:
        """The server's first models: of the clients' architectures and its own large one, as far as it has them."""
        held = dict.fromkeys([*(self.archs if self.small_models else ()), *([self.server] if self.server else [])])
        return {arch: self.nets.initial(arch, self.rng("init", arch)) for arch in held}

    @property
    def reported(self) -> tuple[str, ...]:
        """The architectures whose mean accuracy is the run's: the server's own large model, or all."""
        return (self.server,) if self.server else tuple(dict.fromkeys(self.archs))

    def at(self, round: int) -> Context:
        return replace(self, round=round)

    @property
    def pool(self) -> Examples | None:
        """The server's unlabeled data: the run's, or this round's where each round draws its own."""
        return self.data.pool if self.fresh_pool is None else self.fresh_pool(self.rng("fresh pool", self.round))

    @property
    def rate(self) -> float:
        """This round's local learning rate."""
        return self.local.rate(self.round, self.rounds)


def assign(
    weights: Mapping[str, float], clients: int, generator: torch.Generator, capability: Tensor | None = None
) -> tuple[str, ...]:
    """Spread architectures over clients in proportion to their weights: at random, fixed by the generator.

    With the clients' `capability` (K,) they go by it: the least capable take the architectures that are named first.
    """
    total = sum(weights.values())
    if not weights or min(weights.values()) <= 0:
        raise FedfuseError(f"models.clients = {dict(weights)}: give each architecture a positive weight")
    exact = {arch: clients * w / total for arch, w in weights.items()}
    counts = {arch: int(share) for arch, share in exact.items()}
    # Largest remainders first, so that the counts add up to the clients.
    for arch in sorted(exact, key=lambda a: counts[a] - exact[a])[: clients - sum(counts.values())]:
        counts[arch] += 1
    flat = [arch for arch, n in counts.items() for _ in range(n)]
    if capability is None:
        return tuple(flat[i] for i in torch.randperm(clients, generator=generator).tolist())
    return tuple(flat[i] for i in capability.argsort(stable=True).argsort().tolist())

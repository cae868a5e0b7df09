"""What every part may use: the run's settings, its data, its nets, and randomness by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from fedfuse import models, rng
from fedfuse.compute.batches import set_precision
from fedfuse.data.discrepancy import ClientDiscrepancies
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.local_settings import LocalSettings
from fedfuse.models import shared_head
from fedfuse.models.precision import Precision
from fedfuse.types import FedfuseError, Snapshot

CPU = torch.device("cpu")
_FULL_PRECISION = Precision()
_MOST_NETS = 32  # more than a run needs, unless its nets grow (FedMA): each width is another architecture


@dataclass(frozen=True)
class Nets:
    """The nets of this process, one per architecture and use, reused for all clients.

    Building a net takes longer than a short local training, so values are copied into existing nets.
    """

    classes: int
    shape: tuple[int, ...]
    draws: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)  # architecture -> has random layers
    concurrent: bool = False  # whether other threads train nets at the same time
    device: torch.device = CPU  # where nets are; everything else stays on the CPU
    precision: torch.dtype | None = None  # of autocast; None computes in float32
    _nets: dict[tuple[str, str], nn.Module] = field(default_factory=dict, repr=False, compare=False)

    def scratch(self, arch: str, use: str = "work") -> nn.Module:
        """Return a net with arbitrary values: those of its last use.

        Pass different `use` keys for nets that are needed at the same time.
        """
        net = self._nets.pop((arch, use), None)
        if net is None:
            with rng.ambient(rng.generator(0, "scratch")):
                net = models.build(arch, classes=self.classes, shape=self.shape)
            net = net.to(self.device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            if self.precision is not None:
                set_precision(net, self.precision)
        self._nets[arch, use] = net
        if len(self._nets) > _MOST_NETS:  # drop the least recently used
            del self._nets[next(iter(self._nets))]
        return net

    def load(self, snapshot: Snapshot, use: str = "work") -> nn.Module:
        """Return the scratch net, loaded with this snapshot's values."""
        return snapshot.load_into(self.scratch(snapshot.arch, use))

    @contextmanager
    def layer_randomness(self, arch: str, generator: torch.Generator) -> Iterator[None]:
        """Let layers that draw random numbers (dropout) draw from `generator`.

        They can only draw from torch's global generator, which one thread at a time may use. So where threads train
        nets, an architecture whose layers drew nothing in its first training does not wait for it.
        """
        if self.concurrent and self.draws.get(arch) is False:
            yield
            return
        with rng.ambient(generator, self.device):
            before = torch.random.get_rng_state()
            yield
            self.draws[arch] = self.draws.get(arch, False) or not torch.equal(before, torch.random.get_rng_state())

    def initial(self, arch: str, generator: torch.Generator) -> Snapshot:
        """Return new weights, drawn from `generator` alone."""
        with rng.ambient(generator):
            return Snapshot.of(arch, models.build(arch, classes=self.classes, shape=self.shape))


@dataclass(frozen=True)
class FreshPool:
    """A pool that is drawn again each round. The latest draw is cached."""

    draw: Callable[[torch.Generator], Examples]
    _cache: dict[int, Examples] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, generator: torch.Generator) -> Examples:
        if (key := generator.initial_seed()) not in self._cache:
            self._cache.clear()
            self._cache[key] = self.draw(generator)
        return self._cache[key]


@dataclass(frozen=True)
class Context:
    """The run in one round. `round` counts from 1."""

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
    precisions: tuple[Precision, ...] = ()  # how each client trains and uploads; none: all in full precision
    evaluate_every: int = 1  # rounds from one evaluation of the server's models to the next
    discrepancies: ClientDiscrepancies | None = None  # how far clients' data are apart, if that is to be measured
    examples: tuple[int, ...] = ()  # how many examples each client has, if that is not as in `data`

    @property
    def sizes(self) -> tuple[int, ...]:
        """n_k for each client, as far as the server knows it."""
        return self.examples or self.data.sizes

    def precision(self, client: int) -> Precision:
        """Return how this client trains and uploads."""
        return self.precisions[client] if self.precisions else _FULL_PRECISION

    def rng(self, purpose: str, *parts: int | str) -> torch.Generator:
        """Return the generator of this purpose: `ctx.rng("shuffle", ctx.round, client)`."""
        return rng.generator(self.seed, purpose, *parts)

    def initial(self) -> dict[str, Snapshot]:
        """Return the server's initial models: of the clients' architectures and its own large one, if it has them.

        Shared heads of one width are drawn once, so that the first mean of heads is one of related heads.
        """
        archs = dict.fromkeys([*(self.archs if self.small_models else ()), *([self.server] if self.server else [])])
        return {arch: self._with_shared_head(self.nets.initial(arch, self.rng("init", arch))) for arch in archs}

    def _with_shared_head(self, model: Snapshot) -> Snapshot:
        _, width = shared_head.split(model.arch)
        if width is None:
            return model
        with rng.ambient(self.rng("init head", width)):
            head = shared_head.head_of(
                nn.ModuleDict({"head": shared_head.new_head(width, self.nets.classes)}).state_dict()
            )
        own = {name: head[name].to(tensor.dtype) for name, tensor in shared_head.head_of(model.params).items()}
        return replace(model, params={**model.params, **own})

    @property
    def reported(self) -> tuple[str, ...]:
        """The architectures whose mean accuracy is reported: the server's own large model if there is one, else all."""
        return (self.server,) if self.server else tuple(dict.fromkeys(self.archs))

    def at(self, round: int) -> Context:
        return replace(self, round=round)

    @property
    def evaluated(self) -> bool:
        """Whether the server's models are evaluated after this round; after the last one they always are."""
        return self.round % self.evaluate_every == 0 or self.round == self.rounds

    @property
    def pool(self) -> Examples | None:
        """The server's unlabeled data: of the run, or of this round if each round draws its own."""
        return self.data.pool if self.fresh_pool is None else self.fresh_pool(self.rng("fresh pool", self.round))

    @property
    def rate(self) -> float:
        """This round's local learning rate."""
        return self.local.rate(self.round, self.rounds)


def assign(
    weights: Mapping[str, float], clients: int, generator: torch.Generator, capability: Tensor | None = None
) -> tuple[str, ...]:
    """Assign architectures to clients at random, drawn from the generator, in proportion to their weights.

    With the clients' `capability` (K,), the least capable get the architectures that are named first instead.
    """
    total = sum(weights.values())
    if not weights or min(weights.values()) <= 0:
        raise FedfuseError(f"models.clients = {dict(weights)}: give each architecture a positive weight")
    exact = {arch: clients * w / total for arch, w in weights.items()}
    counts = {arch: int(share) for arch, share in exact.items()}
    # Largest remainders first, so that the counts add up to the number of clients.
    for arch in sorted(exact, key=lambda a: counts[a] - exact[a])[: clients - sum(counts.values())]:
        counts[arch] += 1
    flat = [arch for arch, n in counts.items() for _ in range(n)]
    if capability is None:
        return tuple(flat[i] for i in torch.randperm(clients, generator=generator).tolist())
    return tuple(flat[i] for i in capability.argsort(stable=True).argsort().tolist())

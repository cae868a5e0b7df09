"""A small federation with everything a fusion asks for: two-dimensional blobs, little nets, few rows."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from fedfuse import rng
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.local_settings import LocalSettings
from fedfuse.types import ServerState, Snapshot, Update

CLASSES = 3


def blobs(rows: int, seed: int) -> Examples:
    """Three noisy clusters in four dimensions."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (rows,), generator=generator)
    centres = torch.tensor([[2.0, 0, 0, 1], [0, 2, 0, -1], [0, 0, 2, 0]])
    x = centres[y] + torch.randn(rows, 4, generator=generator)
    return Examples(x, y, CLASSES, torch.zeros(4), torch.ones(4))


def context(archs: tuple[str, ...] = ("mlp:8",) * 4, seed: int = 0, validation: int = 60, rounds: int = 1) -> Context:
    train = blobs(200, 1)
    parts = tuple(torch.arange(200).chunk(len(archs)))
    data = Federation(train, parts, blobs(validation, 2), blobs(100, 3), blobs(256, 4), ("a", "b", "c"))
    return Context(seed, rounds, LocalSettings(epochs=1), data, archs, Nets(CLASSES, (4,)), round=1)


def server_of(ctx: Context) -> ServerState:
    return ServerState(0, {arch: ctx.nets.initial(arch, ctx.rng("init", arch)) for arch in dict.fromkeys(ctx.archs)})


def trained(ctx: Context, server: ServerState, client: int, steps: int = 40) -> Update:
    """A client that has trained on its own rows, all in one batch."""
    rows = ctx.data.parts[client]
    net = ctx.nets.load(server.models[ctx.archs[client]], "client").train()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(ctx.data.train.batch(rows)), ctx.data.train.y[rows]).backward()
        optimizer.step()
    return Update(client, len(rows) + client, Snapshot.of(ctx.archs[client], net))


def of_value(value: float, arch: str = "one", buffer: float = 0.0) -> Snapshot:
    """A model with a single parameter and a single buffer."""
    return Snapshot(arch, {"w": torch.tensor([value])}, {"b": torch.tensor([buffer])})


class Constant(nn.Module):
    """The same logits (C,) whatever the input."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, x: Tensor) -> Tensor:
        return self.logits.expand(len(x), -1)


def mlp(seed: int, inputs: int = 4, classes: int = CLASSES, width: int = 8, norm: bool = False) -> nn.Sequential:
    with rng.ambient(torch.Generator().manual_seed(seed)):
        middle = [nn.BatchNorm1d(width)] if norm else []
        return nn.Sequential(nn.Linear(inputs, width), *middle, nn.ReLU(), nn.Linear(width, classes))


def same(a: Snapshot, b: Snapshot) -> bool:
    """Bit for bit."""
    return a.arch == b.arch and all(
        torch.equal(t, other[name])
        for tensors, other in ((a.params, b.params), (a.buffers, b.buffers))
        for name, t in tensors.items()
    )


def with_value(update: Update, value: float) -> Update:
    assert update.model is not None
    params = {name: torch.full_like(t, value) for name, t in update.model.params.items()}
    return replace(update, model=replace(update.model, params=params))

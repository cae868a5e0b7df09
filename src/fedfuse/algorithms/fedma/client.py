"""FedMA's clients: each trains one layer and all above it; the layers below are the server's and stay fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import nn

from fedfuse.context import Context
from fedfuse.local.terms import CrossEntropy
from fedfuse.local.training import Training
from fedfuse.local.uploads import refuse_packing
from fedfuse.models.catalogue import with_widths
from fedfuse.models.chain import above, by_unit, layers, spread, whole, widths
from fedfuse.types import Groups, Snapshot, Task, Tensors, Update


@dataclass(frozen=True)
class Stage:
    """The lowest layer, from 0, that a round trains and matches."""

    layers: Literal["one by one", "all"] = "one by one"

    def __call__(self, params: Tensors, ctx: Context) -> int:
        return 0 if self.layers == "all" else (ctx.round - 1) % len(layers(params))


@dataclass(frozen=True)
class TrainAbove:
    """Trains this round's layer and those above, from the client's own of the round before or from those it is sent."""

    stage: Stage
    train: Training = field(default_factory=lambda: Training((CrossEntropy(),)))

    def check(self, ctx: Context) -> None:
        refuse_packing(ctx, "fedma's clients send layers whose neurons the server matches, not their model")

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        start = dict(task.extra["model"])
        stage = self.stage(start, ctx)
        if "place" in task.extra and memory and int(memory["when"]["round"]) == task.round - 1:
            start |= above(memory["own"], 1)
            weight, (_, bias) = layers(start)[stage][0], layers(start)[stage - 1]
            place = task.extra["place"]["below"]
            start[weight] = whole(spread(by_unit(start[weight], len(place)), place, len(start[bias])))
        model = Snapshot(renamed(ctx.archs[task.client], widths(start), ctx), start)
        with frozen(ctx.nets.scratch(model.arch), [name for layer in layers(start)[:stage] for name in layer]):
            update = self.train(Task(task.client, task.round, model), {}, ctx)
        assert update.model is not None
        layers_above, labels = above(update.model.params, stage), ctx.data.train.y[ctx.data.parts[task.client]]
        share = torch.bincount(labels, minlength=ctx.data.train.classes) / len(labels)
        extra: Groups = {"model": layers_above, "classes": {"share": share}}
        round = {"round": torch.tensor(task.round)}
        next_memory: Groups = {"own": layers_above, "when": round} if len(layers_above) > 2 else {}
        return replace(update, model=None, extra=extra, memory=next_memory)


def renamed(arch: str, hidden: Sequence[int], ctx: Context) -> str:
    """Return the name of this architecture with these widths."""
    own = widths(dict(ctx.nets.scratch(arch).named_parameters()))
    return arch if list(hidden) == own else with_widths(arch, hidden)


@contextmanager
def frozen(net: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Exclude these parameters from training."""
    params = [net.get_parameter(name) for name in names]
    for p in params:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in params:
            p.requires_grad_(True)

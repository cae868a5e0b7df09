"""FedMA's server: which neurons each client is sent, and how the updates are matched and averaged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfuse.algorithms.fedma.client import Stage, renamed
from fedfuse.algorithms.fedma.matching import Matching, by_class, neurons
from fedfuse.context import Context
from fedfuse.facts import Facts
from fedfuse.models.catalogue import with_widths
from fedfuse.models.chain import above, by_unit, layers, whole, widths
from fedfuse.models.shared_head import split
from fedfuse.types import Extras, FedfuseError, ServerState, Snapshot, Task, Tensors, TensorSpec, Update

NORMS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


def places(server: ServerState, client: int) -> Tensors:
    """Return the places of this client's neurons in the server's model, by layer number; only of matched layers."""
    return server.memory.get(f"places/{client}", {})


@dataclass(frozen=True)
class OwnNeurons:
    """Sends a client the matched layers whole and, of those above, its own neurons: as many as its architecture has.

    If it has not been matched there, it is sent the neurons that most clients share. `place` gives the places of its
    neurons in the last matched layer, so that it can continue with its own weights above.
    """

    stage: Stage

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task:
        params = server.models[ctx.archs[client]].params
        stage, at = self.stage(params, ctx), places(server, client)
        extra: dict[str, Tensors] = {"model": self.part(server, client, ctx)}
        if stage and str(stage - 1) in at:
            extra["place"] = {"below": at[str(stage - 1)]}
        return Task(client, ctx.round, None, extra)

    def part(self, server: ServerState, client: int, ctx: Context) -> dict[str, Tensor]:
        """Return the client's part of the server's model."""
        params = server.models[ctx.archs[client]].params
        stage, at = self.stage(params, ctx), places(server, client)
        own = widths(dict(ctx.nets.scratch(ctx.archs[client]).named_parameters()))
        below = torch.arange(params[layers(params)[0][0]].shape[1])
        units, part = len(below), dict[str, Tensor]()
        for number, (weight, bias) in enumerate(layers(params)):
            here = torch.arange(len(params[bias]))
            if stage <= number < len(own):
                here = at.get(str(number), here[: own[number]])
            part[weight] = whole(by_unit(params[weight], units)[here][:, below])
            part[bias] = params[bias][here]
            units, below = len(params[bias]), here
        return part


@dataclass(frozen=True)
class ExpectLayers:
    """Expects the layers that a client trained, and its share of each class."""

    stage: Stage

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Extras:
        part = OwnNeurons(self.stage).part(server, client, ctx)
        share = TensorSpec((ctx.data.train.classes,), torch.float32, low=0, high=1)
        return {"model": TensorSpec.each(above(part, self.stage(part, ctx))), "classes": {"share": share}}


@dataclass(frozen=True)
class Matched:
    """Matches this round's layer and those above over all updates at once, so all are in memory."""

    stage: Stage
    matching: Matching

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        answers = sorted(updates, key=lambda update: update.client)
        if not answers:
            return ServerState(server.round + 1, server.models, server.memory), Facts()
        ((arch, model),) = server.models.items()
        params = {name: tensor.clone() for name, tensor in model.params.items()}
        stage, hidden = self.stage(params, ctx), len(widths(params))
        all_places: dict[int, dict[str, Tensor]] = {
            client: {n: place for n, place in places(server, client).items() if int(n) < stage}
            for client in range(len(ctx.archs))
        }
        below: Sequence[Tensor | None] = [None] * len(answers)  # the inputs of this round's layer are in global order
        for number, (weight, bias) in enumerate(layers(params)[stage:], stage):
            width = len(params[layers(params)[number - 1][1]])
            rows = [neurons(a.extra["model"], weight, bias, b, width) for a, b in zip(answers, below, strict=True)]
            if number < hidden:
                client_places, layer = self.matching(rows)
                for answer, place in zip(answers, client_places, strict=True):
                    all_places[answer.client][str(number)] = place
                below = client_places
            else:
                shares = [a.extra["classes"]["share"] for a in answers]
                layer = by_class(rows, [a.num_examples for a in answers], shares)
            params[weight] = layer[:, :-1].reshape(len(layer), -1, *params[weight].shape[2:])
            params[bias] = layer[:, -1].clone()
        name = renamed(arch, widths(params), ctx)
        memory = {f"places/{client}": at for client, at in all_places.items() if at}
        facts = Facts(own={"layer": stage + 1, "widths": widths(params)})
        return ServerState(server.round + 1, {arch: Snapshot(name, params)}, memory), facts


def matchable(ctx: Context) -> None:
    """Refuse architectures whose neurons cannot be matched, before any client works."""
    arch, *others = dict.fromkeys(ctx.archs)
    remedy = "choose one net of mlp:64-32, vgg9 or vgg19 for all clients, without a norm"
    if others:
        raise FedfuseError(
            f"fedma matches neurons of one architecture, but the clients have {arch} and {others[0]}: {remedy}"
        )
    if split(arch)[1] is not None:
        raise FedfuseError(
            f"fedma cannot match {arch}: its head is shared, so its neurons have a fixed order: {remedy}"
        )
    net = ctx.nets.scratch(arch)
    if norm := next((type(m).__name__ for m in net.modules() if isinstance(m, NORMS)), None):
        raise FedfuseError(
            f"fedma cannot match {arch}: it has no rule for averaging a {norm} over matched neurons: {remedy}"
        )
    try:
        with_widths(arch, widths(dict(net.named_parameters())))
    except (FedfuseError, ValueError) as error:
        raise FedfuseError(
            f"fedma cannot match {arch}: it matches nets that are one chain of convolutions and fully connected layers,"
            f" without residuals, and that have a name for grown layers: {remedy}"
        ) from error

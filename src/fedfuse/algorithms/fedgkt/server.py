"""A server whose net trains on the features that clients send (FedGKT), and answers each client with its logits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from fedfuse import rng
from fedfuse.algorithm import Facts
from fedfuse.algorithms.fedgkt.client import SERVER, TaughtLoss, shape_of_features
from fedfuse.algorithms.fedgkt.features import Heard
from fedfuse.context import Context
from fedfuse.fusion.diagnostics import accuracy
from fedfuse.fusion.table import NotFiniteError, outputs
from fedfuse.local.training import cuts
from fedfuse.models.split import Split, joined, parts
from fedfuse.optimizers import Adam
from fedfuse.types import FedfuseError, ServerState, Snapshot, Task, Update


def behind_the_first(clients: Sequence[str], server: str) -> str:
    """The server's net continues the first stage of the client architecture that is named first."""
    return joined(clients[0], server)


def one_shape_of_features(ctx: Context) -> None:
    """Refuse architectures whose features one server net could not take."""
    assert ctx.server is not None
    shapes = {arch: shape_of_features(arch, ctx) for arch in dict.fromkeys(ctx.archs)}
    if len(set(shapes.values())) > 1:
        said = ", ".join(f"{arch} {shape}" for arch, shape in shapes.items())
        raise FedfuseError(f"fedgkt: one server net takes the features of all clients, but their shapes differ: {said}")
    if (first := _both(ctx.server)[0]) not in shapes:
        raise FedfuseError(f"fedgkt: no client has {first}, with whose features the server's model is to begin")


@dataclass(frozen=True)
class SendLogits:
    """Each client is sent what the server said of its examples when it took part last, and no model."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task:
        said = server.memory.get(_logits_of(client))
        return Task(client, ctx.round, None, {} if said is None else {SERVER: said})


@dataclass(frozen=True)
class TrainedOnFeatures:
    """The server's net trains on the features of all clients of the round, then answers each with its own logits.

    probe: how many test examples (the first ones; 0 for none) measure what the facts record.
    """

    loss: TaughtLoss
    lr: float
    epochs: int
    batch_size: int
    weight_decay: float
    probe: int

    def __post_init__(self) -> None:
        if not (self.lr > 0 and self.epochs > 0 and self.batch_size > 0 and self.weight_decay >= 0):
            raise FedfuseError("fedgkt: lr, epochs and batch_size must be positive, weight_decay not negative")

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        assert ctx.server is not None
        heard = Heard(_both(ctx.server)[0])
        for update in updates:
            heard.take(update, ctx.archs[update.client])
        unchanged = replace(server, round=server.round + 1)
        if not heard.rows:
            return unchanged, {"warning": "no client sent features: the server keeps its model"}
        net = _split(ctx.nets.load(server.models[ctx.server], "student"))
        try:
            losses = self._train(net.server, heard, ctx)
            said = {
                _logits_of(client): {"logits": outputs(net.server, heard.features, rows, f"for client {client} it")}
                for client, rows in heard.rows.items()
            }
        except NotFiniteError as problem:
            return unchanged, {"warning": f"{problem}; the server keeps its model of before this round"}
        if heard.extractor.weight:
            net.extractor.load_state_dict(heard.extractor.value())
        models = {ctx.server: Snapshot.of(ctx.server, net)}
        facts = {
            "clients": len(heard.rows),
            "examples": len(heard.features),
            "steps": len(losses),
            "loss": {"first": losses[0], "last": losses[-1]},
            **self._measured(net, heard, ctx),
        }
        return ServerState(server.round + 1, models, {**server.memory, **said}), facts

    def _train(self, net: nn.Module, heard: Heard, ctx: Context) -> list[float]:
        """The loss of each step. Batches go by client and row, so that it does not matter who answered first."""
        adam = Adam(net.parameters(), self.lr, weight_decay=self.weight_decay, amsgrad=True, fused=True)
        order, logits, labels = heard.ordered()
        shuffle, losses = ctx.rng("server shuffle", ctx.round), []
        with torch.enable_grad(), rng.ambient(ctx.rng("server layers", ctx.round)):
            net.train()
            for _ in range(self.epochs):
                drawn = torch.randperm(len(order), generator=shuffle)
                for start, stop in cuts(len(order), self.batch_size):
                    index = drawn[start:stop]
                    loss = self.loss(net(heard.features.batch(order[index])), labels[index], logits[index])
                    adam.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    adam.step()
                    losses.append(loss.detach())
        taken = torch.stack(losses)
        if not bool(torch.isfinite(taken).all()):
            raise NotFiniteError("the loss of the server's net is not finite")
        return taken.tolist()

    def _measured(self, net: Split, heard: Heard, ctx: Context) -> dict[str, dict[str, float] | float]:
        """The accuracy of the server's net on the features of the mean extractor, and on those of each client's own."""
        test, rows = ctx.data.test, torch.arange(min(self.probe, len(ctx.data.test)))
        if not len(rows):
            return {}
        y, server = test.y[rows], _both(str(ctx.server))[1]
        own = []
        for client, tensors in heard.extractors.items():
            with_own = _split(ctx.nets.scratch(joined(ctx.archs[client], server), "teacher"))
            with_own.extractor.load_state_dict(tensors)
            with_own.server.load_state_dict(net.server.state_dict())
            own.append(accuracy(outputs(with_own, test, rows, f"the server on client {client}"), y))
        return {
            "mean_extractor": accuracy(outputs(net, test, rows, "the server"), y),
            "own_extractors": {"mean": sum(own) / len(own), "worst": min(own), "best": max(own)},
        }


def _logits_of(client: int) -> str:
    return f"logits/{client}"


def _both(server: str) -> tuple[str, str]:
    """The architectures of the server's model: the clients' and its own."""
    both = parts(server)
    if both is None:
        raise FedfuseError(f"fedgkt: the server's model is client|server, as in {joined('mlp:64', server)}")
    return both


def _split(net: nn.Module) -> Split:
    assert isinstance(net, Split)
    return net

"""FedGKT's server: its net trains on the features that clients send, and each client gets back its logits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn

from fedfuse import bounds, rng
from fedfuse.algorithm import Roles, named_server
from fedfuse.algorithms.fedgkt.client import SERVER, TransferLoss, shape_of_features
from fedfuse.algorithms.fedgkt.features import Received
from fedfuse.compute.batches import autocast_of, for_loss
from fedfuse.compute.feed import Feed
from fedfuse.compute.optimizers import Adam
from fedfuse.context import Context
from fedfuse.evaluate import accuracy
from fedfuse.facts import Facts, FirstAndLast, Spread, Student
from fedfuse.fusion.table import logits_of
from fedfuse.local.training import cuts
from fedfuse.models.split import Split, joined, parts
from fedfuse.types import FedfuseError, NotFiniteError, ServerState, Snapshot, Task, Update


@dataclass(frozen=True)
class SplitModel:
    """The server's net follows the first stage of the client architecture that is named first: `client|server`.

    The server holds no model of the clients' architectures.
    """

    def __call__(self, clients: Mapping[str, float], server: str | None) -> Roles:
        return Roles(clients, joined(next(iter(clients)), named_server(server)), small_models=False)


def one_shape_of_features(ctx: Context) -> None:
    """Refuse architectures whose features do not fit one server net."""
    assert ctx.server is not None
    shapes = {arch: shape_of_features(arch, ctx) for arch in dict.fromkeys(ctx.archs)}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{arch} {shape}" for arch, shape in shapes.items())
        raise FedfuseError(
            f"fedgkt: one server net takes the features of all clients, but their shapes differ: {listed}; choose "
            "architectures with the same shape"
        )
    if (first := _archs(ctx.server)[0]) not in shapes:
        raise FedfuseError(
            f"fedgkt: no client has {first}, whose features the server's model takes: name another architecture first"
        )


@dataclass(frozen=True)
class SendLogits:
    """Sends each client the server's logits of its examples, from its last round, and no model."""

    def __call__(self, server: ServerState, client: int, ctx: Context) -> Task:
        logits = server.memory.get(_memory_of(client))
        return Task(client, ctx.round, None, {} if logits is None else {SERVER: logits})


@dataclass(frozen=True)
class TrainedOnFeatures:
    """Trains the server's net on the features of all clients of the round, then computes its logits for each client.

    probe: the number of test examples (the first ones; 0 for none) on which facts are measured.
    """

    loss: TransferLoss
    lr: float
    epochs: int
    batch_size: int
    weight_decay: float
    probe: int

    def __post_init__(self) -> None:
        bounds.positive("fedgkt", lr=self.lr, epochs=self.epochs, batch_size=self.batch_size)
        bounds.not_negative("fedgkt", weight_decay=self.weight_decay, probe=self.probe)

    def __call__(self, server: ServerState, updates: Iterable[Update], ctx: Context) -> tuple[ServerState, Facts]:
        assert ctx.server is not None
        received = Received(_archs(ctx.server)[0])
        for update in updates:
            received.add(update, ctx.archs[update.client])
        unchanged = replace(server, round=server.round + 1)
        if not received.rows:
            return unchanged, Facts(warning="no client sent features: the server keeps its model")
        net = _split(ctx.nets.load(server.models[ctx.server], "student"))
        try:
            losses = self._train(net.server, received, ctx, autocast_of(net))
            logits = {
                _memory_of(client): {
                    "logits": logits_of(net.server, received.features, rows, f"the server's net for client {client}")
                }
                for client, rows in received.rows.items()
            }
        except NotFiniteError as problem:
            return unchanged, Facts(warning=f"{problem}; the server keeps its previous model")
        if received.extractor.weight:
            net.extractor.load_state_dict(received.extractor.value())
        models = {ctx.server: Snapshot.of(ctx.server, net)}
        student = Student(len(losses), FirstAndLast(losses[0], losses[-1]))
        counts = {"clients": len(received.rows), "examples": len(received.features)}
        state = ServerState(server.round + 1, models, {**server.memory, **logits})
        return state, Facts(students={ctx.server: student}, own={**counts, **self._accuracies(net, received, ctx)})

    def _train(
        self, net: nn.Module, received: Received, ctx: Context, precision: AbstractContextManager[Any]
    ) -> list[float]:
        """Train, and return the loss of each step. Examples are ordered by client and row, not by arrival."""
        adam = Adam(
            net.parameters(), self.lr, weight_decay=self.weight_decay, amsgrad=True, fused=True,
            scaled=ctx.nets.precision is torch.float16,
        )  # fmt: skip
        order, logits, labels = received.ordered()
        shuffle, losses = ctx.rng("server shuffle", ctx.round), []
        device = ctx.nets.device
        logits, labels = logits.to(device), labels.to(device)
        feed = Feed(received.features, order, device)
        with torch.enable_grad(), rng.ambient(ctx.rng("server layers", ctx.round), device):
            net.train()
            for _ in range(self.epochs):
                permutation = torch.randperm(len(order), generator=shuffle)
                each = (permutation[start:stop] for start, stop in cuts(len(order), self.batch_size))
                for x, here in feed(each):
                    with precision:
                        predicted = net(x)
                    loss = self.loss(for_loss(predicted), labels[here], logits[here])
                    adam.minimise(loss)
                    losses.append(loss.detach())
        all_losses = torch.stack(losses).cpu()
        if not bool(torch.isfinite(all_losses).all()):
            raise NotFiniteError("the loss of the server's net is not finite")
        return all_losses.tolist()

    def _accuracies(self, net: Split, received: Received, ctx: Context) -> dict[str, Any]:
        """Return the accuracy of the server's net with the mean extractor, and with each client's own."""
        test, rows = ctx.data.test, torch.arange(min(self.probe, len(ctx.data.test)))
        if not len(rows):
            return {}
        y, server = test.y[rows], _archs(str(ctx.server))[1]
        own = []
        for client, tensors in received.extractors.items():
            with_own = _split(ctx.nets.scratch(joined(ctx.archs[client], server), "teacher"))
            with_own.extractor.load_state_dict(tensors)
            with_own.server.load_state_dict(net.server.state_dict())
            own.append(accuracy(logits_of(with_own, test, rows, f"the server on client {client}"), y))
        return {
            "mean_extractor": accuracy(logits_of(net, test, rows, "the server"), y),
            "own_extractors": asdict(Spread.of(own)),
        }


def _memory_of(client: int) -> str:
    return f"logits/{client}"


def _archs(server: str) -> tuple[str, str]:
    """Return the two architectures of the server's model: the clients' and its own."""
    archs = parts(server)
    if archs is None:
        raise FedfuseError(f"fedgkt: the server's model must be client|server, as in {joined('mlp:64', server)}")
    return archs


def _split(net: nn.Module) -> Split:
    assert isinstance(net, Split)
    return net

"""The node side: a Flower ClientApp that does one client's work, as every other engine does it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from flwr.app import ConfigRecordValues, Message, RecordDict
from flwr.app import Context as NodeContext
from flwr.clientapp import ClientApp
from torch import Tensor

from fedfuse import models
from fedfuse.compute.threads import threads
from fedfuse.config.experiment import Experiment, load
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.engines.engine import attempt
from fedfuse.flower import wire
from fedfuse.flower.memory import Memory
from fedfuse.flower.reply_checks import check_model
from fedfuse.models import precision
from fedfuse.models.precision import Precision
from fedfuse.runs.setup import Setup, load_federation, set_up
from fedfuse.types import Failure, FedfuseError, Task, Update, saved_buffers

Own = Examples | tuple[Tensor, Tensor]  # x (N, ...) uint8 images or float32, y (N,) int64
Data = Own | Callable[[NodeContext], Own]  # the function receives Flower's context, which holds the node config


def client_app(experiment: Experiment | str | Path, *, data: Data | None = None) -> ClientApp:
    """Return a ClientApp for `experiment`: a value, a file or a built-in name, the same as the server's.

    `data` is the node's own: examples, or a function that reads them. Without it the node uses its share of the
    experiment's data, as in a simulation.
    """
    return serving(Node(experiment, data))


def serving(node: Node) -> ClientApp:
    """Return a ClientApp that answers for this node."""
    app = ClientApp()

    @app.query()
    def hello(message: Message, context: NodeContext) -> Message:
        return Message(wire.content(node.introduce(message, context)), reply_to=message)

    @app.train()
    def train(message: Message, context: NodeContext) -> Message:
        return Message(node.answer(message, context), reply_to=message)

    return app


@dataclass
class Node:
    """Answers tasks. It checks what the server sends: the server is another party."""

    experiment: Experiment | str | Path
    data: Data | None = None
    _federations: dict[str, Federation] = field(default_factory=dict, repr=False)  # the experiment's data, once read

    def introduce(self, message: Message, context: NodeContext) -> wire.About:
        """Return what the server must know of this node before it asks it to work."""
        config = context.node_config
        facts: dict[str, ConfigRecordValues] = {"protocol": wire.PROTOCOL, "own-data": self.data is not None}
        facts |= {key: config[key] for key in ("partition-id", "capability", "name") if key in config}
        if self.data is not None and wire.about(message).get("count") is True:
            with suppress(Exception):  # a user's code: what is wrong with the data is said when it is asked to train
                own = self._own(context)
                facts["examples"] = len(own if isinstance(own, Examples) else own[1])
        return facts

    def _own(self, context: NodeContext) -> Own:
        assert self.data is not None
        return self.data(context) if callable(self.data) else self.data

    def answer(self, message: Message, context: NodeContext) -> RecordDict:
        facts, task = wire.about(message), wire.read_task(message)
        try:
            update, has_memory = self._work(task, facts, context)
        except FedfuseError as error:
            update, has_memory = Failure(task.client, str(error)), False
        return wire.reply(facts, update, has_memory)

    def _work(self, task: Task, facts: wire.About, context: NodeContext) -> tuple[Update | Failure, bool]:
        experiment = self.experiment if isinstance(self.experiment, Experiment) else load(self.experiment)
        declared = facts.get("declared", task.client)
        partition = context.node_config.get("partition-id", declared)
        if partition != declared:
            raise FedfuseError(f"was asked at the node of client {partition!r}: check partition-id in the node configs")
        folder, memory_round = context.node_config.get("memory-dir"), wire.whole(facts, "memory")
        memory = Memory.of(None if folder is None else str(folder), context.state, str(facts["run"]), task.client)
        with ExitStack() as stack:
            stack.enter_context(threads(experiment.run.threads))
            setup = self._setup(experiment, facts, context)
            stack.enter_context(setup.arithmetic())
            ctx = setup.ctx.at(task.round)
            if task.model is not None:
                net = ctx.nets.scratch(_allowed_arch(task.model.arch, experiment))
                check_model(task.model, dict(net.named_parameters()), saved_buffers(net))
            answer, next_memory = attempt(setup.algorithm, task, memory.recall(memory_round), ctx)
            if isinstance(answer, Failure) or not next_memory:
                return answer, False
            memory.keep(task.round, next_memory, memory_round)
            return answer, True

    def _setup(self, experiment: Experiment, facts: wire.About, context: NodeContext) -> Setup:
        client, arch = wire.whole(facts, "client"), _allowed_arch(str(facts["arch"]), experiment)
        if self.data is None:
            if "all" not in self._federations:
                self._federations["all"] = load_federation(experiment)
            setup = set_up(experiment, self._federations["all"])
        else:
            # The server has assigned architectures by capability, so the node's data need not have that column.
            plain = experiment.model_copy(update={"models": experiment.models.model_copy(update={"capability": None})})
            setup = set_up(plain, _alone(_examples(self._own(context), facts), client, wire.whole(facts, "clients")))
        archs, precisions = setup.ctx.archs, setup.ctx.precisions
        if not client < len(archs):
            raise FedfuseError(
                f"is client {client}, but its experiment has {len(archs)} clients: use the server's experiment"
            )
        # The server may have assigned it by capability, as it may have the architecture.
        own = Precision.parse(facts.get("upload"), facts.get("net"))
        archs = (*archs[:client], arch, *archs[client + 1 :])
        precisions = (*precisions[:client], own, *precisions[client + 1 :])
        return replace(setup, ctx=replace(setup.ctx, archs=archs, precisions=precisions))


def _allowed_arch(arch: str, experiment: Experiment) -> str:
    """Return the architecture if the experiment or the zoo names it: any other name could import arbitrary code."""
    names = {*(precision.split(name)[0] for name in experiment.models.weights), experiment.models.server}
    zoo = models.names()
    for part in re.sub(r"\+head\d+", "", arch).split("|"):
        if part not in names and part.partition(":")[0] not in zoo:
            raise FedfuseError(
                f"was asked to train {arch}, which its experiment does not name: use the server's experiment"
            )
    return arch


def _examples(data: Own, facts: wire.About) -> Examples:
    """Return the node's data with the server's classes and statistics, so that all clients normalise alike."""
    mean, std = (torch.tensor(facts[key]) for key in ("mean", "std"))
    classes = wire.whole(facts, "classes")
    vocabulary = wire.whole(facts, "vocabulary") if "vocabulary" in facts else 0
    if isinstance(data, Examples):
        return replace(data, classes=classes, mean=mean, std=std, vocabulary=data.vocabulary or vocabulary)
    x, y = data
    return Examples(x, y.long(), classes, mean, std, vocabulary=vocabulary)


def _alone(own: Examples, client: int, clients: int) -> Federation:
    """Return a federation in which only this client has data."""
    nothing = torch.arange(0)
    parts = tuple(torch.arange(len(own)) if k == client else nothing for k in range(clients))
    empty = own.subset(nothing)
    return Federation(own, parts, empty, empty, None, tuple(str(c) for c in range(own.classes)))

"""FedMA: what permuted copies of a net become, whose neurons a client gets, and which nets are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fedfuse
from fedfuse import codec, models
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import fedma
from fedfuse.algorithms.fedma.client import TrainAbove
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.engines import InProcess
from fedfuse.fusion import WeightedMean
from fedfuse.local import LocalSettings, Training
from fedfuse.models.catalogue import with_widths
from fedfuse.round import run_round
from fedfuse.testing import LAWS, check_algorithm, small_context
from fedfuse.types import FedfuseError, Groups, ServerState, Snapshot, Task, Tensors, Update
from fedfuse.vet import Vetting
from tests.doubles import LINEAR, aggregated, context

MLP, VGG = "mlp:9-7", "vgg9:none:4-5-6-6-7-7-9-8"
SHAPES = {MLP: (12,), VGG: (3, 16, 16)}  # the VGG's last map is 2x2: each of its channels has 4 inputs above


def federation(arch: str, clients: int = 4) -> Context:
    shape, draw = SHAPES[arch], torch.Generator().manual_seed(1)
    x, y = torch.randn(40, *shape, generator=draw), torch.arange(40) % 3
    channels = torch.zeros(shape[0]), torch.ones(shape[0])
    rows = Examples(x, y, 3, *channels)
    parts = tuple(torch.arange(client, 40, clients) for client in range(clients))
    data = Federation(rows, parts, rows, rows, None, ("a", "b", "c"))
    nets = Nets(3, shape)
    return Context(0, 9, LocalSettings(epochs=1, batch_size=16), data, (arch,) * clients, nets, round=1)


def start(ctx: Context) -> ServerState:
    """The initial server, with biases that are not zero."""
    draw = torch.Generator().manual_seed(2)
    ((arch, model),) = ctx.initial().items()
    params = {n: t if t.dim() > 1 else 0.3 * torch.randn(t.shape, generator=draw) for n, t in model.params.items()}
    return ServerState(0, {arch: replace(model, params=params)})


def permuted(params: Tensors, seed: int) -> dict[str, Tensor]:
    """The same function with the neurons of every hidden layer in another order."""
    draw, result = torch.Generator().manual_seed(seed), dict(params)
    names = list(params)
    for weight, bias, above in zip(names[:-2:2], names[1:-2:2], names[2::2], strict=True):
        order = torch.randperm(len(params[bias]), generator=draw)
        result[weight], result[bias] = result[weight][order], result[bias][order]
        block = params[above].shape[1] // len(order)  # pixels of a channel that is flattened
        inputs = (order[:, None] * block + torch.arange(block)).flatten()
        result[above] = result[above][:, inputs]
    return result


def logits(model: Snapshot, ctx: Context) -> Tensor:
    with torch.no_grad():
        answer: Tensor = ctx.nets.load(model, "test").eval()(ctx.data.test.batch(torch.arange(40)))
    return answer


@dataclass(frozen=True)
class Shuffle:
    """Instead of training: in round 1 the neurons change places, later nothing does. Remembers what it was given."""

    given: list[Task] = field(default_factory=list)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        self.given.append(task)
        assert task.model is not None
        params = permuted(task.model.params, task.client) if task.round == 1 else task.model.params
        return Update(task.client, 5, replace(task.model, params=params))


def shuffling(**settings: object) -> tuple[Algorithm, Shuffle]:
    algorithm, shuffle = fedma(**settings), Shuffle()  # type: ignore[arg-type]
    assert isinstance(algorithm.local, TrainAbove)
    return replace(algorithm, local=replace(algorithm.local, train=shuffle)), shuffle  # type: ignore[arg-type]


@pytest.mark.parametrize("growth", [1.0, 1.5])
@pytest.mark.parametrize("arch", [MLP, VGG])
def test_permuted_copies_fuse_to_the_same_function_where_averaging_destroys_it(arch: str, growth: float) -> None:
    ctx = federation(arch)
    server = start(ctx)
    algorithm, _ = shuffling(growth=growth)
    answers = [algorithm.local(algorithm.brief(server, k, ctx), {}, ctx) for k in range(4)]
    fused, facts = algorithm.fuse(server, answers, ctx)
    before = logits(server.models[arch], ctx)
    torch.testing.assert_close(logits(fused.models[arch], ctx), before, rtol=1e-5, atol=1e-5)
    grown = sum(facts.own["widths"]) > sum(map(int, arch.rpartition(":")[2].split("-")))
    assert grown == (growth > 1)  # with so few clients the prior gives equal neurons several places
    nets = [replace(a, model=Snapshot(arch, a.extra["model"])) for a in answers]
    mean = aggregated(WeightedMean(), server, nets, ctx).models[arch]
    assert (logits(mean, ctx) - before).abs().max() > 0.3 * before.abs().max()


@pytest.mark.parametrize("arch", [MLP, VGG])
def test_every_client_keeps_its_function_through_all_stages_and_into_the_next_cycle(arch: str) -> None:
    """Where all clients are copies, what each trains in any round computes what it did before: own weights above the
    matched layers, and its own neurons of the global model when the cycle begins again."""
    ctx = federation(arch)
    server = start(ctx)
    before = logits(server.models[arch], ctx)
    algorithm, shuffle = shuffling(growth=1.0)
    depth = len(server.models[arch].params) // 2
    engine = InProcess()
    for number in range(1, depth + 3):
        server, record = run_round(algorithm, server, engine, [0, 1, 2, 3], Vetting(), ctx.at(number))
        assert record.rejected == {}
        assert record.facts.own["layer"] == (number - 1) % depth + 1
        torch.testing.assert_close(logits(server.models[arch], ctx), before, rtol=1e-5, atol=1e-5)
    assert len(shuffle.given) == 4 * (depth + 2)
    for task in shuffle.given:
        assert task.model is not None
        torch.testing.assert_close(logits(task.model, ctx), before, rtol=1e-5, atol=1e-5)


def test_a_client_goes_on_with_its_own_weights_above_the_matched_layer() -> None:
    """Clients that are not alike, trained: in round 2 a client has its own weights of round 1, its inputs in order."""
    ctx = federation(MLP)
    server, engine, algorithm = start(ctx), InProcess(), fedma()
    server, _ = run_round(algorithm, server, engine, [0, 1, 2, 3], Vetting(), ctx)
    memory = engine.memory()[2]["own"]
    recorder = Shuffle()
    assert isinstance(algorithm.local, TrainAbove)
    now = ctx.at(2)
    task = algorithm.brief(server, 2, now)
    replace(algorithm.local, train=recorder)(task, engine.memory()[2], now)  # type: ignore[arg-type]
    begun = recorder.given[0].model
    assert begun is not None
    (w1, b1, w2, b2, w3, b3), place = list(begun.params), server.memory["places/2"]["0"]
    whole = server.models[MLP].params
    assert torch.equal(begun.params[w1], whole[w1])
    assert torch.equal(begun.params[b1], whole[b1])
    assert torch.equal(begun.params[w2][:, place], memory[w2])
    assert begun.params[w2].count_nonzero() == memory[w2].count_nonzero()
    for name in (b2, w3, b3):
        assert torch.equal(begun.params[name], memory[name])
    assert not torch.equal(begun.params[w3], task.extra["model"][w3])


def test_matched_layers_are_frozen_and_do_not_travel_back() -> None:
    ctx = federation(MLP)
    server, engine, algorithm = start(ctx), InProcess(), fedma()
    for number in (1, 2, 3):
        now = ctx.at(number)
        task = algorithm.brief(server, 0, now)
        answer = algorithm.local(task, engine.memory().get(0, {}), now)
        net = ctx.nets.scratch(with_widths(MLP, [len(t) for t in task.extra["model"].values() if t.dim() == 1][:-1]))
        for depth, (name, p) in enumerate(net.named_parameters()):
            assert torch.equal(p, task.extra["model"][name]) == (depth < 2 * (number - 1))
        assert len(answer.extra["model"]) == 6 - 2 * (number - 1)
        before = server.models[MLP].params
        server, record = run_round(algorithm, server, engine, [0, 1, 2, 3], Vetting(), now)
        after = server.models[MLP].params
        for depth, name in enumerate(before):
            fixed = depth < 2 * (number - 1)
            assert fixed == (before[name].shape == after[name].shape and torch.equal(before[name], after[name]))
            assert before[name].data_ptr() != after[name].data_ptr()
        assert record.params_up < record.params_down or number == 1
    assert all(p.requires_grad for p in ctx.nets.scratch(server.models[MLP].arch).parameters())


def test_the_output_layer_goes_by_the_clients_examples_of_each_class() -> None:
    """Client 0 has three examples of class 0 and one of class 1, client 1 one and one; nobody has class 2."""
    ctx = federation(MLP, clients=2)
    parts = torch.tensor([0, 3, 6, 1]), torch.tensor([9, 4])
    ctx = replace(
        ctx, round=3, data=replace(ctx.data, parts=parts)
    )  # a round in which only the output layer is trained
    server, algorithm = start(ctx), fedma()
    answers = [algorithm.local(algorithm.brief(server, k, ctx), {}, ctx) for k in (0, 1)]
    assert [a.extra["classes"]["share"].tolist() for a in answers] == [[0.75, 0.25, 0.0], [0.5, 0.5, 0.0]]
    fused, facts = algorithm.fuse(server, answers, ctx)
    assert facts.own["layer"] == 3
    weight, bias = list(server.models[MLP].params)[-2:]
    for name in (weight, bias):
        one, two = (a.extra["model"][name] for a in answers)
        mean = torch.stack([(3 * one[0] + two[0]) / 4, (one[1] + two[1]) / 2, (4 * one[2] + 2 * two[2]) / 6])
        torch.testing.assert_close(fused.models[MLP].params[name], mean)
        assert not torch.equal(one, two)


def test_all_layers_at_once_is_a_setting() -> None:
    ctx = federation(MLP)
    server, engine, algorithm = start(ctx), InProcess(), fedma(layers="all")
    for number in (1, 2):
        server, record = run_round(algorithm, server, engine, [0, 1, 2, 3], Vetting(), ctx.at(number))
        assert record.facts.own["layer"] == 1
    assert "place" not in algorithm.brief(server, 0, ctx.at(3)).extra


def test_some_clients_in_each_round() -> None:
    """A client that was matched gets its own neurons, one that was not those that most share; both in its own size."""
    ctx = federation(MLP)
    server, engine, algorithm = start(ctx), InProcess(), fedma()
    for number, cohort in enumerate(([0, 1], [1, 2], [2, 3], [0, 3], [1], [0, 1, 2, 3], [2]), 1):
        now = ctx.at(number)
        for client in cohort:
            task, stage = algorithm.brief(server, client, now), (number - 1) % 3
            assert ("place" in task.extra) == (
                stage > 0 and str(stage - 1) in server.memory.get(f"places/{client}", {})
            )
            sizes = [len(t) for t in task.extra["model"].values() if t.dim() == 1]
            assert sizes[stage:] == [9, 7, 3][stage:]
        server, record = run_round(algorithm, server, engine, cohort, Vetting(quorum=len(cohort)), now)
        assert record.note is None, record.rejected
        assert torch.isfinite(logits(server.models[MLP], ctx)).all()
        if number == 2:  # layer 2 was matched without client 0, layer 1 with it
            assert {g: list(p) for g, p in server.memory.items()} == {
                "places/0": ["0"], "places/1": ["0", "1"], "places/2": ["1"],
            }  # fmt: skip
            newcomer = algorithm.brief(server, 3, ctx.at(4)).extra["model"]
            (w1, b1, *_), whole = list(newcomer), server.models[MLP].params
            assert torch.equal(newcomer[w1], whole[w1][:9])
            assert torch.equal(newcomer[b1], whole[b1][:9])
            veteran = algorithm.brief(server, 0, ctx.at(4)).extra["model"]
            assert torch.equal(veteran[w1], whole[w1][server.memory["places/0"]["0"]])


def test_a_client_that_lost_its_memory_starts_from_what_it_is_sent() -> None:
    ctx = federation(MLP)
    algorithm, server = fedma(), start(ctx)
    server, _ = run_round(algorithm, server, InProcess(), [0, 1, 2, 3], Vetting(), ctx)
    server, record = run_round(algorithm, server, InProcess(), [0, 1, 2, 3], Vetting(), ctx.at(2))
    assert record.rejected == {}


def test_what_does_not_fit_is_refused() -> None:
    ctx = federation(MLP)
    algorithm, server = fedma(), start(ctx)
    good = algorithm.local(algorithm.brief(server, 0, ctx), {}, ctx)
    weight = next(iter(good.extra["model"]))
    wrong: Sequence[Mapping[str, Tensors]] = (
        {"model": {**good.extra["model"], weight: torch.zeros(9, 13)}},
        {"model": {**good.extra["model"], weight: torch.full((9, 12), torch.nan)}},
        {"classes": {"share": torch.tensor([0.5, 0.5, 1.5])}},
    )
    for change in wrong:
        with pytest.raises(Exception, match=r"expected|finite|above 1"):
            Vetting().check(
                replace(good, extra={**good.extra, **change}), server, ctx, algorithm.expect(server, 0, ctx)
            )
    Vetting().check(good, server, ctx, algorithm.expect(server, 0, ctx))


def test_equal_clients_fuse_to_themselves() -> None:
    """Without growth as the law wants it; with it to the same function (above)."""
    algorithm = fedma(growth=1.0)
    LAWS["identical_clients_fuse_to_themselves"](algorithm, small_context(algorithm))


def test_the_laws_hold_for_all_layers_at_once() -> None:
    check_algorithm(
        fedma(layers="all", growth=1.0),
        rounds=3,
        exempt={"updates_are_a_stream": "every client's neurons are matched again and again"},
    )


# What it cannot match.


@pytest.mark.parametrize(
    ("arch", "reason"),
    [
        ("mlp:8:bn", "averaging a BatchNorm1d"),
        ("mlp:8:gn", "averaging a GroupNorm"),
        ("vgg9:bn", "averaging a BatchNorm2d"),
        ("resnet8", "averaging a BatchNorm2d"),
        ("resnet8:none", "without residuals"),
        ("lenet", "a name for grown layers"),
        ("mlp:8+head4", "head is shared"),
    ],
)
def test_a_net_that_cannot_be_matched_is_refused_with_the_reason(arch: str, reason: str) -> None:
    ctx = replace(federation(VGG), archs=(arch,) * 4)
    with pytest.raises(FedfuseError, match=rf"{reason}.*choose one net of mlp:64-32"):
        fedma().check(ctx)


def test_so_are_your_own_nets_and_several_at_once() -> None:
    with pytest.raises(FedfuseError, match=r"cannot match tests\.doubles:linear"):
        fedma().check(context((LINEAR,) * 4))
    with pytest.raises(FedfuseError, match="the clients have mlp:8 and mlp:6"):
        fedma().check(context(("mlp:8", "mlp:6")))
    for arch in (MLP, VGG):
        fedma().check(federation(arch))


def experiment(**models: object) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={"source": "synthetic", "examples": 240, "classes": 3, "shape": [4]},
        partition={"clients": 4},
        models={"clients": "mlp:6", **models},
        local={"epochs": 1, "batch_size": 8},
        algorithm={"name": "fedma"},
        run={"rounds": 3, "fraction": 0.5, "workers": 1},
    )


def test_an_experiment_is_refused_when_it_is_checked() -> None:
    with pytest.raises(FedfuseError, match="fedma cannot match mlp:6:bn"):
        fedfuse.check(experiment(clients="mlp:6:bn"))


# Grown nets.


def test_a_run_saves_a_net_that_has_grown_and_loads_it_back(tmp_path: Path) -> None:
    made = experiment()
    run = fedfuse.run(made, tmp_path / "run")
    assert run.models.keys() == {"mlp:6"}
    model = run.models["mlp:6"]
    (file,) = (run.path / "models").iterdir()
    loaded = fedfuse.load_model(file)
    assert loaded.arch == model.arch != "mlp:6"
    assert loaded.arch == f"mlp:{run.final.facts.own['widths'][0]}"
    for name, p in loaded.net.named_parameters():
        assert torch.equal(p, model.params[name])


def test_a_checkpoint_keeps_the_key_and_the_grown_name() -> None:
    ctx = federation(VGG)
    algorithm, server = fedma(), start(ctx)
    server, _ = run_round(algorithm, server, InProcess(), [0, 1, 2, 3], Vetting(), ctx)
    read, _, _ = codec.decode_state(codec.encode_state(server, {}, {}))
    assert read.models[VGG].arch == server.models[VGG].arch != VGG
    assert torch.equal(logits(read.models[VGG], ctx), logits(server.models[VGG], ctx))
    assert list(read.models[VGG].params) == list(server.models[VGG].params)


@pytest.mark.parametrize(
    ("name", "widths", "grown"),
    [
        ("mlp:64-32", (70, 41), "mlp:70-41"),
        ("mlp:64-32:none", (70, 41), "mlp:70-41:none"),
        ("vgg9", range(1, 9), "vgg9:none:1-2-3-4-5-6-7-8"),
        (VGG, range(1, 9), "vgg9:none:1-2-3-4-5-6-7-8"),
    ],
)
def test_a_grown_net_has_a_name(name: str, widths: Sequence[int], grown: str) -> None:
    assert with_widths(name, widths) == grown
    net = models.build(grown, classes=3, shape=(3, 8, 8))
    assert [len(p) for p in net.parameters() if p.dim() == 1] == [*widths, 3]


def test_a_vgg_with_its_own_widths_is_the_vgg() -> None:
    plain, named = (
        models.build(n, classes=3, shape=(3, 32, 32)) for n in ("vgg9", "vgg9:none:32-64-128-128-256-256-512-512")
    )
    assert [(n, p.shape) for n, p in plain.named_parameters()] == [(n, p.shape) for n, p in named.named_parameters()]


@pytest.mark.parametrize("name", ["vgg9:none:1-2-3", "vgg9:none:1-2-3-4-5-6-7-x", "vgg9:none:1-2-3-4-5-6-7-8:bn"])
def test_wrong_widths_are_refused(name: str) -> None:
    with pytest.raises(FedfuseError, match="vgg9"):
        models.build(name, classes=3, shape=(3, 8, 8))


def test_a_net_without_such_a_name_says_so() -> None:
    with pytest.raises(FedfuseError, match=r"resnet8 .* other widths: choose mlp:64-32"):
        with_widths("resnet8", (1, 2))


def test_nets_of_many_widths_do_not_pile_up() -> None:
    nets = Nets(3, (4,))
    base = nets.scratch("mlp:8")
    for width in range(1, 100):
        nets.scratch(f"mlp:{width}")
        assert nets.scratch("mlp:8") is base
    assert len(nets._nets) <= 32


def test_training_is_the_plain_one() -> None:
    local = fedma().local
    assert isinstance(local, TrainAbove)
    assert local.train == Training()

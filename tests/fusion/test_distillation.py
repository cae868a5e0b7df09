"""A round of fusion by distillation, whole."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator
from dataclasses import asdict, fields, replace

import pytest
import torch

from fedfuse.context import Context
from fedfuse.facts import EnsembleQuality, FirstAndLast, Quality, Student
from fedfuse.fusion import (
    SGD,
    SWA,
    AdamCosine,
    Anchors,
    Clients,
    DeltaGaussian,
    DiagonalGaussian,
    DirichletMixture,
    Distilled,
    DropWorst,
    Ensemble,
    MeanLogits,
    MeanProbs,
    Momentum,
    PerArchitecture,
    Samples,
    Union,
    WeightedMean,
    distillation,
    labelling,
)
from fedfuse.fusion.distillation import STREAK
from fedfuse.fusion.table import TensorPool
from fedfuse.types import FedfuseError, ServerState, Update
from tests.doubles import aggregated
from tests.fusion.cases import context, same, server_of, trained, with_value

QUICK = AdamCosine(lr=0.01, steps=60, batch_size=32, every=20)


@pytest.fixture(scope="module", name="round")
def _round() -> tuple[Context, ServerState, list[Update]]:
    ctx = context()
    server = server_of(ctx)
    return ctx, server, [trained(ctx, server, client) for client in range(4)]


def averages(server: ServerState, updates: list[Update], ctx: Context):
    return aggregated(WeightedMean(), server, updates, ctx).models


def test_facts_are_all_there_and_json(round) -> None:
    ctx, server, updates = round
    state, facts = Distilled(distiller=QUICK)(server, updates, ctx)
    assert state.round == 1
    assert facts.teachers == 4
    assert facts.clients.worst <= facts.clients.mean <= facts.clients.best
    assert facts.clients.confidence is not None
    measured = [f for f in fields(facts.ensemble) if getattr(facts.ensemble, f.name) is None]
    assert measured == []
    assert 0 < facts.ensemble.disagreement < 1
    student = facts.students["mlp:8"]
    assert all(value is not None for value in (*asdict(student.average).values(), *asdict(student.student).values()))
    assert student.steps == 60
    assert student.loss.last < student.loss.first
    json.dumps(asdict(facts), allow_nan=False)


def test_facts_say_what_a_direct_look_says(round) -> None:
    ctx, server, updates = round
    state, facts = Distilled(distiller=QUICK, target=MeanProbs())(server, updates, ctx)
    test = ctx.data.test
    with torch.no_grad():
        logits = torch.stack([ctx.nets.load(u.model).eval()(test.x) for u in updates])
        student = ctx.nets.load(state.models["mlp:8"]).eval()(test.x)
    right = (logits.argmax(2) == test.y).double().mean(1)
    assert facts.clients.mean == pytest.approx(float(right.mean()))
    bins = facts.clients.confidence
    assert [sum(bins.right), sum(bins.wrong)] == pytest.approx([float(r.sum()) * len(test) for r in (right, 1 - right)])
    ensemble = torch.softmax(logits, 2).mean(0)
    same = (logits.argmax(2) == ensemble.argmax(1)).double().mean(1)
    assert facts.agreement == {str(u.client): pytest.approx(float(s)) for u, s in zip(updates, same, strict=True)}
    assert facts.ensemble.accuracy == pytest.approx(float((ensemble.argmax(1) == test.y).double().mean()))
    assert facts.ensemble.nll == pytest.approx(float(torch.nn.functional.nll_loss(ensemble.log(), test.y)), rel=1e-5)
    assert facts.students["mlp:8"].student.nll == pytest.approx(
        float(torch.nn.functional.cross_entropy(student, test.y)), rel=1e-5
    )


def test_the_probe_can_be_off_and_changes_nothing(round) -> None:
    ctx, server, updates = round
    on, _ = Distilled(distiller=QUICK)(server, updates, ctx)
    off, facts = Distilled(distiller=QUICK, probe=0)(server, updates, ctx)
    assert same(on.models["mlp:8"], off.models["mlp:8"])
    assert facts.clients is None
    assert facts.ensemble == EnsembleQuality(validation=facts.ensemble.validation)


@pytest.mark.parametrize(
    "ensemble",
    [
        Clients(),
        Clients("examples"),
        Anchors(),
        Union(Clients(), Anchors(), Samples(DiagonalGaussian(), 3)),
        Samples(DirichletMixture(), 3),
        Samples(DeltaGaussian(), 3),
    ],
    ids=str,
)
def test_the_order_of_clients_does_not_matter(ensemble: Ensemble, round) -> None:
    ctx, server, updates = round
    fuse = Distilled(ensemble=ensemble, distiller=SGD(lr=0.1, steps=10, batch_size=32))
    one, _ = fuse(server, updates, ctx)
    other, _ = fuse(server, updates[::-1], ctx)
    for name, p in one.models["mlp:8"].params.items():
        torch.testing.assert_close(p, other.models["mlp:8"].params[name], atol=1e-5, rtol=1e-4)


def test_inputs_are_not_mutated(round) -> None:
    ctx, server, updates = round
    given = [server.models["mlp:8"], *(u.model for u in updates)]
    before = [{n: t.clone() for n, t in m.params.items()} for m in given]
    pool = ctx.data.pool.x.clone()
    state = torch.get_rng_state()
    fuse = Distilled(Momentum(0.9), Union(Clients(), Anchors(), Samples(DiagonalGaussian(), 2)), distiller=QUICK)
    fuse(server, updates, ctx)
    assert all(torch.equal(t, m.params[n]) for b, m in zip(before, given, strict=True) for n, t in b.items())
    assert torch.equal(ctx.data.pool.x, pool)
    assert torch.equal(torch.get_rng_state(), state)


def test_identical_clients_fuse_to_themselves(round) -> None:
    # Teacher and start are the same function, so the gradient is rounding; plain SGD leaves it where it is.
    ctx, server, updates = round
    alike = [replace(updates[0], client=k, num_examples=1 + k) for k in range(4)]
    fuse = Distilled(ensemble=Union(Clients(), Anchors()), distiller=SGD(lr=0.01, steps=20, batch_size=32))
    state, facts = fuse(server, alike, ctx)
    for name, p in updates[0].model.params.items():
        torch.testing.assert_close(state.models["mlp:8"].params[name], p, atol=1e-6, rtol=0)
    assert facts.ensemble.disagreement == 0
    assert abs(facts.students["mlp:8"].loss.first) < 1e-6


def test_no_samples_and_no_anchor_is_feddf_bit_for_bit(round) -> None:
    ctx, server, updates = round
    feddf, _ = Distilled(ensemble=Clients(), target=MeanLogits(), distiller=QUICK)(server, updates, ctx)
    fedbe, _ = Distilled(ensemble=Union(Clients(), Samples(DiagonalGaussian(), 0)), distiller=QUICK)(
        server, updates, ctx
    )
    assert same(feddf.models["mlp:8"], fedbe.models["mlp:8"])


def test_rounds_and_seeds_draw_differently_and_repeat(round) -> None:
    ctx, server, updates = round
    fuse = Distilled(distiller=replace(QUICK, keep_start=False))
    first, again = (fuse(server, updates, ctx)[0].models["mlp:8"] for _ in range(2))
    assert same(first, again)
    assert not same(first, fuse(server, updates, ctx.at(2))[0].models["mlp:8"])
    assert not same(first, fuse(server, updates, replace(ctx, seed=1))[0].models["mlp:8"])


def test_students_start_from_the_momentum_average(round) -> None:
    ctx, server, updates = round
    velocity = {n: torch.ones_like(t) for n, t in server.models["mlp:8"].params.items()}
    warm = replace(server, memory={"velocity/mlp:8": velocity})
    state, _ = Distilled(Momentum(0.5), distiller=SGD(lr=1e-9, steps=1, batch_size=32))(warm, updates, ctx)
    expected, memory = aggregated(Momentum(0.5), warm, updates, ctx)
    for name, p in expected["mlp:8"].params.items():
        torch.testing.assert_close(state.models["mlp:8"].params[name], p)
        assert torch.equal(state.memory["velocity/mlp:8"][name], memory["velocity/mlp:8"][name])


def test_heterogeneous_every_prototype_learns_from_all() -> None:
    """Algorithm 3; the third prototype has no client this round, starts from its previous model and learns too."""
    ctx = context(("mlp:8", "mlp:8", "mlp:6-5", "mlp:4"))
    server = server_of(ctx)
    updates = [trained(ctx, server, client) for client in range(3)]
    fuse = Distilled(
        ensemble=Union(Clients(), Anchors(), Samples(DiagonalGaussian(), 2)),
        distiller=AdamCosine(lr=0.02, steps=200, batch_size=32, every=50),
    )
    state, facts = fuse(server, updates, ctx)
    assert facts.teachers == 3 + 2 + 2 * 2
    assert set(state.models) == set(facts.students) == {"mlp:8", "mlp:6-5", "mlp:4"}
    assert facts.students["mlp:4"].average is None
    assert not same(state.models["mlp:4"], server.models["mlp:4"])
    assert all(student.loss.last < student.loss.first for student in facts.students.values())
    previous, _ = replace(fuse, students=PerArchitecture("previous"), distiller=SGD(lr=1e-9, steps=1, batch_size=32))(
        server, updates, ctx
    )
    for arch, model in server.models.items():
        for name, p in model.params.items():
            torch.testing.assert_close(previous.models[arch].params[name], p)


def test_clients_whose_outputs_are_not_finite_cost_only_themselves(round) -> None:
    ctx, server, updates = round
    broken = with_value(replace(updates[1], client=9), 3e38)  # finite parameters, infinite outputs
    ensemble = Union(Samples(DiagonalGaussian(), 2), Clients())
    fuse = Distilled(ensemble=ensemble, distiller=QUICK)
    clean, _ = fuse(server, updates, ctx)
    state, facts = fuse(server, [updates[0], broken, *updates[1:]], ctx)
    assert "client 9 gives outputs that are not finite" in facts.dropped["9"]
    assert same(state.models["mlp:8"], clean.models["mlp:8"])


def test_drop_worst_leaves_out_of_everything(round) -> None:
    ctx, server, updates = round
    flat = with_value(replace(updates[1], client=9), 0.0)  # says class 0 always
    bar = 0.5 * 3  # at half right
    clean, _ = Distilled(distiller=QUICK)(server, [u for u in updates if ok(ctx, u, 0.5)], ctx)
    for deviations in (None, 1.5):
        fuse = Distilled(distiller=QUICK, admission=DropWorst(bar, deviations))
        state, facts = fuse(server, [flat, *updates], ctx)
        assert "9" in facts.dropped
        assert same(state.models["mlp:8"], clean.models["mlp:8"])


def ok(ctx: Context, update: Update, bar: float) -> bool:
    net = ctx.nets.load(update.model).eval()
    return float((net(ctx.data.validation.x).argmax(1) == ctx.data.validation.y).double().mean()) >= bar


def test_if_all_are_dropped_the_server_keeps_its_model_and_says_so(round) -> None:
    ctx, server, updates = round
    state, facts = Distilled(distiller=QUICK, admission=DropWorst(factor=100.0))(server, updates, ctx)
    assert same(state.models["mlp:8"], server.models["mlp:8"])
    assert state.round == 1
    assert "keeps the previous models" in facts.warning
    assert len(facts.dropped) == 4


def measured(average: float | None, student: float) -> dict[str, Student]:
    before = None if average is None else Quality(validation=average)
    return {"net": Student(1, FirstAndLast(1.0, 1.0), "", before, Quality(validation=student))}


@pytest.mark.parametrize(
    ("average", "student", "ensemble", "blamed"),
    [
        (0.6, 0.6, 0.5, "the teachers are below the average"),
        (0.6, 0.6, 0.7, "the student is below its teachers"),
        (0.6, 0.5, 0.6, "the student is below its teachers"),  # the start was no candidate
        (None, 0.5, 0.6, "the student is below its teachers"),  # no client has its architecture
        (0.6, 0.6, None, "the student is below its teachers"),  # it learns the true labels
        (None, 0.6, 0.6, None),
        (0.6, 0.7, 0.5, None),
        (0.6, 0.7, 0.8, None),
        (1.0, 1.0, 1.0, None),  # there is nothing to gain
    ],
)
def test_three_rounds_without_a_gain_are_warned_of(average, student, ensemble, blamed) -> None:
    streak: dict[str, torch.Tensor] = {}
    warnings = []
    for _ in range(3):
        streak = distillation._rounds_without_gain(streak, measured(average, student), ensemble)
        warnings.append(distillation._warning(streak))
    assert warnings[:2] == [None, None]
    assert warnings[2] is None if blamed is None else warnings[2].startswith(blamed)
    streak = distillation._rounds_without_gain(streak, measured(0.6, 0.7), ensemble)
    assert streak["net"].tolist() == [0, 0]


def test_most_rounds_decide_who_is_blamed() -> None:
    streak: dict[str, torch.Tensor] = {}
    for ensemble in (0.5, 0.5, 0.7):
        streak = distillation._rounds_without_gain(streak, measured(0.6, 0.6), ensemble)
    assert streak["net"].tolist() == [3, 2]
    assert distillation._warning(streak).startswith("the teachers are below the average")


def test_a_distillation_that_gains_nothing_is_warned_of_after_three_rounds(round) -> None:
    ctx, server, updates = round
    harmful = Distilled(distiller=SGD(lr=30.0, momentum=0.0, steps=1, batch_size=32, keep_start=False), probe=0)
    state = server
    for number in range(1, 4):
        state, facts = harmful(replace(state, models=server.models), updates, ctx.at(number))
        student = facts.students["mlp:8"]
        assert student.student.validation < student.average.validation
        assert (facts.warning is None) == (number < 3)
    assert int(state.memory[STREAK]["mlp:8"][0]) == 3


def test_the_ensemble_is_measured_on_validation_data(round) -> None:
    ctx, server, updates = round
    _, facts = Distilled(distiller=QUICK)(server, updates, ctx)
    data = ctx.data.validation
    logits = torch.stack([ctx.nets.load(update.model).eval()(data.x).detach() for update in updates]).mean(0)
    assert facts.ensemble.validation == pytest.approx(float((logits.argmax(1) == data.y).double().mean()))


def test_without_validation_data_nothing_is_remembered() -> None:
    ctx = context(validation=0)
    server = server_of(ctx)
    state, facts = Distilled(distiller=QUICK)(server, [trained(ctx, server, k) for k in range(4)], ctx)
    assert STREAK not in state.memory
    assert facts.students["mlp:8"].reason == "all steps taken"
    with pytest.raises(FedfuseError, match="validation"):
        Distilled(distiller=QUICK, admission=DropWorst())(server, [trained(ctx, server, 0)], ctx)


@pytest.mark.parametrize("ensemble", [Clients(), Union(Clients(), Anchors(), Samples(DirichletMixture(), 2))], ids=str)
def test_updates_are_read_once_and_not_kept(ensemble: Ensemble, round) -> None:
    ctx, server, _ = round
    alive: list[weakref.ref[torch.Tensor]] = []
    most = 0

    def stream() -> Iterator[Update]:
        nonlocal most
        for client in range(4):
            gc.collect()
            most = max(most, sum(ref() is not None for ref in alive))
            update = trained(ctx, server, client, steps=1)
            alive.append(weakref.ref(next(iter(update.model.params.values()))))
            yield update
            del update

    Distilled(ensemble=ensemble, distiller=QUICK)(server, stream(), ctx)
    assert len(alive) == 4
    assert most <= 1


def test_each_teacher_runs_once_a_round(round, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, server, updates = round
    runs: list[tuple[str, int]] = []
    run = labelling.logits_of

    def watched(net: torch.nn.Module, pool: TensorPool, rows: torch.Tensor, name: str) -> torch.Tensor:
        runs.append((name, len(rows)))
        return run(net, pool, rows, name)

    monkeypatch.setattr(labelling, "logits_of", watched)
    ensemble = Union(Clients(), Anchors(), Samples(DiagonalGaussian(), 2))
    Distilled(ensemble=ensemble, distiller=AdamCosine(steps=3, batch_size=32, every=1))(server, updates, ctx)
    assert len(runs) == len({name for name, _ in runs}) == 7
    assert {rows for _, rows in runs} == {96}


def test_views_are_seen_by_teachers_and_students(round, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, server, updates = round
    monkeypatch.setattr("fedfuse.fusion.distillation.augmentation", lambda name, shape: lambda x, rng: x * 0)
    seen: list[torch.Tensor] = []
    for use in ("teacher", "student"):
        ctx.nets.scratch("mlp:8", use).register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    Distilled(distiller=SGD(steps=2, batch_size=32), views=2, probe=0)(
        server, updates, replace(ctx, data=replace(ctx.data, validation=ctx.data.validation.subset(torch.arange(0))))
    )
    assert len(seen) == 4 + 2 + 1  # the last checks that the student's outputs are finite
    assert all(bool((x == 0).all()) for x in seen)


def test_what_cannot_work_fails_before_a_client_is_asked(round) -> None:
    ctx, server, _ = round

    def stream() -> Iterator[Update]:
        raise AssertionError("a client was asked")
        yield

    without = replace(ctx, data=replace(ctx.data, pool=None))
    with pytest.raises(FedfuseError, match=r"data\.pool"):
        Distilled()(server, stream(), without)
    with pytest.raises(FedfuseError, match="first model at step 275"):
        Distilled(distiller=SWA())(server, stream(), ctx)
    with pytest.raises(FedfuseError, match="less than one batch"):
        Distilled(distiller=AdamCosine(batch_size=300))(server, stream(), ctx)


def test_peak_memory_does_not_grow_with_clients() -> None:
    """Tensor bytes alive at the end of the stream, with 3 and with 12 clients."""
    ctx = context(("mlp:64",) * 12)
    server = server_of(ctx)

    def peak(clients: int) -> int:
        seen = 0

        def stream() -> Iterator[Update]:
            nonlocal seen
            for client in range(clients):
                update = trained(ctx, server, client, steps=1)
                yield update
            gc.collect()
            held = [t for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter)]
            seen = sum(t.nbytes for t in held)

        ensemble = Union(Clients(), Anchors(), Samples(DirichletMixture(), 2), Samples(DiagonalGaussian(), 2))
        Distilled(ensemble=ensemble, distiller=QUICK)(server, stream(), ctx)
        return seen

    peak(2)  # nets that are made once
    assert peak(12) <= peak(3) * 1.02


def test_a_kept_start_is_the_average_and_the_record_says_so(round) -> None:
    ctx, server, updates = round
    ruinous = AdamCosine(lr=10.0, steps=4, batch_size=64, every=2)
    fused, facts = Distilled(distiller=ruinous)(server, updates, ctx)
    average = averages(server, updates, ctx)["mlp:8"]
    assert same(fused.models["mlp:8"], average)
    assert "the start is kept" in facts.students["mlp:8"].reason
    ruined, _ = Distilled(distiller=replace(ruinous, keep_start=False))(server, updates, ctx)
    assert not same(ruined.models["mlp:8"], average)


def test_samples_are_measured_one_by_one_beside_the_clients(round) -> None:
    ctx, server, updates = round
    union = Union(Clients(), Anchors(), Samples(DirichletMixture(), 3))
    _, facts = Distilled(ensemble=union, distiller=QUICK, probe=50)(server, updates, ctx)
    assert sum(facts.clients.confidence.count) == 4 * 50
    assert sum(facts.samples.confidence.count) == 3 * 50  # not the average, which no sample is
    assert sum(facts.ensemble.confidence.count) == 50
    assert sum(facts.samples.confidence.right) == pytest.approx(3 * 50 * facts.samples.mean)
    assert facts.samples.worst <= facts.samples.mean <= facts.samples.best
    _, none = Distilled(distiller=QUICK)(server, updates, ctx)
    assert none.samples is None
    _, off = Distilled(ensemble=union, distiller=QUICK, probe=0)(server, updates, ctx)
    assert off.samples is off.clients is None

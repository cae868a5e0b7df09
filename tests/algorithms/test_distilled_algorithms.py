"""The papers' functions: their defaults, their presets, and how they reduce to each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.fedavgm import fedavgm
from fedfuse.algorithms.fedbe import fedbe
from fedfuse.algorithms.feddf import feddf
from fedfuse.algorithms.fedprox import fedprox
from fedfuse.algorithms.one_shot import one_shot
from fedfuse.algorithms.v_distillation import v_distillation
from fedfuse.facts import Facts
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
    MeanLogits,
    MeanProbs,
    Momentum,
    Posterior,
    Samples,
    Union,
)
from fedfuse.types import FedfuseError
from tests.fusion.cases import context, same, server_of, trained


def test_feddf_has_the_papers_defaults() -> None:
    assert feddf().fuse == Distilled(
        ensemble=Clients(),
        target=MeanLogits(),
        distiller=AdamCosine(lr=1e-3, steps=10_000, batch_size=128, clip=5.0, patience=1000, every=100),
    )


def test_fedbe_has_the_papers_defaults() -> None:
    assert fedbe().fuse == Distilled(
        ensemble=Union(Clients(), Anchors(), Samples(DiagonalGaussian(), 10)),
        target=MeanProbs(sharpen=2.0),
        distiller=SWA(lr=1e-3, cycle=25, swa_start=250, epochs=20, batch_size=128, momentum=0.9, augment="crop:2+flip"),
    )
    assert SWA().rate(25) == pytest.approx(4e-4)


def test_presets_of_the_released_code() -> None:
    be, df = fedbe(preset="official-code").fuse, feddf(preset="official-code", drop_worst=True).fuse
    assert isinstance(be, Distilled)
    assert isinstance(df, Distilled)
    assert be.ensemble == Union(Clients(), Anchors(), Samples(DeltaGaussian(0.1, 1e-5), 10))
    assert isinstance(be.distiller, SWA)
    assert (be.distiller.rate(25), be.distiller.swa_start, be.distiller.per_class) == (1e-3, 500, True)
    assert df.views == 4
    assert df.admission == DropWorst(deviations=1.5)


def test_they_are_laid_over_other_algorithms() -> None:
    for make in (feddf, fedbe, v_distillation):
        algorithm = make(over=fedprox(mu=0.1))
        assert algorithm.local == fedprox(mu=0.1).local
        momentum = make(over=fedavgm(beta=0.5)).fuse
        assert isinstance(momentum, Distilled)
        assert momentum.aggregate == Momentum(0.5)
    assert feddf(over=fedbe()).fuse == feddf().fuse


def test_over_something_that_does_not_average() -> None:
    own = replace(fedavg(), name="own", fuse=lambda server, updates, ctx: (server, Facts()))
    with pytest.raises(FedfuseError, match="own does not average"):
        feddf(over=own)


def test_fedbe_without_samples_and_anchor_is_feddf_bit_for_bit() -> None:
    ctx = context()
    server = server_of(ctx)
    updates = [trained(ctx, server, client) for client in range(4)]
    as_feddf = fedbe(samples=0, anchor=False, target=MeanLogits(), distiller=AdamCosine(steps=150, batch_size=32))
    ours, _ = as_feddf.fuse(server, updates, ctx)
    theirs, _ = feddf(steps=150, batch_size=32).fuse(server, updates, ctx)
    assert same(ours.models["mlp:8"], theirs.models["mlp:8"])


@pytest.mark.parametrize("settings", [{"posterior": DirichletMixture()}, {"scale": 2.0}, {"alpha": 0.5}])
def test_settings_of_a_posterior_that_draws_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(FedfuseError, match="samples = 0 draws no model"):
        fedbe(samples=0, **settings)


def test_a_class_is_not_a_part() -> None:
    with pytest.raises(FedfuseError, match=r"SGD is a class: give a part, as in SGD\(\)"):
        feddf(distiller=SGD)  # type: ignore[arg-type]


@pytest.mark.parametrize("posterior", [DiagonalGaussian(), DirichletMixture(), DeltaGaussian()])
def test_fedbe_runs_with_each_posterior(posterior: Posterior) -> None:
    ctx = context(("mlp:8:bn",) * 4)
    server = server_of(ctx)
    updates = [trained(ctx, server, client) for client in range(4)]
    algorithm = fedbe(posterior=posterior, samples=3, batch_size=32, cycle=4, swa_start=8, epochs=2, augment="none")
    state, facts = algorithm.fuse(server, updates, ctx)
    assert facts.teachers == 4 + 1 + 3
    assert facts.students["mlp:8:bn"].reason.startswith("all steps taken, 2 models averaged")
    assert all(torch.isfinite(t).all() for t in state.models["mlp:8:bn"].buffers.values())


def test_v_distillation_is_sgd_on_the_clients() -> None:
    fuse = v_distillation().fuse
    assert isinstance(fuse, Distilled)
    assert fuse.ensemble == Clients()
    assert fuse.target == MeanProbs(2.0)
    assert fuse.distiller == SGD(lr=1e-3, epochs=20, batch_size=128, momentum=0.9, augment="crop:2+flip")


def test_one_shot_measures_the_ensemble_on_all_of_the_test_set_and_has_one_round() -> None:
    ctx = context()
    server = server_of(ctx)
    updates = [trained(ctx, server, client) for client in range(4)]
    algorithm = one_shot(batch_size=32, augment="none")
    _, facts = algorithm.fuse(server, updates, ctx)
    logits = torch.stack([ctx.nets.load(u.model).eval()(ctx.data.test.x) for u in updates])
    right = torch.softmax(logits, 2).mean(0).argmax(1) == ctx.data.test.y
    assert facts.ensemble.accuracy == pytest.approx(float(right.double().mean()))
    with pytest.raises(FedfuseError, match=r"run\.rounds = 1"):
        algorithm.check(replace(ctx, rounds=2))
    algorithm.check(replace(ctx, rounds=1))


def test_the_student_gains_on_the_average_of_unlike_clients() -> None:
    """Each client has seen two of three classes; their average is poor, their ensemble is not."""
    ctx = context(("mlp:8",) * 3, validation=100)
    y = ctx.data.train.y
    parts = tuple(torch.nonzero(y != k).flatten() for k in range(3))
    ctx = replace(ctx, data=replace(ctx.data, parts=parts))
    server = server_of(ctx)
    updates = [trained(ctx, server, client, steps=200) for client in range(3)]
    _, facts = feddf(lr=0.01, steps=300, batch_size=32).fuse(server, updates, ctx)
    learnt = facts.students["mlp:8"]
    assert learnt.student.accuracy > facts.clients.best
    assert learnt.student.nll < learnt.average.nll + 0.02

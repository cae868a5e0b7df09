"""The pool's true labels: only where they are asked for, and only where there are any."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

import fedfuse
from fedfuse import rng
from fedfuse.algorithm import check_parts
from fedfuse.algorithms import ds_fl, fedbe, v_distillation
from fedfuse.context import Context
from fedfuse.data.federation import Federation, federate
from fedfuse.data.partition import iid
from fedfuse.data.pool import POOLS, split
from fedfuse.data.sources import load
from fedfuse.data.sources.location import Location
from fedfuse.fusion import SGD, AdamCosine, Distilled, GroundTruth
from fedfuse.types import FedfuseError
from tests.fusion.cases import blobs, context, same, server_of, trained

QUICK = SGD(lr=0.1, epochs=20, batch_size=64)


def with_truth(ctx: Context) -> Context:
    """The context whose pool, 256 blobs, has lost its labels to the federation's `pool_truth`."""
    pool = blobs(256, 4)
    data = replace(ctx.data, pool=replace(pool, y=torch.zeros_like(pool.y)), pool_truth=pool.y)
    return replace(ctx, data=data)


def test_labels_by_hand() -> None:
    ctx = context()
    ctx = replace(ctx, data=replace(ctx.data, pool_truth=torch.tensor([2, 0, 1])))
    rows = torch.tensor([7, 5])
    labels = GroundTruth().labels(rows, torch.tensor([0, 1]), ctx)
    assert labels.probs.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert labels.floor.tolist() == [0, 0]  # so the loss is the cross entropy
    assert torch.equal(labels.rows, rows)


@pytest.mark.parametrize("views", [0, 2])
def test_the_student_learns_the_truth_and_not_its_teachers(views: int) -> None:
    ctx = with_truth(context())
    server = server_of(ctx)
    hopeless = [trained(ctx, server, client, steps=0) for client in range(4)]
    taught = Distilled(target=GroundTruth(), distiller=QUICK, views=views, view="none")
    _, facts = taught(server, hopeless, ctx)
    assert facts.teachers == 0
    assert facts.students["mlp:8"].student.accuracy > facts.clients.best + 0.2  # type: ignore[union-attr]
    assert facts.students["mlp:8"].student.accuracy > 0.7  # type: ignore[union-attr,operator]
    wrong = replace(ctx, data=replace(ctx.data, pool_truth=(ctx.data.pool_truth + 1) % 3))  # type: ignore[operator]
    _, misled = taught(server, hopeless, wrong)
    assert misled.students["mlp:8"].student.accuracy < 0.3  # type: ignore[union-attr,operator]


def test_without_it_the_truth_changes_nothing() -> None:
    ctx = context()
    ctx = replace(ctx, data=replace(ctx.data, pool=replace(blobs(256, 4), y=torch.zeros(256, dtype=torch.int64))))
    server = server_of(ctx)
    updates = [trained(ctx, server, client) for client in range(4)]
    plain = Distilled(distiller=AdamCosine(steps=10, batch_size=64))
    one, _ = plain(server, updates, ctx)
    other, _ = plain(server, updates, with_truth(ctx))
    assert same(one.models["mlp:8"], other.models["mlp:8"])


def test_a_split_keeps_the_labels_apart(tmp_path: Path) -> None:
    digits = load("digits")
    pool = partial(split, location=Location(), size=100, use=40)
    made = federate(digits, clients=3, scheme=iid, pool=pool, validation=0)
    assert made.pool is not None
    assert made.pool_truth is not None
    assert made.pool.y.tolist() == [0] * 40
    rows = {tuple(x.flatten().tolist()): int(y) for x, y in zip(digits.train.tensor, digits.train.y, strict=True)}
    assert [rows[tuple(x.flatten().tolist())] for x in made.pool.tensor] == made.pool_truth.tolist()
    # Neither what other processes open nor the fingerprint contains them.
    made.save(tmp_path / "federation")
    assert Federation.open(tmp_path / "federation").pool_truth is None
    assert replace(made, pool_truth=None).fingerprint == made.fingerprint


def test_other_pools_have_none() -> None:
    digits = load("digits")
    for kind, settings in {"noise": {"size": 10}, "source": {"name": "digits", "size": 10}}.items():
        assert POOLS[kind](digits.train, rng.generator(0, "pool"), Location(), **settings).truth is None


@pytest.mark.parametrize("make", [fedbe, v_distillation])
def test_a_pool_without_true_labels_is_refused_before_the_run(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FedfuseError, match=r'set data\.pool\.kind = "split"'):
        check_parts(make(target=GroundTruth(), distiller=QUICK), context())
    check_parts(make(target=GroundTruth(), distiller=QUICK), with_truth(context()))


def test_where_no_pool_of_a_server_is_labelled_it_is_refused() -> None:
    with pytest.raises(FedfuseError, match="the target ground-truth takes no teachers"):
        check_parts(ds_fl(target=GroundTruth(), rows=64, batch_size=32), with_truth(context()))
    net = torch.nn.Linear(4, 3)
    with pytest.raises(FedfuseError, match="the target ground-truth takes no teachers"):
        fedfuse.fuse([net], torch.nn.Linear(4, 3), torch.randn(64, 4), target=GroundTruth(), distiller=QUICK)


def test_it_runs_by_name(tmp_path: Path) -> None:
    made = fedfuse.load(
        "digits",
        {
            "algorithm.name": "v-distillation", "algorithm.target": "ground-truth", "algorithm.augment": "none",
            "run.rounds": 1, "run.workers": 1, "local.epochs": 1,
        },
    )  # fmt: skip
    run = fedfuse.run(made, tmp_path / "run")
    assert run.final.facts.teachers == 0
    assert run.final.facts.students

"""`fuse` with data frames: columns by name, labels by name, and classifiers that were fitted on frames."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from fedfuse import FedfuseError, fuse
from fedfuse.fusion import AdamCosine
from fedfuse.in_hand.frames import columns_of, numbers_of
from fedfuse.testing import bits
from fedfuse.types import Snapshot

QUICK = AdamCosine(steps=20, batch_size=32, every=10)
COLUMNS = ("age", "height", "weight", "pulse")
LABELS = pd.Series(np.arange(240) % 2, index=range(1000, 1240))
NAMES = LABELS.map({0: "sick", 1: "well"})
FRAME = pd.DataFrame(
    np.random.default_rng(0).normal(size=(240, 4)) + np.outer(LABELS, [2, -1, 0, 1]), LABELS.index, list(COLUMNS)
)


def student() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def fitted(columns: list[str], y: pd.Series) -> LogisticRegression:
    return LogisticRegression().fit(FRAME[columns], y)


def test_a_frame_is_its_array() -> None:
    teacher = LogisticRegression().fit(FRAME.to_numpy(), LABELS)
    held_out = (FRAME[:50], LABELS[:50])
    of_frame = fuse(teacher, student(), FRAME, distiller=QUICK, validation=held_out)
    of_array = fuse(
        teacher, student(), FRAME.to_numpy(), distiller=QUICK, validation=tuple(x.to_numpy() for x in held_out)
    )
    assert bits(Snapshot.of("net", of_frame.model)) == bits(Snapshot.of("net", of_array.model))
    assert of_frame.validation == of_array.validation


def test_a_classifier_finds_its_columns_by_name_and_says_nothing_of_it() -> None:
    few = ["pulse", "age"]  # another order, and not all
    scaled = make_pipeline(ColumnTransformer([("scaled", StandardScaler(), ["age"])], remainder="passthrough"))
    by_name = make_pipeline(scaled, LogisticRegression()).fit(FRAME[few], LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fused = fuse([fitted(few, LABELS), by_name], student(), FRAME, distiller=QUICK, validation=(FRAME, LABELS))
    for teacher, quality in zip((fitted(few, LABELS), by_name), fused.teachers, strict=True):
        assert quality.accuracy == pytest.approx(teacher.score(FRAME[few], LABELS))


def test_validation_has_the_columns_of_the_pool_in_its_order() -> None:
    turned = FRAME[list(reversed(COLUMNS))]
    assert turned.to_numpy()[0, 0] != FRAME.to_numpy()[0, 0]
    given = [
        fuse(fitted(list(COLUMNS), LABELS), student(), FRAME, distiller=QUICK, validation=(x, LABELS))
        for x in (FRAME, turned)
    ]
    assert given[0].validation == given[1].validation


def test_labels_by_name() -> None:
    teacher = fitted(list(COLUMNS), NAMES)
    known = ("well", "sick")  # not the alphabet's order
    fused = fuse(teacher, student(), FRAME, labels=known, distiller=QUICK, validation=(FRAME, NAMES))
    assert fused.teachers[0].accuracy == pytest.approx(teacher.score(FRAME, NAMES))


def test_columns_of_any_number_and_name() -> None:
    frame = pd.DataFrame({0: [1, 2], "flag": [True, False], "x": np.float32([0.5, 1.5])})
    assert columns_of(frame) == ("0", "flag", "x")
    assert numbers_of(frame, "the pool").tolist() == [[1, 1, 0.5], [2, 0, 1.5]]
    assert numbers_of(frame, "the pool", ("x", "0")).tolist() == [[0.5, 1], [1.5, 2]]
    assert columns_of(frame.to_numpy()) is None


@pytest.mark.parametrize(
    ("pool", "validation", "message"),
    [
        (FRAME.assign(sex="f"), None, r"the pool's column 'sex' holds \w+, no numbers: encode it"),
        (FRAME.drop(columns="age"), None, "the pool of teacher 1 has no column 'age', but height, weight, pulse"),
        (FRAME.set_axis([*COLUMNS[:3], "age"], axis=1), None, "the pool has two columns 'age'"),
        (FRAME.assign(age=np.nan), None, "the pool holds values that are not finite"),
        (FRAME, (FRAME.drop(columns="age"), LABELS), "validation has no column 'age', but height"),
        (FRAME, (FRAME, NAMES), "validation's labels are names, as 'sick': state labels="),
        (FRAME[:0], None, "the pool is empty"),
        (FRAME, FRAME, "validation has no labels"),
    ],
)
def test_what_a_frame_cannot_be(pool: pd.DataFrame, validation: object, message: str) -> None:
    wide = nn.Linear(pool.shape[1], 2)
    with pytest.raises(FedfuseError, match=message):
        fuse(fitted(list(COLUMNS), LABELS), wide, pool, distiller=QUICK, validation=validation)


def test_a_label_that_no_class_has() -> None:
    with pytest.raises(FedfuseError, match="validation has the label 'well', and the student's are sick, dead"):
        fuse(
            fitted(list(COLUMNS), LABELS), student(), FRAME, labels=("sick", "dead"), distiller=QUICK,
            validation=(FRAME, NAMES),
        )  # fmt: skip

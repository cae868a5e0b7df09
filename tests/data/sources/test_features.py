"""Tables of numbers and categories: what is read as what, statistics, and errors that name column, rows and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from fedfuse.config.experiment import Experiment
from fedfuse.data.sources import load
from fedfuse.runs.setup import check, load_federation
from fedfuse.types import FedfuseError

ROWS = 60


def patients(**changes: Any) -> pd.DataFrame:
    """Ages, pressures, a category and the hospital of patients, and whether they are ill."""
    columns = {
        "age": [20 + n * 7 % 50 for n in range(ROWS)],
        "pressure": [100 + n * 3 % 40 + 0.5 for n in range(ROWS)],
        "group": ["low", "high", "not known"] * (ROWS // 3),
        "hospital": [f"h{n * 7 % 4}" for n in range(ROWS)],
        "ill": ["no", "yes"] * (ROWS // 2),
    }
    return pd.DataFrame({**columns, **changes})


@pytest.fixture
def stored(tmp_path: Path) -> Callable[..., str]:
    def write(table: pd.DataFrame, name: str = "patients.csv", **how: Any) -> str:
        file = tmp_path / name
        table.to_parquet(file) if file.suffix == ".parquet" else table.to_csv(file, index=False, **how)
        return str(file)

    return write


@pytest.mark.parametrize("name", ["patients.csv", "patients.parquet"])
def test_numbers_as_they_are_and_categories_one_hot(stored: Callable[..., str], name: str) -> None:
    table = patients()
    table["group"] = table["group"].astype("category")
    data = load(stored(table, name), arguments={"label": "ill", "columns": ("hospital",)})
    assert data.labels == ("no", "yes")
    x = torch.cat([data.train.tensor, data.test.tensor])
    assert (x.shape, x.dtype) == ((ROWS, 5), torch.float32)
    assert sorted(x[:, 0].tolist()) == sorted(table["age"])
    assert x[:, 2:].sum(0).tolist() == [20, 20, 20]  # high, low, not known
    assert data.train.columns["hospital"].unique().tolist() == [0, 1, 2, 3]
    numbers = data.train.tensor[:, :2]
    assert torch.allclose(data.train.mean[:2], numbers.mean(0))
    assert torch.allclose(data.train.std[:2], numbers.std(0, correction=0))
    assert data.train.mean[2:].tolist() == [0, 0, 0]
    assert data.train.std[2:].tolist() == [1, 1, 1]
    assert torch.equal(data.test.mean, data.train.mean)


def test_features_may_be_named_and_a_semicolon_separates_too(stored: Callable[..., str]) -> None:
    file = stored(patients(), sep=";")
    data = load(file, arguments={"label": "ill", "features": ("pressure", "age")})
    assert data.train.tensor[:, 0].max() > 100
    assert set(data.train.columns) == {"group", "hospital"}


def test_the_label_is_the_only_column_of_classes(stored: Callable[..., str]) -> None:
    iris = pd.DataFrame({"width": np.arange(30) / 7, "length": np.arange(30) / 9, "species": ["a", "b"] * 15})
    assert load(stored(iris)).labels == ("a", "b")
    with pytest.raises(FedfuseError, match=r"may be the label, age, group, hospital, ill: name one with data\.label"):
        load(stored(patients()))


def test_a_column_is_the_client_and_no_feature(stored: Callable[..., str]) -> None:
    experiment = Experiment(
        data={"source": stored(patients()), "label": "ill", "pool": {"kind": "split", "size": 10}},
        partition={"scheme": "column", "column": "hospital", "clients": 4},
        algorithm={"name": "feddf"},
    )
    federation = load_federation(experiment)
    assert federation.train.shape == (5,)
    for k in range(4):
        assert len(federation.train.columns["hospital"][federation.client(k)].unique()) == 1
    setup = check(experiment)
    assert dict(setup.experiment.models.weights) == {"mlp:64-32": 1.0}
    named = experiment.with_settings({"data.features": ["age", "hospital"]})
    assert load_federation(named).train.shape == (5,)  # age, and four hospitals


def test_another_table_as_the_pool_is_standardised_like_the_training_data(stored: Callable[..., str]) -> None:
    arguments = {"label": "ill", "features": ("age", "group")}
    other = stored(patients(age=[90] * ROWS), "other.csv")
    pool = {"kind": "source", "name": other, "arguments": arguments}
    data = load_federation(Experiment(data={"source": stored(patients()), **arguments, "pool": pool}))
    assert data.pool is not None
    assert torch.equal(data.pool.mean, data.train.mean)
    assert float(data.pool.batch(torch.tensor([0]))[0, 0]) > 2  # type: ignore[index]  # far above the mean age


@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        ({"age": [None, None, *range(58)]}, {}, "'age' has no value in 2 of 60 rows (the first is row 1): fill them"),
        ({"group": ["low", ""] * 30}, {}, "column 'group' has no value in 30 of 60 rows (the first is row 2)"),
        ({"age": [*map(str, range(58)), "?", "2"] * 1}, {}, "mostly"),
        ({"pressure": [float("inf"), *range(59)]}, {}, "'pressure' holds infinity, or a number too large, in row 1"),
        ({"id": range(5, 65)}, {}, "'id' numbers the rows: name the columns to use in data.features"),
        ({"when": pd.Timestamp("2026-01-01")}, {}, "column 'when' holds"),
        ({}, {"features": ("ill", "age")}, "data.features names the label 'ill'"),
        ({}, {"features": ("agee",)}, "no feature column 'agee', it has age (integer), pressure (number)"),
        ({}, {"features": ("age",), "text": "group"}, "text and features are both set"),
        ({}, {"label": "pressure"}, "which is no class"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_feature_is_named(
    stored: Callable[..., str], changes: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    if message == "mostly":  # more different values than categories may have, and one cell that is no number
        table = pd.concat([patients(age=[str(n + 60 * k) for n in range(ROWS)]) for k in range(3)], ignore_index=True)
        table.loc[4, "age"], message = "?", "column 'age' holds '?' in row 5, which is no number: correct it, or name"
    else:
        table = patients(**changes)
    with pytest.raises(FedfuseError) as error:
        load(stored(table), arguments={"label": "ill", **arguments})
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_texts_stay_texts(stored: Callable[..., str]) -> None:
    """A column of sentences is the input, whatever numbers stand beside it; short names beside numbers are not."""
    sentences = [f"a film of {n} and more" for n in range(ROWS)]
    film = pd.DataFrame({"review": sentences, "score": np.arange(ROWS) / 7, "stars": [1, 2] * 30})
    assert load(stored(film)).train.texts is not None
    names = pd.DataFrame({"surname": [f"name{n}" for n in range(ROWS)], "year": range(0, 120, 2), "label": [0, 1] * 30})
    assert load(stored(names)).train.texts is not None
    assert load(stored(patients()[["age", "group", "ill"]]), arguments={"label": "ill"}).train.texts is None

"""Bad inputs: settings and data that cannot work. `check` says so, or the run works; no run is refused later."""

from __future__ import annotations

import math
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedfuse
from fedfuse.algorithms import ALGORITHMS
from fedfuse.dotted import flatten
from fedfuse.runs.setup import check
from tests.doubles import brief_settings
from tests.faults.tally import Tally, WrongError

VALUES: tuple[Any, ...] = (
    math.inf, -math.inf, math.nan, True, False, -1, 0, 0.5, 1, 3, -4, 2.0, 1_000_000, "", "x", "none", "nan", "\0", "é",
    "../..", "a:b", "mlp:", "mlp:0", "mlp:100000000000", [], [1], ["x"], [[[]]], {}, {"a": 1}, {"name": "x"},
    {"name": 5},
)  # fmt: skip
HUGE: tuple[Any, ...] = (1e300, -1e300, 2**70, 10**400, "9" * 5000, [0] * 1000)  # what takes them may run for years
NOT_RUN = ("run.workers", "run.track", "run.threads", "run.rounds", "name")  # accepted values cost processes or time


def settings(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """A setting with a bad value, for every key of every algorithm's experiment. What `check` accepts is run."""
    tally, draw = Tally("bad inputs: settings"), random.Random(seed)
    bases = [_base(name) for name in ALGORITHMS]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(500 * amount):
            base = draw.choice(bases)
            key, value = draw.choice([*flatten(base.resolved())]), draw.choice((*VALUES, *HUGE))
            with tally.trying(f"seed {seed}, {number}: {base.algorithm.name}: {key} = {str(value)[:60]!r}"):
                experiment = base.with_settings({key: value})
                check(experiment)
                if value not in HUGE and value != 1_000_000 and key not in NOT_RUN:
                    _run(experiment, Path(folder) / str(number))
            progress()
    return tally


def _base(name: str) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={
            "source": "synthetic", "examples": 400, "classes": 3, "shape": [4], "validation": 0.1,
            "pool": {"kind": "split", "size": 100},
        },
        partition={"clients": 4},
        models={"clients": "mlp:8", **({"server": "mlp:16"} if name == "fed-et" else {})},
        local={"steps": 1, "batch_size": 8},
        algorithm={"name": name, **brief_settings(name)},
        run={"rounds": 1, "workers": 1},
    )  # fmt: skip


def _run(experiment: fedfuse.Experiment, out: Path) -> None:
    try:
        fedfuse.run(experiment, out)
    except fedfuse.FedfuseError as error:
        raise WrongError(f"check accepts it, and the run refuses it: {error}") from error


def _sound(draw: np.random.Generator) -> dict[str, Any]:
    y = np.arange(60) % 3
    x = (2 * np.eye(3, 4)[y] + draw.normal(size=(60, 4))).astype(np.float32)
    return {"x": x, "y": y, "x_test": x[:30].copy(), "y_test": y[:30].copy()}


def _put(key: str, value: Any) -> Callable[[dict[str, Any], np.random.Generator], None]:
    def put(data: dict[str, Any], draw: np.random.Generator) -> None:
        data[key] = data[key].astype(np.float64) if data[key].dtype == np.float32 else data[key]
        data[key].reshape(-1)[draw.integers(data[key].size)] = value

    return put


def _set(key: str, make: Callable[[Any], Any]) -> Callable[[dict[str, Any], np.random.Generator], None]:
    def change(data: dict[str, Any], draw: np.random.Generator) -> None:
        data[key] = make(data[key])

    return change


DATA: dict[str, Callable[[dict[str, Any], np.random.Generator], None]] = {
    **{f"{value} in {key}": _put(key, value) for key in ("x", "x_test") for value in (math.nan, math.inf, 1e300)},
    "a gap in the labels": _put("y", 5),
    "a negative label": _put("y", -1),
    "a label only in the test set": _put("y_test", 3),
    "one class": _set("y", np.zeros_like),
    "no test examples": _set("x_test", lambda x: x[:0]),
    "no training examples": _set("x", lambda x: x[:0]),
    "strings": _set("x", lambda x: x.astype(str)),
    "objects": _set("x", lambda x: x.astype(object)),
    "labels that are strings": _set("y", lambda y: y.astype(str)),
    "labels that are fractions": _set("y", lambda y: y + 0.5),
    "one label less": _set("y", lambda y: y[:-1]),
    "another shape": _set("x_test", lambda x: x[:, :2]),
    "complex numbers": _set("x", lambda x: x.astype(complex)),
    "dates": _set("x", lambda x: x.astype("datetime64[s]")),
    "None": _set("x", lambda x: None),
    "a single number": _set("x", lambda x: 5.0),
    "one number per example": _set("x", lambda x: x[:, 0]),
    "no number per example": _set("x", lambda x: x[:, :0]),
    "masked values": _set("x", lambda x: np.ma.masked_array(x, mask=x > 0)),
    "a sparse tensor": _set("x", lambda x: torch.from_numpy(x).to_sparse()),
    "a tensor without values": _set("x", lambda x: torch.from_numpy(x).to("meta")),
    "labels that are complex": _set("y", lambda y: y + 0j),
    "a huge label": _put("y", 2**40),
    "ragged rows": _set("x", lambda x: [[1.0], [1.0, 2.0]]),
    "no dimensions": _set("y", lambda y: np.array(3)),
}


def _text(draw: np.random.Generator) -> dict[str, Any]:
    ids, y = draw.integers(0, WORDS, (60, 6)), np.arange(60) % 3
    tokens = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    return {"x": tokens, "y": y, "x_test": {n: t[:30].copy() for n, t in tokens.items()}, "y_test": y[:30].copy()}


def _in(key: str, name: str, make: Callable[[Any], Any]) -> Callable[[dict[str, Any], np.random.Generator], None]:
    def change(data: dict[str, Any], draw: np.random.Generator) -> None:
        data[key][name] = make(data[key][name])

    return change


def _one(value: Any) -> Callable[[Any], Any]:
    """The array with `value` in one place."""

    def put(array: Any) -> Any:
        array = array.astype(float) if isinstance(value, float) else array.copy()
        array[17, 3] = value
        return array

    return put


WORDS = 20
MAPPINGS: dict[str, Callable[[dict[str, Any], np.random.Generator], None]] = {
    **{
        f"token {value} in {key}": _in(key, "input_ids", _one(value))
        for key in ("x", "x_test")
        for value in (-1, WORDS, 2**62, math.nan)
    },
    "a mask with NaN": _in("x", "attention_mask", _one(math.nan)),
    "a mask with infinity": _in("x_test", "attention_mask", _one(math.inf)),
    "tokens as fractions": _in("x", "input_ids", lambda ids: ids + 0.5),
    "tokens as text": _in("x", "input_ids", lambda ids: ids.astype(str)),
    "tokens as complex numbers": _in("x", "input_ids", lambda ids: ids + 0j),
    "a shorter mask": _in("x", "attention_mask", lambda mask: mask[:-1]),
    "a narrower mask": _in("x", "attention_mask", lambda mask: mask[:, :-1]),
    "an input that the net does not take": _set("x", lambda x: {**x, "other": x["input_ids"]}),
    "another input in the test set": _set("x_test", lambda x: {**x, "other": x["input_ids"]}),
    "no inputs": _set("x", lambda x: {}),
    "rows of several lengths": _in("x", "input_ids", lambda ids: [[1], [1, 2]]),
    "None for tokens": _in("x", "input_ids", lambda ids: None),
}


class Words(nn.Module):
    """The mean of embeddings."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(WORDS, 4), nn.Linear(4, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head((self.embedding(input_ids) * attention_mask[..., None]).mean(1))


def words(classes: int, shape: tuple[int, ...]) -> nn.Module:
    return Words(classes)


class Raises:
    """Data functions that do not return data."""

    @staticmethod
    def error() -> Any:
        raise KeyError("column")

    @staticmethod
    def leave() -> Any:
        sys.exit("no data today")

    @staticmethod
    def nothing() -> Any:
        return None


def data(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Arrays that cannot teach: each must be refused."""
    tally = Tally("bad inputs: data")
    for number in range(2 * amount):
        for what, spoil in (DATA | MAPPINGS).items():
            draw = np.random.default_rng((seed, number))
            arrays = _sound(draw) if what in DATA else _text(draw)
            with np.errstate(all="ignore"):
                spoil(arrays, draw)
            if what == "no test examples":
                arrays["y_test"] = arrays["y_test"][:0]
            if what == "no training examples":
                arrays["y"] = arrays["y"][:0]
            with tally.trying(f"seed {seed}, {number}: {what}"):
                given = (arrays["x"], arrays["y"]), (arrays["x_test"], arrays["y_test"])
                _check(given, "mlp:4" if what in DATA else "tests.faults.inputs:words")
                raise WrongError("accepted")
            progress()
    for name in ("error", "leave", "nothing"):
        with tally.trying(f"a data function: {name}"):
            _check(f"tests.faults.inputs:{name}")
            raise WrongError("accepted")
    return tally


error, leave, nothing = Raises.error, Raises.leave, Raises.nothing


def _check(source: Any, model: str = "mlp:4") -> None:
    check(
        fedfuse.Experiment(
            data={"source": source, "validation": 0},
            partition={"clients": 2},
            models=model,
            local={"steps": 1, "batch_size": 8},
            run={"rounds": 1, "workers": 1},
        )
    )

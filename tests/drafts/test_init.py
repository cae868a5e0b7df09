"""`fedfuse init`: what it sees, and that what it writes runs as it stands, for several kinds and sizes of data."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.command_line import CommandLine, CommandResult
from tests.data.texts.small_texts import write_csv
from tests.docs.pages import ROOT, blocks

SHORT = ("--set", "run.rounds=1", "--set", "local.epochs=1", "--set", "run.workers=1", "--no-report", "--out", "run")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def photos(each: int) -> str:
    """Photographs of different sizes in three folders."""
    draw = np.random.default_rng(0)
    for number, name in enumerate(("cat", "dog", "owl")):
        Path("photos", name).mkdir(parents=True)
        for row in range(each):
            height, width = draw.integers(20, 60, 2)
            pixels = np.clip(draw.normal([60 + 60 * (n == number) for n in range(3)], 40, (height, width, 3)), 0, 255)
            Image.fromarray(pixels.astype(np.uint8)).save(f"photos/{name}/{row:03}.jpg")
    return "./photos"


def patients(rows: int) -> str:
    """A table with a number for each row, gaps, categories, hospitals and string labels."""
    draw = np.random.default_rng(1)
    ill = draw.integers(2, size=rows)
    pd.DataFrame({
        "id": range(rows), "age": draw.integers(20, 80, rows) + 9 * ill,
        "pressure": draw.normal(120, 9, rows) + 9 * ill,
        "weight": np.where(draw.random(rows) < 0.1, np.nan, 70.0), "group": draw.choice(["low", "high"], rows),
        "hospital": draw.choice(["a", "b", "c"], rows), "diagnosis": np.where(ill, "yes", "no"),
    }).to_csv("patients.csv", index=False)  # fmt: skip
    return "patients.csv"


def parquet(rows: int) -> str:
    draw = np.random.default_rng(2)
    kind = draw.integers(4, size=rows)
    columns = {f"x{n}": draw.normal(kind, 1.0) for n in range(3)}
    pd.DataFrame({**columns, "label": kind}).to_parquet("many.parquet")
    return "many.parquet"


def sound(result: CommandResult) -> str:
    assert result.code == 0, result.text
    return " ".join(result.text.split())


def runs(cli: CommandLine, file: str) -> None:
    sound(cli.here("check", file))
    steps = tomllib.loads(Path(file).read_text())["algorithm"]["steps"]
    fewer = ("--set", f"algorithm.steps={min(20, steps)}")
    sound(cli.here("run", file, *SHORT, *fewer))


def test_180_photographs(cli: CommandLine) -> None:
    text = sound(cli.here("init", photos(60), "--out", "mine.toml"))
    assert "144 for training, 36 for tests" in text
    assert "3 (cat, dog, owl), 48 of each" in text
    written = tomllib.loads(Path("mine.toml").read_text())
    assert written["data"]["size"] == 32
    assert (written["algorithm"]["name"], written["algorithm"]["batch_size"]) == ("feddf", 16)
    assert written["partition"]["clients"] == 5
    runs(cli, "mine.toml")
    again = cli.here("init", "./photos", "--out", "mine.toml")
    assert (again.code, "mine.toml already exists" in again.text) == (2, True)


def test_a_table_with_gaps_and_hospitals(cli: CommandLine) -> None:
    text = sound(cli.here("init", patients(300)))
    assert "diagnosis (by its name)" in text
    assert "'id' numbers the rows; 'weight' has no value in" in text
    assert "by 'hospital': 3 values" in text
    written = tomllib.loads(Path("experiment.toml").read_text())
    assert written["data"]["features"] == ["age", "pressure", "group"]
    assert (written["partition"]["scheme"], written["partition"]["clients"]) == ("column", 3)
    runs(cli, "experiment.toml")


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("many.parquet", ()),
        ("reviews.csv", ()),
        ("digits", ()),
        ("synthetic", ("--set", "data.examples=180000", "--set", "data.shape=[1, 4, 4]")),
    ],
)
def test_other_kinds_and_sizes(cli: CommandLine, source: str, options: tuple[str, ...]) -> None:
    parquet(2000)
    write_csv(Path("reviews.csv"), 200)
    sound(cli.here("init", source, *options))
    runs(cli, "experiment.toml")


def test_what_init_cannot_read(cli: CommandLine) -> None:
    Path("few.csv").write_text("a,label\n1.5,x\n2.5,y\n3.5,x\n4.5,y\n")
    for arguments, message in (
        (("no/such/folder",), "there is no no/such/folder"),
        (("digist",), "did you mean digits?"),
        (("few.csv",), "data.holdout = 0.2: 1 test examples for 2 classes"),
        ((parquet(100), "--client", "user"), "has no column 'user': --client names one of x0, x1, x2, label"),
        (("many.parquet", "--label", "y"), "no label column 'y'"),
        (("many.parquet", "--set", "local.lr=1"), "--set local.lr: init takes keys of the data"),
    ):
        result = cli.here("init", *arguments)
        assert result.code == 2
        assert message in " ".join(result.text.split())
        assert not Path("experiment.toml").exists()


def test_the_readmes_own_data_runs_on_180_photographs(cli: CommandLine) -> None:
    photos(60)
    (example,) = (block for block in blocks(ROOT / "README.md", "toml") if "./photos" in block)
    Path("mine.toml").write_text(example)
    for algorithm in ("fedavg", "feddf(steps=20)", "fedbe(samples=1)"):
        name = re.match(r"\w+", algorithm)
        assert name is not None
        sound(cli.here("run", "mine.toml", "-a", algorithm, *SHORT[:-1], f"run-{name[0]}"))

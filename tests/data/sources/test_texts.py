"""Tables of texts: which columns are read, natural users, and errors that name the row and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
from pyarrow import parquet

from fedfuse.data.sources import load
from fedfuse.types import FedfuseError
from tests.data.texts.small_texts import sentences, write_csv


def table(file: Path, **columns: Any) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), file)
    return str(file)


def texts_of(examples: Any) -> list[str]:
    return list(examples.texts.strings(examples.x["text"]))


def test_a_csv_with_one_text_and_names_of_classes(tmp_path: Path) -> None:
    data = load(str(write_csv(tmp_path / "reviews.csv", 100, users=9)), arguments={"text": "text"})
    texts, labels = sentences(100)
    assert data.labels == ("neg", "pos")
    assert (len(data.train), len(data.test)) == (80, 20)
    assert sorted([*texts_of(data.train), *texts_of(data.test)]) == sorted(texts)
    mood = dict(zip(texts, labels, strict=True))
    assert [data.labels[y] for y in data.train.y.tolist()] == [mood[text] for text in texts_of(data.train)]
    assert len(set(data.train.columns["user"].tolist())) == 9


def test_the_only_text_is_chosen_by_itself(tmp_path: Path) -> None:
    data = load(str(write_csv(tmp_path / "reviews.csv", 40)))
    assert data.train.texts is not None
    texts, _ = sentences(40)
    file = table(tmp_path / "numbers.parquet", review=texts, stars=[n % 3 for n in range(40)])
    assert load(file).labels == ("0", "1", "2")


def test_a_csv_may_hold_quotes_lines_and_numbers(tmp_path: Path) -> None:
    rows = 'text,label\n"one, two",a\n"a ""line""\nbreak",b\n' + "1234,a\n5678,b\n" * 8
    (tmp_path / "odd.csv").write_text(rows, encoding="utf-8-sig")
    data = load(str(tmp_path / "odd.csv"))
    both = {*texts_of(data.train), *texts_of(data.test)}
    assert both == {"one, two", 'a "line"\nbreak', "1234", "5678"}


def test_a_folder_of_csv_files_has_splits(tmp_path: Path) -> None:
    write_csv(tmp_path / "set/train.csv", 30)
    write_csv(tmp_path / "set/test.csv", 10, seed=1)
    data = load(str(tmp_path / "set"))
    assert (len(data.train), len(data.test)) == (30, 10)


def test_pairs(tmp_path: Path) -> None:
    first, labels = sentences(40)
    file = table(tmp_path / "pairs.parquet", premise=first, hypothesis=first[::-1], label=labels)
    data = load(file, arguments={"text": ("premise", "hypothesis")})
    assert data.train.texts is not None
    assert data.train.texts.pairs
    with pytest.raises(FedfuseError, match=r"several columns that may be the text, premise, hypothesis \(it has"):
        load(file)
    with pytest.raises(FedfuseError, match="text names 3 columns"):
        load(file, arguments={"text": ("premise", "hypothesis", "label")})


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        (b"text,label\ngood,1\n,0\n", {}, "text is empty in row 2"),
        (b"text,label\ngood,1\n  ,0\n", {}, "text is empty in row 2"),
        (b"text,label\ngood,1\nbad,\n", {}, "'label' is empty in row 2"),
        (b"text,label\ngood,1\nbad,nan\n", {}, "'label' is empty in row 2"),
        (b"text,label\ngood,1\nbad,0.5\n", {}, "'label' holds 0.5, which is no class"),
        (b"text,label\ngood,1\nb\xe4d,0\n", {}, "line 3: not UTF-8"),
        (b"text,label\ngood,1\nbad,0,2\n", {}, "line 3: 3 cells, and the first line names 2 columns"),
        (b'text,label\ngood,1\n"bad,0\n', {}, "line 3: unexpected end of data"),
        (b"\n", {}, "is empty: give a file with a first line"),
        (b"text,text,label\na,b,1\n", {}, "two columns 'text'"),
        (b"text,label\ngood,1\n", {"label": "mood"}, r"no label column 'mood', it has text \(string\), label"),
        (b"text,label\ngood,1\n", {"text": "label"}, "text = 'label' is the label"),
        (b"text,label\ngood,1\n", {"text": "words"}, "no text column 'words'"),
        (b"text,label\ngood,1\n", {"text": "text", "image": "text"}, "image and text are both set"),
        (b"text\ngood\nbad\n", {}, "has no label column"),
        (b"x,label\n1.5,1\n", {"image": "x"}, "has no image column"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_sentence(
    tmp_path: Path, content: bytes, arguments: dict[str, Any], words: str
) -> None:
    (tmp_path / "data.csv").write_bytes(content)
    with pytest.raises(FedfuseError, match=words) as error:
        load(str(tmp_path / "data.csv"), arguments=arguments)
    assert "\n" not in str(error.value)


def test_a_missing_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match="text is missing in row 3"):
        load(table(tmp_path / "x.parquet", text=["a", "b", None, "d"], label=[0, 1, 0, 1]))


def test_a_column_that_nobody_asked_for_may_have_gaps(tmp_path: Path) -> None:
    texts, labels = sentences(20)
    file = table(tmp_path / "x.parquet", text=texts, label=labels, age=[None, *range(19)])
    assert not load(file).train.columns
    with pytest.raises(FedfuseError, match="'age' is empty in row 1"):
        load(file, arguments={"columns": ("age",)})


def test_hidden_test_labels_leave_the_validation_split(tmp_path: Path) -> None:
    texts, _ = sentences(30)
    for split, labels in (("train", [0, 1] * 15), ("validation", [0, 1] * 15), ("test", [-1] * 30)):
        table(tmp_path / f"sst2/data/{split}-00000-of-00001.parquet", sentence=texts, label=labels, idx=range(30))
    data = load("sst2", data_dir=tmp_path)
    assert data.test.y.tolist() == [0, 1] * 15
    assert not data.train.columns
    table(tmp_path / "sst2/data/test-00000-of-00001.parquet", sentence=texts[:4], label=[0, 1, 1, 1], idx=range(4))
    assert len(load("sst2", data_dir=tmp_path).test) == 4


def test_ag_news_from_a_folder(tmp_path: Path) -> None:
    texts, _ = sentences(20)
    for split in ("train", "test"):
        table(tmp_path / f"ag_news/data/{split}-00000-of-00001.parquet", text=texts, label=[n % 4 for n in range(20)])
    assert load("ag-news", data_dir=tmp_path).train.classes == 4


def test_sent140_has_users_and_two_classes(tmp_path: Path) -> None:
    texts, _ = sentences(30)
    names = {"text": texts, "user": [f"u{n % 5}" for n in range(30)], "date": texts, "query": texts}
    table(tmp_path / "sent140/leaf_users/test-00000.parquet", **names, sentiment=[(0, 4, 2)[n % 3] for n in range(30)])
    table(tmp_path / "sent140/other/train-00000.parquet", text=texts, sentiment=[n % 2 for n in range(30)])
    data = load("sent140", data_dir=tmp_path)
    assert data.labels == ("negative", "positive")
    assert len(data.train) + len(data.test) == 20  # neutral ones are left out
    assert set(data.train.columns) == {"user"}
    kept = [texts[n] for n in range(30) if n % 3 != 2]
    assert sorted([*texts_of(data.train), *texts_of(data.test)]) == sorted(kept)
    other = load("sent140", data_dir=tmp_path, arguments={"config": "other"})
    assert torch.cat([other.train.y, other.test.y]).bincount().tolist() == [15, 15]

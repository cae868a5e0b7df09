"""Texts of a federation as token ids: after the split, padded, cached, with lengths that people can check by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation, federate
from fedfuse.data.partition import iid
from fedfuse.data.pool import noise, source, split
from fedfuse.data.sources import load
from fedfuse.data.sources.location import Location
from fedfuse.data.texts import encoding
from fedfuse.data.texts.encoding import encode_federation
from fedfuse.data.texts.lengths import LENGTH, TextLengths, text_facts
from fedfuse.data.texts.tokenizer import Tokenizer
from fedfuse.types import FedfuseError
from tests.data.texts.small_texts import sentences, write_csv


def encoded(raw: Federation, location: Location, **settings: object) -> Federation:
    given = {"tokenizer": "auto", "vocabulary": 120, "max_length": 8, "archs": (), **settings}
    return encode_federation(raw, location=location, **given)  # type: ignore[arg-type]


@pytest.fixture
def raw(tmp_path: Path, location: Location) -> Federation:
    data = load(str(write_csv(tmp_path / "reviews.csv", 200)))
    return federate(data, clients=3, scheme=iid, pool=partial(split, location=location, size=0.5))


def strings(examples: Examples) -> list[str]:
    assert examples.texts is not None
    return list(examples.texts.strings(examples.x["text"]))  # type: ignore[call-overload]


def test_every_part_of_the_federation_decodes_to_its_own_texts(raw: Federation, location: Location) -> None:
    made = encoded(raw, location, max_length=32)
    assert made.tokenizer is not None
    backend = Tokenizer(made.tokenizer).backend()
    for before, after in ((raw.train, made.train), (raw.validation, made.validation), (raw.test, made.test)):
        ids = after.x["input_ids"]  # type: ignore[call-overload]
        assert [backend.decode(row) for row in ids.tolist()] == strings(before)
        assert torch.equal(before.y, after.y)
    assert made.pool is not None
    assert raw.pool is not None
    assert made.pool.lengths(torch.arange(3)) is not None
    assert len(made.pool) == len(raw.pool)


def test_tokens_are_small_on_disk_and_whole_numbers_in_a_batch(raw: Federation, location: Location) -> None:
    train = encoded(raw, location).train
    assert {name: t.dtype for name, t in train.x.items()} == {  # type: ignore[union-attr]
        "input_ids": torch.int32,
        "attention_mask": torch.uint8,
    }
    batch = train.batch(torch.tensor([0, 1]))
    assert {t.dtype for t in batch.values()} == {torch.int64}  # type: ignore[union-attr]
    longest = int(train.lengths(torch.tensor([0, 1])).max())  # type: ignore[union-attr]
    assert batch["input_ids"].shape == (2, longest)  # type: ignore[call-overload]
    mask = train.x["attention_mask"].bool()  # type: ignore[call-overload]
    assert bool((train.x["input_ids"][~mask] == 0).all())  # type: ignore[call-overload]


def test_the_shape_is_the_longest_text_and_the_vocabulary(raw: Federation, location: Location) -> None:
    train = encoded(raw, location).train
    assert train.shape == (8, Tokenizer(encoded(raw, location).tokenizer or "").vocabulary)
    short = encoded(raw, location, max_length=100)
    assert short.train.shape[0] == max(
        int(each.columns[LENGTH].max()) for each in (short.train, short.validation, short.test, short.pool) if each
    )


def test_the_vocabulary_is_trained_on_the_pool_alone(raw: Federation, location: Location) -> None:
    assert raw.train.texts is not None
    secret = replace(raw, train=replace(raw.train, texts=type(raw.train.texts).of([["zzyzx"] * 200], "x")))
    assert encoded(secret, location).tokenizer == encoded(raw, location).tokenizer
    with pytest.raises(FedfuseError, match=r"there is no pool\. Add \[data\.pool\], or set data\.tokenizer"):
        encoded(replace(raw, pool=None), location)


def test_a_pool_of_another_source_is_encoded_by_the_same_tokenizer(tmp_path: Path, location: Location) -> None:
    data = load(str(write_csv(tmp_path / "a.csv", 100)))
    pool = partial(source, location=location, name=str(write_csv(tmp_path / "b.csv", 80, seed=1)), size=40)
    raw = federate(data, clients=2, scheme=iid, pool=pool)
    made = encoded(raw, location)
    assert made.pool is not None
    assert len(made.pool) == 40
    assert made.pool.shape == made.train.shape
    with pytest.raises(FedfuseError, match="the training data has texts, and the pool has none"):
        federate(data, clients=2, scheme=iid, pool=partial(source, location=location, name="digits"))
    with pytest.raises(FedfuseError, match="takes images or features, and the data has text"):
        federate(data, clients=2, scheme=iid, pool=partial(noise, location=location))


def test_encodings_are_cached_and_damage_is_seen(
    raw: Federation, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = encoded(raw, location)
    real, calls = encoding.encode, []
    monkeypatch.setattr(encoding, "encode", lambda *a: calls.append(1) or real(*a))
    assert encoded(raw, location).fingerprint == first.fingerprint
    assert not calls
    tokens = next(file for entry in location.cache.glob("tokens-*") for file in entry.glob("*tokens.npy"))
    values = np.load(tokens)
    values[0] = 7
    np.save(tokens, values)
    assert encoded(raw, location).fingerprint == first.fingerprint
    assert calls == [1]
    assert encoded(raw, location, max_length=9).fingerprint != first.fingerprint


def test_a_cache_that_cannot_be_written_is_done_without(raw: Federation, tmp_path: Path) -> None:
    (tmp_path / "full").write_text("a file, where a folder should be")
    with pytest.warns(UserWarning, match="is not cached"):
        assert encoded(raw, Location(cache=tmp_path / "full")).train.vocabulary > 0


def test_pairs_are_one_row_with_types(tmp_path: Path, location: Location) -> None:
    texts, labels = sentences(120)
    y = [label == "pos" for label in labels]
    both = list(zip(texts, texts[::-1], strict=True))
    data = load_pairs(both, y)
    raw = federate(data, clients=2, scheme=iid, pool=partial(split, location=location, size=0.5))
    made = encoded(raw, location, max_length=40)
    row = {name: t[0] for name, t in made.train.x.items()}  # type: ignore[union-attr]
    backend = Tokenizer(made.tokenizer or "").backend()
    first, second = next(raw.train.texts.entries(raw.train.x["text"][:1]))[0]  # type: ignore[union-attr, call-overload]
    ends = (row["input_ids"] == backend.token_to_id("[SEP]")).nonzero().squeeze(1)
    assert backend.decode(row["input_ids"].tolist()) == f"{first} {second}"
    assert row["token_type_ids"].sum() == ends[1] - ends[0]  # the second text and its [SEP]


def load_pairs(both: list[tuple[str, str]], y: list[bool]) -> object:
    from fedfuse.data.sources.own import as_source

    labels = [int(v) for v in y]
    return as_source("pairs", ((both, labels), (both[:10], labels[:10])))


def test_lengths_by_hand() -> None:
    lengths = torch.tensor([2, 4, 4, 10])
    assert TextLengths.of(lengths, 8) == TextLengths(5.0, 4.0, pytest.approx(8.2), pytest.approx(9.82), 10, 0.25)
    assert TextLengths.of(lengths[:0], 8) == TextLengths(0.0, 0.0, 0.0, 0.0, 0, 0.0)


def test_each_client_and_the_server_have_their_lengths(raw: Federation, location: Location) -> None:
    made = encoded(raw, location, max_length=6)
    facts = text_facts(made)
    assert facts is not None
    words = [len(text.split()) + 2 for text in strings(raw.train)]  # [CLS] and [SEP]; every word is one token
    assert facts.train.mean == pytest.approx(np.mean(words))
    assert facts.train.truncated == pytest.approx(np.mean([n > 6 for n in words]))
    own = [words[row] for row in made.parts[1].tolist()]
    assert facts.clients[1].mean == pytest.approx(np.mean(own))
    assert facts.limit == 6
    assert text_facts(federate(load("digits"), clients=2, scheme=iid)) is None


def test_a_federation_of_texts_is_saved_whole(raw: Federation, location: Location, tmp_path: Path) -> None:
    made = encoded(raw, location)
    made.save(tmp_path / "saved")
    opened = Federation.open(tmp_path / "saved")
    assert opened.fingerprint == made.fingerprint
    assert opened.train.shape == made.train.shape

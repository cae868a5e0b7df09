"""Tokenizers: trained alike in every process, of models, of files, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from fedfuse.data.sources.location import Location
from fedfuse.data.texts import tokenizer as module
from fedfuse.data.texts.store import Texts
from fedfuse.data.texts.tokenizer import (
    SPECIAL,
    Tokenizer,
    check_fits,
    hub_sources,
    named,
    of_models,
    trained,
    word_pieces,
)
from fedfuse.types import FedfuseError
from tests.data.texts.small_texts import sentences


def test_training_gives_the_same_tokens_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library alone would not: every hash table of it has a seed of its own, and ties abound in these texts."""
    words = ["".join(chr(97 + (row * 7 + i * i) % 26) for i in range(9)) for row in range(400)]
    texts = [f"{text} {word}" for text, word in zip(sentences(400)[0], words, strict=True)]
    results = set()
    for parallel in ("true", "false"):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
        results |= {tuple(word_pieces(texts, 300)) for _ in range(4)}
    assert len(results) == 1


def test_frequent_words_are_tokens_and_special_tokens_are_first() -> None:
    texts, _ = sentences(200)
    tokens = word_pieces(texts, 100)
    assert tokens[:5] == list(SPECIAL)
    assert {"film", "good", "awful"} <= set(tokens)
    assert len(tokens) <= 100
    assert len(word_pieces(texts, 64)) <= 64


def train(texts: list[str], location: Location, vocabulary: int = 100, max_length: int = 8) -> Tokenizer:
    store = Texts.of([texts], "x")
    return trained(store, torch.arange(len(store)), vocabulary, max_length, location)


def test_texts_are_lower_cased_cut_and_padded(location: Location) -> None:
    made = train(sentences(200)[0], location)
    backend = made.backend()
    assert backend.encode("The FILM was Göod").tokens == ["[CLS]", "the", "film", "was", "good", "[SEP]"]
    assert len(backend.encode("the film was good " * 5)) == made.max_length == 8
    short, long = backend.encode_batch(["good", "the film was good"])
    assert short.ids[3:] == [made.pad] * 3 == [0] * 3
    assert short.attention_mask == [1, 1, 1, 0, 0, 0]
    assert made.vocabulary == len(backend.get_vocab())
    assert len(long) == 6


def test_it_is_trained_once_and_again_if_the_cache_is_damaged(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, _ = sentences(50)
    calls: list[int] = []
    real = word_pieces
    monkeypatch.setattr(module, "word_pieces", lambda *a: calls.append(1) or real(*a))
    first = train(texts, location)
    assert train(texts, location) == first
    assert calls == [1]
    (entry,) = location.cache.glob("tokenizer-*")
    manifest = entry / "manifest.json"
    manifest.write_text(manifest.read_text().replace("film", "fi1m"))
    assert train(texts, location) == first
    assert calls == [1, 1]
    assert train(texts, location, vocabulary=64) != first


@pytest.fixture
def bert(tmp_path: Path, location: Location) -> Path:
    """A folder with a configuration and a tokenizer."""
    folder = tmp_path / "bert"
    made = train(sentences(200)[0], location)
    special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=made.backend(), model_max_length=16, **special
    ).save_pretrained(folder)
    transformers.BertConfig(
        vocab_size=made.vocabulary, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=16,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def test_the_models_own_tokenizer_and_a_file_are_the_same(bert: Path) -> None:
    own = of_models(["bag", f"hf:{bert}"], 12, pairs=False)
    assert own is not None
    assert own.max_length == 12
    assert own.backend().encode("good film").ids == named(str(bert), 12, pairs=False).backend().encode("good film").ids
    assert own.longest == 16
    assert of_models(["bag", "lstm"], 12, pairs=False) is None


def test_options_and_heads_are_not_part_of_the_model() -> None:
    assert hub_sources("hf:a/b:layers=2+head64") == ["a/b"]
    assert hub_sources("hf:./c|lstm") == ["./c"]
    assert hub_sources("lstm") == []


def test_pairs_have_types_where_the_model_takes_them(bert: Path) -> None:
    assert named(str(bert), 12, pairs=True).types
    assert not named(str(bert), 12, pairs=False).types


def without_tokenizer(folder: Path) -> str:
    (folder / "tokenizer.json").unlink()
    return f"hf:{folder}"


def broken(folder: Path) -> str:
    (folder / "tokenizer.json").write_text("{")
    return str(folder / "tokenizer.json")


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (without_tokenizer, "has no tokenizer: save one beside the model"),
        (broken, r"not a tokenizer\.json that can be read"),
        (lambda folder: "nowhere.json", "there is no such file: give auto"),
    ],
)
def test_a_tokenizer_that_cannot_be_read(bert: Path, setting: Any, words: str) -> None:
    with pytest.raises(FedfuseError, match=words):
        named(setting(bert), 12, pairs=False)


def test_what_does_not_fit(bert: Path, location: Location, tmp_path: Path) -> None:
    large = train([f"{text} w{row} v{row}" for row, text in enumerate(sentences(300)[0])], location, 400)
    with pytest.raises(FedfuseError, match=r"knows \d+ tokens, and the tokenizer has \d+: set data.tokenizer to"):
        check_fits(f"hf:{bert}", large)
    with pytest.raises(FedfuseError, match=r"reads at most 16 tokens: set data\.max_length = 16"):
        check_fits(f"hf:{bert}", named(str(bert), 17, pairs=False))
    check_fits(f"hf:{bert}", named(str(bert), 16, pairs=False))
    with pytest.raises(FedfuseError, match=r"max_length = 3: the tokenizer .* adds 3 tokens"):
        named(str(bert), 3, pairs=True)
    other = tmp_path / "other"
    other.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (other / name).write_bytes((bert / name).read_bytes())
    (other / "tokenizer.json").write_text(large.content)
    with pytest.raises(FedfuseError, match="have different tokenizers"):
        of_models([f"hf:{bert}", f"hf:{other}"], 12, pairs=False)

"""Encode the texts of a federation, once they are split between validation, pool and clients."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.data.sources.cache import cached_arrays
from fedfuse.data.sources.location import Location
from fedfuse.data.texts import tokenizer as tokenizers
from fedfuse.data.texts.lengths import LENGTH
from fedfuse.data.texts.store import CHUNK, ROWS, Entry, Texts, gather
from fedfuse.data.texts.tokenizer import AUTO, Tokenizer
from fedfuse.types import FedfuseError


@dataclass(frozen=True)
class Encoded:
    """The tokens of M texts one after the other, T in all."""

    tokens: Tensor  # (T,) int32
    types: Tensor  # (T,) uint8: token types; of texts that are no pairs (0,)
    lengths: Tensor  # (M,) int64, with special tokens
    full: Tensor  # (M,) int64: lengths before truncation


def encode_federation(
    federation: Federation,
    *,
    tokenizer: str,
    vocabulary: int,
    max_length: int,
    archs: Sequence[str],
    location: Location,
) -> Federation:
    """Return the federation with token ids for texts, and its tokenizer.

    A tokenizer is trained on the texts of the pool only: a vocabulary of the clients' texts would reveal their words.
    """
    chosen = _choose(federation, tokenizer, vocabulary, max_length, archs, location)
    for arch in archs:
        tokenizers.check_fits(arch, chosen)
    sets = {"train": federation.train, "validation": federation.validation, "test": federation.test}
    sets |= {} if federation.pool is None else {"pool": federation.pool}
    stores = {id(texts): texts for examples in sets.values() for texts in [_texts(examples)]}
    encoded = {key: _encode(texts, chosen, location) for key, texts in stores.items()}
    ragged = {name: encoded[id(_texts(examples))] for name, examples in sets.items()}
    longest = max(_longest(ragged[name], examples) for name, examples in sets.items())
    padded = {name: _padded(examples, ragged[name], chosen, longest) for name, examples in sets.items()}
    return replace(
        federation,
        train=padded["train"],
        validation=padded["validation"],
        test=padded["test"],
        pool=padded.get("pool"),
        tokenizer=chosen.content,
    )


def _choose(
    federation: Federation, setting: str, vocabulary: int, max_length: int, archs: Sequence[str], location: Location
) -> Tokenizer:
    pairs = _texts(federation.train).pairs
    if setting != AUTO:
        return tokenizers.named(setting, max_length, pairs=pairs)
    if (own := tokenizers.of_models(archs, max_length, pairs=pairs)) is not None:
        return own
    if federation.pool is None or not len(federation.pool):
        raise FedfuseError(
            "there is no tokenizer: one is trained on public texts only, and there is no pool. Add [data.pool], or set "
            "data.tokenizer to hf:<id or folder> or a tokenizer.json"
        )
    return tokenizers.trained(_texts(federation.pool), _rows(federation.pool), vocabulary, max_length, location)


def _texts(examples: Examples) -> Texts:
    if examples.texts is None:
        raise FedfuseError("the training data has texts and the pool has none: choose a pool of texts")
    return examples.texts


def _rows(examples: Examples) -> Tensor:
    assert not isinstance(examples.x, Tensor)
    return examples.x[ROWS]


def _longest(encoded: Encoded, examples: Examples) -> int:
    return int(encoded.lengths[_rows(examples)].max()) if len(examples) else 1


def _encode(texts: Texts, tokenizer: Tokenizer, location: Location) -> Encoded:
    """Encode the texts, or take their tokens from the cache."""
    key = hashlib.sha256(f"{texts.digest} {tokenizer.types} {tokenizer.content}".encode())

    def build() -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
        return vars(encode(texts, tokenizer, location)), {}

    names = tuple(Encoded.__dataclass_fields__)
    tensors, _ = cached_arrays(location, f"tokens-{key.hexdigest()[:32]}", build, needs=names)
    return Encoded(**{name: tensors[name] for name in names})


def encode(texts: Texts, tokenizer: Tokenizer, location: Location) -> Encoded:
    """Encode all texts with special tokens, cut to the tokenizer's length."""
    backend = tokenizer.backend()
    tokens, types, lengths, full = [], [], [], []
    for number, chunk in enumerate(texts.entries(torch.arange(len(texts)))):
        if location.progress:
            location.progress(f"encoding {len(texts):,} texts", number * CHUNK / len(texts))
        ids, kinds, before = _encode_chunk(backend, chunk, tokenizer.max_length)
        tokens.append(np.fromiter(chain.from_iterable(ids), np.int32))
        types.append(np.fromiter(chain.from_iterable(kinds if tokenizer.types else ()), np.uint8))
        lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
        full.append(before)
    if location.progress:
        location.progress(f"encoding {len(texts):,} texts", 1.0)
    parts = (tokens, types, lengths, full)
    return Encoded(*(torch.from_numpy(np.concatenate(part)) if part else torch.zeros(0).long() for part in parts))


def _encode_chunk(
    backend: Any, chunk: Sequence[Entry], max_length: int
) -> tuple[list[list[int]], list[list[int]], np.ndarray[Any, Any]]:
    """Return ids and types of each text, and its length before truncation. Only long texts are encoded twice."""
    backend.no_padding()
    backend.no_truncation()
    encodings = backend.encode_batch(list(chunk))
    full = np.fromiter((len(encoding) for encoding in encodings), np.int64, len(encodings))
    if long := np.flatnonzero(full > max_length).tolist():
        backend.enable_truncation(max_length)
        for row, encoding in zip(long, backend.encode_batch([chunk[row] for row in long]), strict=True):
            encodings[row] = encoding
    return [encoding.ids for encoding in encodings], [encoding.type_ids for encoding in encodings], full


def _padded(examples: Examples, encoded: Encoded, tokenizer: Tokenizer, longest: int) -> Examples:
    """Return the examples with token ids (N, L) and their mask, padded at the right."""
    rows = _rows(examples)
    lengths, starts = encoded.lengths[rows], (encoded.lengths.cumsum(0) - encoded.lengths)[rows]
    x = {
        "input_ids": torch.full((len(rows), longest), tokenizer.pad, dtype=torch.int32),
        "attention_mask": torch.zeros(len(rows), longest, dtype=torch.uint8),
    }
    sources = {"input_ids": encoded.tokens}
    if tokenizer.types:
        x["token_type_ids"] = torch.zeros(len(rows), longest, dtype=torch.uint8)
        sources["token_type_ids"] = encoded.types
    for start in range(0, len(rows), CHUNK):
        part = slice(start, start + CHUNK)
        mask = torch.arange(longest) < lengths[part, None]
        x["attention_mask"][part] = mask
        for name, values in sources.items():
            x[name][part][mask] = gather(values, starts[part], lengths[part])
    columns = {**examples.columns, LENGTH: encoded.full[rows]}
    return replace(examples, x=x, columns=columns, texts=None, vocabulary=tokenizer.vocabulary)

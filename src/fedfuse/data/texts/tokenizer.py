"""The tokenizer of an experiment: a model's own, one of a file, or a WordPiece that is trained on public texts."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedfuse.data.sources.cache import cached_arrays
from fedfuse.data.sources.location import Location
from fedfuse.data.texts.store import Texts
from fedfuse.models import shared_head, split
from fedfuse.models.hf_name import MARK, parse
from fedfuse.types import FedfuseError

AUTO = "auto"
FILE = "tokenizer.json"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PADS = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>")  # padding tokens of files that do not say which it is
CONTINUED = "##"
ALPHABET = 1000  # most characters of a trained vocabulary, as in BERT's
SMALLEST = 64  # tokens of a trained vocabulary
CHUNK = 1024  # texts that are normalised at once


@dataclass(frozen=True)
class Tokenizer:
    """The content of a `tokenizer.json`, complete with padding and truncation."""

    content: str
    types: bool = False  # whether pairs have token types, which the model takes
    longest: int | None = None  # tokens that its model reads at most, if known

    def backend(self) -> Any:
        """A new tokenizer of the library, which the caller may change."""
        return library().Tokenizer.from_str(self.content)

    @cached_property
    def vocabulary(self) -> int:
        """One more than the highest token."""
        tokens: dict[str, int] = self.backend().get_vocab(with_added_tokens=True)
        return 1 + max(tokens.values())

    @cached_property
    def max_length(self) -> int:
        return int(json.loads(self.content)["truncation"]["max_length"])

    @cached_property
    def pad(self) -> int:
        """The number of the padding token."""
        return int(json.loads(self.content)["padding"]["pad_id"])


def library() -> Any:
    """The `tokenizers` library. Raise a FedfuseError that says how to install it if it is missing."""
    try:
        return importlib.import_module("tokenizers")
    except ImportError as error:
        raise FedfuseError('texts need tokenizers: pip install "fedfuse[text]"') from error


def named(setting: str, max_length: int, *, pairs: bool) -> Tokenizer:
    """Return the tokenizer `hf:<id or folder>`, or that of a tokenizer.json."""
    if setting.startswith(MARK):
        return _of_model(setting, max_length, pairs)
    file = Path(setting).expanduser()
    file = file / FILE if file.is_dir() else file
    if not file.is_file():
        raise FedfuseError(f"tokenizer {setting!r}: there is no such file: give auto, hf:<id or folder>, or a {FILE}")
    try:
        backend = library().Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exceptions
        raise FedfuseError(f"tokenizer {setting!r}: not a {FILE} that can be read ({error}): replace it") from error
    return _complete(backend, _pad(backend), max_length, pairs, setting)


def of_models(archs: Sequence[str], max_length: int, *, pairs: bool) -> Tokenizer | None:
    """Return the tokenizer of the `hf:` models among these, which must have the same one; None if there are none."""
    by_model = {arch: named(MARK + source, max_length, pairs=pairs) for arch in archs for source in hub_sources(arch)}
    for arch, tokenizer in by_model.items():
        first = next(iter(by_model))
        if tokenizer.content != by_model[first].content:
            raise FedfuseError(
                f"{first} and {arch} have different tokenizers, and all models read the same tokens: choose models of "
                f'one tokenizer, or set data.tokenizer = "{MARK}<id or folder>" if all models know its tokens'
            )
    return next(iter(by_model.values()), None)


def hub_sources(arch: str) -> list[str]:
    """The ids or folders of an architecture's `hf:` models, without options such as `:layers=2` or a shared head."""
    parts = [shared_head.split(part)[0] for part in arch.split(split.MARK)]
    return [parse(part).source for part in parts if part.startswith(MARK)]


def _of_model(setting: str, max_length: int, pairs: bool) -> Tokenizer:
    source = setting.removeprefix(MARK)
    folder = Path(source).expanduser()
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise FedfuseError(f'tokenizer {setting!r} needs transformers: pip install "fedfuse[hf]"') from error
    remedy = f"save one beside the model, or set data.tokenizer to another {MARK}<id or folder> or a {FILE}"
    if folder.is_dir() and not any((folder / name).is_file() for name in (FILE, "vocab.txt", "vocab.json")):
        raise FedfuseError(f"{setting} has no tokenizer: {remedy}")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            str(folder) if folder.is_dir() else source, use_fast=True, trust_remote_code=False
        )
    except Exception as error:  # a file that cannot be read, an id that is not there, an old format
        reason = str(error).strip().partition("\n")[0]
        raise FedfuseError(f"{setting}: no tokenizer could be loaded ({reason}): {remedy}") from error
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise FedfuseError(f"{setting}: its tokenizer is not a fast one, which texts are encoded with: {remedy}")
    pad = (
        (tokenizer.pad_token_id, tokenizer.pad_token)
        if tokenizer.pad_token_id is not None
        else _pad(tokenizer.backend_tokenizer)
    )
    complete = _complete(tokenizer.backend_tokenizer, pad, max_length, pairs, setting)
    types = complete.types and "token_type_ids" in tokenizer.model_input_names
    longest = tokenizer.model_max_length if tokenizer.model_max_length < 10**9 else None
    return Tokenizer(complete.content, types, longest)


def _pad(backend: Any) -> tuple[int, str]:
    if backend.padding is not None:
        return backend.padding["pad_id"], backend.padding["pad_token"]
    return next(((n, token) for token in PADS if (n := backend.token_to_id(token)) is not None), (0, PADS[0]))


def _complete(backend: Any, pad: tuple[int, str], max_length: int, pairs: bool, what: str) -> Tokenizer:
    """Return the tokenizer with its padding and truncation."""
    least = 1 + backend.num_special_tokens_to_add(pairs)
    if max_length < least:
        raise FedfuseError(
            f"max_length = {max_length}: the tokenizer {what} adds {least - 1} tokens to each text: raise it"
        )
    backend.enable_padding(direction="right", pad_id=pad[0], pad_token=pad[1])
    backend.enable_truncation(max_length)
    types = pairs and any(backend.encode("a", "b").type_ids)
    return Tokenizer(backend.to_str(), types)


def trained(texts: Texts, rows: Tensor, vocabulary: int, max_length: int, location: Location) -> Tokenizer:
    """Train a WordPiece on the texts at `rows` (n,), or take it from the cache. The same texts give the same tokens."""
    public = texts.select(rows)
    key = f"{public.digest} {vocabulary} {library().__version__}"
    name = f"tokenizer-{hashlib.sha256(key.encode()).hexdigest()[:32]}"

    def build() -> tuple[dict[str, Any], dict[str, Any]]:
        if location.progress:
            location.progress(f"training a tokenizer on {len(public):,} public texts", 0.0)
        return {}, {"vocabulary": word_pieces(list(public.strings(torch.arange(len(public)))), vocabulary)}

    _, facts = cached_arrays(location, name, build, needs=("vocabulary",))
    backend = _word_piece(facts["vocabulary"])
    return _complete(backend, (0, SPECIAL[0]), max_length, public.pairs, "of the pool")


def word_pieces(texts: Sequence[str], vocabulary: int) -> list[str]:
    """Return the tokens of a WordPiece that is trained on these texts, at most `vocabulary` of them.

    The library numbers the continued characters (##a) by the order of a hash table, and breaks ties by these numbers:
    so two runs would differ. Here both kinds of characters are given to it in order, as if they were special tokens.
    """
    tokenizers = library()
    alphabet = _alphabet(texts, min(ALPHABET, (vocabulary - len(SPECIAL)) // 4))
    first = [*SPECIAL, *alphabet, *(CONTINUED + character for character in alphabet)]
    backend = _word_piece([])
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        special_tokens=first,
        initial_alphabet=alphabet,
        limit_alphabet=max(1, len(alphabet)),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokens: dict[str, int] = backend.get_vocab()
    return sorted(tokens, key=lambda token: tokens[token])


def _alphabet(texts: Sequence[str], most: int) -> list[str]:
    """The most frequent characters of the texts as the tokenizer normalises them, sorted."""
    normalise = _normaliser().normalize_str
    counts: Counter[str] = Counter()
    for start in range(0, len(texts), CHUNK):
        counts.update(normalise("\n".join(texts[start : start + CHUNK])))
    known = [character for character in counts if not character.isspace()]
    return sorted(sorted(known, key=lambda character: (-counts[character], character))[:most])


def _normaliser() -> Any:
    return library().normalizers.BertNormalizer(lowercase=True)


def _word_piece(tokens: Sequence[str]) -> Any:
    """A lower-cased WordPiece with BERT's normaliser and special tokens."""
    tokenizers = library()
    numbers = {token: number for number, token in enumerate(tokens)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab=numbers or None, unk_token=SPECIAL[1]))
    backend.normalizer = _normaliser()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece(prefix=CONTINUED)
    if tokens:
        backend.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in SPECIAL])
        start, end = ((token, numbers[token]) for token in ("[CLS]", "[SEP]"))
        backend.post_processor = tokenizers.processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[start, end]
        )
    return backend


def check_fits(arch: str, tokenizer: Tokenizer) -> None:
    """Raise an error if an `hf:` model does not know all tokens, or cannot read texts of the longest length."""
    for source in hub_sources(arch):
        config = _config(source)
        known, longest = config.get("vocab_size"), config.get("max_position_embeddings")
        limits = [n for n in (longest, tokenizer.longest) if isinstance(n, int)]
        if isinstance(known, int) and tokenizer.vocabulary > known:
            raise FedfuseError(
                f"{arch} knows {known:,} tokens, and the tokenizer has {tokenizer.vocabulary:,}: set data.tokenizer to "
                f"the model's own, {MARK}{source}"
            )
        if limits and tokenizer.max_length > min(limits):
            raise FedfuseError(
                f"{arch} reads at most {min(limits)} tokens: set data.max_length = {min(limits)} or less"
            )


def _config(source: str) -> dict[str, Any]:
    """The model's configuration; empty if it cannot be read, which building the model then says."""
    try:
        transformers = importlib.import_module("transformers")
        folder = Path(source).expanduser()
        config = transformers.AutoConfig.from_pretrained(str(folder) if folder.is_dir() else source)
        return json.loads(config.to_json_string(use_diff=False))  # type: ignore[no-any-return]
    except Exception:
        return {}

"""Fuse a BERT, a DistilBERT and an ALBERT, each of which never saw one class of AG News.

    FEDFUSE_DATA=FOLDER python benchmarks/fuse/text.py [--seeds 2] [--data-dir FOLDER] [--out DIR]

All nets are small and have random initial weights; they share one WordPiece tokenizer. Teacher A has no texts of class
0, B none of class 1, C none of class 2. The pool are other training texts without labels. The student is a RoBERTa.
It is fused twice: with `knows`, which states the classes of each teacher, and without. The bound is a RoBERTa that is
trained on the labeled texts of all teachers, with as many steps as the student. Writes results.json.
"""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, load_dataset
from results import Results
from tokenizers import BertWordPieceTokenizer
from torch import Tensor, nn
from training import Labeled, Training, ensemble, logits, parameters
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

import fedfuse
from fedfuse import rng
from fedfuse.evaluate import accuracy
from fedfuse.fusion.distillers import AdamCosine

NAMES = ("World", "Sports", "Business", "Sci/Tech")
KNOWN = ((1, 2, 3), (0, 2, 3), (0, 1, 3))  # of teachers A, B, C
TEACHERS = ("BERT", "DistilBERT", "ALBERT")
STUDENT = "RoBERTa"
LENGTH, VOCABULARY = 48, 8_000


@dataclass(frozen=True)
class Scale:
    teacher: int = 3_000  # texts
    pool: int = 6_000
    validation: int = 500
    test: int = 7_600
    teacher_steps: int = 400
    student_steps: int = 600
    batch_size: int = 64

    def __str__(self) -> str:
        return (
            f"each teacher {self.teacher:,} labeled texts of 3 of 4 classes, {self.teacher_steps} steps; "
            f"pool of {self.pool:,} unlabeled texts; validation {self.validation}; "
            f"student and bound {self.student_steps} steps; batches of {self.batch_size}; {LENGTH} tokens; "
            f"vocabulary of {VOCABULARY:,}; test {self.test:,}"
        )


@dataclass(frozen=True)
class Split:
    """Disjoint parts of the data, as tokens."""

    teachers: list[tuple[dict[str, Tensor], Tensor]]
    pool: dict[str, Tensor]  # (N, L) each
    validation: Labeled
    test: Labeled

    @staticmethod
    def of(train: Dataset, test: Dataset, scale: Scale, seed: int) -> Split:
        texts, y = list(train["text"]), torch.tensor(train["label"])
        free = torch.randperm(len(y), generator=rng.generator(seed, "split"))
        parts = []
        for known in KNOWN:
            index = free[torch.isin(y[free], torch.tensor(known))][: scale.teacher]
            free = free[~torch.isin(free, index)]
            parts.append(index)
        validation, pool = free.split([scale.validation, len(free) - scale.validation])
        pool = pool[: scale.pool]
        tokenizer = trained_tokenizer([texts[i] for i in torch.cat([*parts, pool])])

        def tokens(index: Tensor) -> dict[str, Tensor]:
            return encoded(tokenizer, [texts[i] for i in index])

        return Split(
            [(tokens(index), y[index]) for index in parts],
            tokens(pool),
            (tokens(validation), y[validation]),
            (encoded(tokenizer, list(test["text"])[: scale.test]), torch.tensor(test["label"])[: scale.test]),
        )


def trained_tokenizer(texts: Sequence[str]) -> BertWordPieceTokenizer:
    tokenizer = BertWordPieceTokenizer(lowercase=True)
    tokenizer.train_from_iterator(texts, vocab_size=VOCABULARY, show_progress=False)
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH, pad_id=0)
    return tokenizer


def encoded(tokenizer: BertWordPieceTokenizer, texts: Sequence[str]) -> dict[str, Tensor]:
    rows = tokenizer.encode_batch(list(texts))
    return {
        "input_ids": torch.tensor([row.ids for row in rows]),
        "attention_mask": torch.tensor([row.attention_mask for row in rows]),
    }


def build(name: str, seed: int, who: str) -> nn.Module:
    """Return a net of this architecture with random weights and named classes."""
    common: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LENGTH + 2,
        "id2label": dict(enumerate(NAMES)),
        "label2id": {label: number for number, label in enumerate(NAMES)},
        "pad_token_id": 0,
    }
    two: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 4}
    with rng.ambient(rng.generator(seed, "initial weights", who)):
        if name == "BERT":
            return BertForSequenceClassification(
                BertConfig(hidden_size=128, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4, **common)
            )
        if name == "DistilBERT":
            return DistilBertForSequenceClassification(
                DistilBertConfig(dim=96, hidden_dim=192, n_layers=1, n_heads=4, **common)
            )
        if name == "ALBERT":
            return AlbertForSequenceClassification(
                AlbertConfig(embedding_size=64, hidden_size=96, intermediate_size=192, **two, **common)
            )
        return RobertaForSequenceClassification(RobertaConfig(hidden_size=96, intermediate_size=192, **two, **common))


def joined(parts: Sequence[tuple[dict[str, Tensor], Tensor]]) -> Labeled:
    x = {name: torch.cat([part[0][name] for part in parts]) for name in ("input_ids", "attention_mask")}
    return x, torch.cat([part[1] for part in parts])


def run(results: Results, train: Dataset, test: Dataset, scale: Scale, seed: int) -> None:
    """Measure all models of one seed."""
    split = Split.of(train, test, scale, seed)
    x, y = split.test
    short = Training(scale.teacher_steps, scale.batch_size)
    longer = Training(scale.student_steps, scale.batch_size)
    distiller = AdamCosine(steps=scale.student_steps, batch_size=scale.batch_size, patience=scale.student_steps)

    nets = []
    for number, (name, part) in enumerate(zip(TEACHERS, split.teachers, strict=True)):
        net = build(name, seed, f"teacher {number}")
        with results.timed():
            nets.append(short(net, part, seed))
        size = f"{scale.teacher:,} labeled, no {NAMES[number]}"
        share = accuracy(logits(net, x), y)
        results.add(f"teacher {'ABC'[number]}", name, parameters(net), size, short.steps, share)

    votes = [logits(net, x) for net in nets]
    student = build(STUDENT, seed, "student")
    for words, known in (("", KNOWN), (", without knows", None)):
        share = accuracy(ensemble(votes, known or [None] * len(votes)), y)
        results.add(f"ensemble{words}", "all three", sum(map(parameters, nets)), "", None, share)
        with results.timed():
            result = fedfuse.fuse(
                nets, student, split.pool, knows=known, distiller=distiller, validation=split.validation, seed=seed
            )
        share = accuracy(logits(result.model, x), y)
        pool = f"{scale.pool:,} unlabeled"
        results.add(f"fused student{words}", STUDENT, parameters(student), pool, result.steps, share)

    union = joined(split.teachers)
    bound = copy.deepcopy(student)
    with results.timed():
        longer(bound, union, seed, split.validation)
    share = accuracy(logits(bound, x), y)
    results.add("trained on all labels", STUDENT, parameters(bound), f"{len(union[1]):,} labeled", longer.steps, share)


def main(arguments: list[str] | None = None, scale: Scale | None = None) -> None:
    """`scale` is for a test of this script at another size."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=2)
    options.add_argument("--data-dir", type=Path, help="folder with ag_news in it; by default FEDFUSE_DATA")
    options.add_argument("--out", type=Path, default=Path("runs/fuse"))
    given = options.parse_args(arguments)
    folder = given.data_dir or os.environ.get("FEDFUSE_DATA")
    if folder is None:
        options.error("name the folder of the data with --data-dir or FEDFUSE_DATA")
    torch.set_num_threads(1)
    scale = scale or Scale()
    files = {part: str(Path(folder) / f"ag_news/data/{part}-*.parquet") for part in ("train", "test")}
    parts = load_dataset("parquet", data_files=files)
    results = Results("AG News", str(scale))
    for seed in range(given.seeds):
        run(results, parts["train"], parts["test"], scale, seed)
        results.save(given.out, seed + 1)
    results.print(given.seeds)


if __name__ == "__main__":
    main()

"""Texts small enough to write in a test: sentences whose mood is told by one word."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

GOOD, BAD = ("good", "great", "lovely"), ("bad", "awful", "dull")
OTHER = ("the", "film", "was", "very", "plot", "really", "music")


def sentences(rows: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts of 3 to 9 words, and their labels: neg, pos, neg, ..."""
    draw = torch.Generator().manual_seed(seed)
    texts, labels = [], []
    for row in range(rows):
        picks = torch.randint(1000, (9,), generator=draw).tolist()
        words = [OTHER[pick % len(OTHER)] for pick in picks[: 2 + picks[8] % 7]]
        texts.append(" ".join([*words, (BAD, GOOD)[row % 2][picks[0] % 3]]))
        labels.append(("neg", "pos")[row % 2])
    return texts, labels


def write_csv(path: Path, rows: int, seed: int = 0, users: int = 0) -> Path:
    """A CSV file with the columns text, label and, with `users`, user."""
    texts, labels = sentences(rows, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label", *(["user"] if users else [])])
        for row, (text, label) in enumerate(zip(texts, labels, strict=True)):
            writer.writerow([text, label, *([f"u{row * 7 % users}"] if users else [])])
    return path

"""Texts as two tensors, their bytes in a row and where each ends, so that they are cached like other data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedfuse.types import FedfuseError

CHUNK = 4096  # rows copied or read at a time
ROWS = "text"  # the name under which examples hold the row numbers of their texts
MOST = 2  # texts of one example: a pair of sentences

Entry = str | tuple[str, str]


@dataclass(frozen=True, eq=False)
class Texts:
    """M texts, or pairs of texts."""

    content: Tensor  # (T,) uint8: UTF-8
    ends: Tensor  # (M, P) int64: where each text ends in `content`; P is 1, or 2 for pairs

    @staticmethod
    def of(columns: Sequence[Sequence[str]], name: str) -> Texts:
        """Store one column of texts, or two of the same length."""
        try:
            encoded = [text.encode() for row in zip(*columns, strict=True) for text in row]
        except UnicodeEncodeError as error:
            raise FedfuseError(f"{name}: a text is not valid Unicode ({error.reason}): replace it") from error
        ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        content = torch.frombuffer(bytearray(b"".join(encoded) or b" "), dtype=torch.uint8)
        return Texts(content[: int(ends[-1]) if len(ends) else 0], torch.from_numpy(ends).view(-1, len(columns)))

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def pairs(self) -> bool:
        return self.ends.shape[1] == MOST

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all texts."""
        digest = hashlib.sha256(f"{tuple(self.ends.shape)}\n".encode())
        for tensor in (self.ends, self.content):
            for part in torch.split(tensor, CHUNK * CHUNK):
                digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def entries(self, index: Tensor) -> Iterator[list[Entry]]:
        """Yield the texts, or pairs, at `index` (n,), a chunk at a time."""
        content = memoryview(self.content.numpy().data)
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64), self.ends.reshape(-1)])
        count = self.ends.shape[1]
        for rows in torch.split(index, CHUNK):
            places = bounds[rows[:, None] * count + torch.arange(count + 1)].tolist()
            if count == 1:
                yield [str(content[start:end], "utf-8") for start, end in places]
            else:
                yield [(str(content[a:b], "utf-8"), str(content[b:c], "utf-8")) for a, b, c in places]

    def strings(self, index: Tensor) -> Iterator[str]:
        """Yield every text at `index` (n,); of pairs, both."""
        for chunk in self.entries(index):
            for entry in chunk:
                if isinstance(entry, str):
                    yield entry
                else:
                    yield from entry

    def select(self, index: Tensor) -> Texts:
        """Return a copy of the texts at `index` (n,) only."""
        count = self.ends.shape[1]
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64), self.ends.reshape(-1)])
        places = bounds[index[:, None] * count + torch.arange(count + 1)]  # (n, P + 1)
        lengths = places.diff(dim=1)
        ends = lengths.reshape(-1).cumsum(0).view(-1, count)
        parts = [gather(self.content, p[:, 0], p[:, -1] - p[:, 0]) for p in torch.split(places, CHUNK)]
        return Texts(torch.cat(parts) if parts else self.content[:0], ends)


def gather(values: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
    """Join the runs values[starts[i] : starts[i] + lengths[i]]."""
    before = lengths.cumsum(0) - lengths
    return values[torch.arange(int(lengths.sum())) + (starts - before).repeat_interleave(lengths)]

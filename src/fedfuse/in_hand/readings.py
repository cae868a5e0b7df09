"""Readings: how one model takes raw data, by its own size, mean and standard deviation, or by its own tokenizer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.fusion.table import TensorPool
from fedfuse.in_hand.raw import Numbers, Raw, Texts, hash_of
from fedfuse.predict import Pool
from fedfuse.types import FedfuseError

LONGEST = 512  # tokens of a text: more takes memory for every text of the pool
RESAMPLE: Mapping[int, Literal["nearest", "bilinear", "bicubic"]] = {0: "nearest", 2: "bilinear", 3: "bicubic"}


@dataclass(frozen=True)
class NumberReading:
    """Images of one size, or other numbers of one shape, normalised: (x - mean) / std, where bytes are 0 to 1."""

    shape: tuple[int, ...]  # of one input
    mean: tuple[float, ...]
    std: tuple[float, ...]
    shortest: int | None = None  # resize the shorter edge to this and cut the centre out, instead of the whole image
    mode: Literal["nearest", "bilinear", "bicubic"] = "bilinear"

    def pool(self, raw: Raw, title: str) -> NumberPool:
        """Return the data as a pool for this model."""
        if isinstance(raw, Texts):
            raise FedfuseError(f"{title} does not read texts, which {raw.name} holds: choose a model of texts, hf:...")
        own, shape = self.shape, tuple(raw.x.shape[1:])
        is_image = len(own) == len(shape) == 3
        if own != shape and not (is_image and (own[0] == shape[0] or shape[0] == 1)):
            raise FedfuseError(f"{title} takes inputs of shape {own}, and {raw.name} has {shape}: choose other data")
        return NumberPool(raw, self)

    def __call__(self, x: Tensor) -> Tensor:
        """Raw inputs (B, ...) -> (B, *shape)."""
        values = x.float() / 255 if x.dtype == torch.uint8 else x.float()
        if values.dim() == 4:
            values = self._resized(values).expand(-1, self.shape[0], -1, -1)  # a grey image in every channel
        view = (1, -1) + (1,) * (values.dim() - 2)
        return (values - torch.tensor(self.mean).view(view)) / torch.tensor(self.std).view(view)

    def _resized(self, x: Tensor) -> Tensor:
        (height, width), (rows, columns) = x.shape[2:], self.shape[1:]
        size = (rows, columns)
        if self.shortest is not None and self.shortest >= max(size):
            factor = self.shortest / min(height, width)
            size = (round(height * factor), round(width * factor))
        if size != (height, width):
            smooth = self.mode != "nearest"  # as PIL: shrinking averages over all pixels
            x = F.interpolate(x, size, mode=self.mode, antialias=smooth)
        top, left = (size[0] - rows) // 2, (size[1] - columns) // 2
        return x[..., top : top + rows, left : left + columns]


@dataclass(frozen=True)
class NumberPool:
    """Raw numbers as one model takes them, converted batch by batch."""

    raw: Numbers
    reading: NumberReading

    def __len__(self) -> int:
        return len(self.raw)

    def batch(self, index: Tensor) -> Tensor:
        return self.reading(self.raw.x.index_select(0, index))


@dataclass(frozen=True, eq=False)
class TextReading:
    """Texts as token ids of one tokenizer."""

    tokenizer: Any
    longest: int
    vocabulary: int  # rows of the model's embedding
    inputs: frozenset[str]  # what the model's forward takes

    @staticmethod
    def of(net: Any, tokenizer: Any) -> TextReading:
        """Return the reading of a transformers model."""
        positions = getattr(net.config, "max_position_embeddings", LONGEST)
        longest = min(tokenizer.model_max_length, positions, LONGEST)
        names = frozenset(inspect.signature(net.forward).parameters)
        return TextReading(tokenizer, longest, net.get_input_embeddings().weight.shape[0], names)

    def pool(self, raw: Raw, title: str) -> TensorPool:
        """Return the texts as a pool for this model. Raise an error if the tokenizer is not the model's."""
        if not isinstance(raw, Texts):
            raise FedfuseError(f"{title} reads texts, which {raw.name} does not hold: choose a model of images")
        try:
            tokens = self.tokenizer(
                raw.x, padding=True, truncation=True, max_length=self.longest, return_tensors="pt"
            )  # fmt: skip
        except Exception as error:  # a damaged tokenizer may raise anything
            raise FedfuseError(
                f"the tokenizer of {title} cannot read {raw.name} ({str(error).partition(chr(10))[0]}): save one with "
                "a padding token beside the model"
            ) from error
        if tokens["input_ids"].numel() == 0:
            raise FedfuseError(
                f"the tokenizer of {title} gives no token for {raw.name}: save the model's own beside it"
            )
        if (highest := int(tokens["input_ids"].max())) >= self.vocabulary:
            raise FedfuseError(
                f"the tokenizer of {title} gives the token {highest}, and its model knows {self.vocabulary}: save the "
                "model's own tokenizer beside it"
            )
        return TensorPool({name: tensor for name, tensor in tokens.items() if name in self.inputs})


Reading = NumberReading | TextReading


@dataclass(frozen=True)
class NamedModel:
    """A model that was named on a command line, and how it takes its inputs."""

    title: str
    net: nn.Module
    reading: Reading
    labels: tuple[str, ...] | None
    arch: str
    processor: Mapping[str, Any] | None = None  # the settings of transformers' image processor, to be saved again


def inputs_hash(pool: NumberPool | TensorPool) -> str:
    """Return a hash of the inputs as a model takes them."""
    if isinstance(pool, TensorPool):
        return hash_of({"": pool.x} if isinstance(pool.x, Tensor) else pool.x)
    return f"{pool.raw.digest} {pool.reading}"


def all_rows(pool: Pool) -> Tensor:
    return torch.arange(len(pool))

"""Encoders of transformers as trunks: BERT and DistilBERT from a configuration, or the pretrained one of a folder."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any, Literal, get_args

from torch import Tensor, nn

from fedfuse.models.classifier import Classifier, Shape, TextTrunk, Trunk, classify
from fedfuse.models.text import masked_mean
from fedfuse.types import FedfuseError

Pooling = Literal["pooler", "first", "mean"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

# Position tables of these models begin after the padding's place.
_SHIFTED = ("camembert", "mpnet", "roberta", "xlm-roberta", "xlm-roberta-xl")


class Encoder(TextTrunk):
    """An encoder and its pooling: features (B, width) of texts.

    "pooler" is the model's own dense layer on the state of its first token, as in BERT; "first" is that state, and
    "mean" is the mean of the states over the mask.
    """

    def __init__(self, encoder: nn.Module, pooling: Pooling) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self._segments = "token_type_ids" in inspect.signature(encoder.forward).parameters
        if pooling != "pooler" and has_pooler(encoder):
            encoder.pooler = None  # type: ignore[assignment]  # its weights would be sent, and never used

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:  # (B, L) -> (B, width)
        segments = {"token_type_ids": token_type_ids} if self._segments and token_type_ids is not None else {}
        output: Any = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **segments)
        if self.pooling == "pooler":
            return output.pooler_output  # type: ignore[no-any-return]
        states: Tensor = output.last_hidden_state  # (B, L, width)
        return states[:, 0] if self.pooling == "first" else masked_mean(states, attention_mask)


def has_pooler(encoder: nn.Module) -> bool:
    return isinstance(getattr(encoder, "pooler", None), nn.Module)


def bert(name: str, layers: int, width: int, heads: int, classes: int, shape: Shape) -> Classifier:
    """BERT with fresh weights, and a linear layer on its pooler (Devlin et al. 2019)."""
    transformers = library(name)
    config = transformers.BertConfig(
        vocab_size=shape[1],
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
    )
    check_fit(name, config, shape)
    return classify(Encoder(transformers.BertModel(config), "pooler"), width, classes)


def distilbert(name: str, classes: int, shape: Shape) -> Classifier:
    """DistilBERT with fresh weights (Sanh et al. 2019), and the dense layer of transformers' classifier after it."""
    transformers = library(name)
    config = transformers.DistilBertConfig(vocab_size=shape[1])
    check_fit(name, config, shape)
    trunk = Trunk(Encoder(transformers.DistilBertModel(config), "first"), nn.Linear(config.dim, config.dim), nn.ReLU())
    return classify(trunk, config.dim, classes)


def check_fit(name: str, config: Any, shape: Shape) -> None:
    """Refuse texts that are longer than the model's table of positions, or ids that its vocabulary does not have."""
    longest, words = shape[0], shape[1] if len(shape) > 1 else None
    most, vocabulary = (getattr(config, key, None) for key in ("max_position_embeddings", "vocab_size"))
    if most is not None and config.model_type in _SHIFTED:
        most -= (config.pad_token_id or 0) + 1
    if most is not None and longest > most:
        raise FedfuseError(f"{name} reads at most {most} tokens, but the texts have up to {longest}: truncate them")
    if words is not None and vocabulary is not None and words > vocabulary:
        raise FedfuseError(
            f"{name} knows {vocabulary:,} token ids, but the texts have {words:,}: encode them with its own tokenizer"
        )


def library(name: str) -> Any:
    """transformers, imported when a net first needs it."""
    try:
        return import_module("transformers")
    except ImportError as error:
        raise FedfuseError(f"{name} needs transformers: `pip install fedfuse[hf]`") from error

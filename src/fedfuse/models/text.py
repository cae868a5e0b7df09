"""Nets for texts in plain PyTorch: a mean of embeddings, and an LSTM (Fed-ET).

They take token ids and their mask (B, L) by keywords, as transformers' nets do. Padding, at the right, changes nothing.
`token_type_ids` are accepted and not used: these nets read a pair of texts as one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fedfuse.compute.batches import sequence_lengths
from fedfuse.models.classifier import Classifier, Shape, TextTrunk, classify

BAG_WIDTH = 64
LSTM_EMBEDDING, LSTM_WIDTH, LSTM_LAYERS = 128, 256, 2


class MeanOfEmbeddings(TextTrunk):
    """The mean of the words' embeddings."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:  # (B, L) -> (B, width)
        return masked_mean(self.embedding(input_ids), attention_mask)


class LastState(TextTrunk):
    """The state of an LSTM after the last word.

    The net runs over the padding too, which costs less than sorting and packing short texts: states before it do not
    depend on it.
    """

    def __init__(self, vocabulary: int, embedding: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, width, layers, batch_first=True)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:  # (B, L) -> (B, width)
        with torch.autocast("cpu", enabled=False):  # not every CPU has an LSTM in bfloat16
            states, _ = self.lstm(self.embedding(input_ids))  # (B, L, width)
        if attention_mask is None:
            return states[:, -1]  # type: ignore[no-any-return]
        last = (sequence_lengths(attention_mask) - 1).clamp(min=0)
        return states[torch.arange(last.shape[0], device=last.device), last]  # type: ignore[no-any-return]


def masked_mean(states: Tensor, mask: Tensor | None) -> Tensor:  # (B, L, D), (B, L) -> (B, D)
    """Return the mean over the words that the mask shows; zeros for a text without words."""
    if mask is None:
        return states.mean(1)
    shown = (mask != 0).to(states.dtype)[:, :, None]
    return (states * shown).sum(1) / shown.sum(1).clamp(min=1)


def bag(width: int, classes: int, shape: Shape) -> Classifier:
    """A linear layer on the mean of embeddings of this width."""
    _, vocabulary = shape
    return classify(MeanOfEmbeddings(vocabulary, width), width, classes)


def lstm(classes: int, shape: Shape) -> Classifier:
    """Two layers of 256 (Fed-ET). The paper does not state the embedding's width."""
    _, vocabulary = shape
    return classify(LastState(vocabulary, LSTM_EMBEDDING, LSTM_WIDTH, LSTM_LAYERS), LSTM_WIDTH, classes)

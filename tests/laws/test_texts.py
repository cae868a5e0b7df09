"""The laws on texts: the same loops as for images, or a refusal that says why."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.testing import LAWS, small_context
from fedfuse.types import FedfuseError
from tests.doubles import brief

WORDS, LENGTH = 12, 7

# The other laws are about updates that have arrived, which are the same for texts.
HELD = ("only_its_arguments_count", "state_survives_the_codec", "honest_answers_are_accepted")


def texts(labels: Examples, seed: int) -> Examples:
    """Texts of 3 to 7 words for these labels: half of the words of class c are c + 1."""
    draw, rows = torch.Generator().manual_seed(seed), len(labels)
    ids = torch.randint(4, WORDS, (rows, LENGTH), generator=draw)
    ids = torch.where(torch.rand(rows, LENGTH, generator=draw) < 0.5, labels.y[:, None] + 1, ids)
    mask = (torch.arange(LENGTH) < torch.randint(3, LENGTH + 1, (rows, 1), generator=draw)).long()
    x = {"input_ids": ids * mask, "attention_mask": mask}
    return replace(labels, x=x, mean=torch.zeros(1), std=torch.ones(1), vocabulary=WORDS)


def text_context(algorithm: Algorithm, archs: tuple[str, ...], server: str, rounds: int) -> Context:
    ctx = small_context(algorithm, archs, server=server, rounds=rounds)
    data, pool = ctx.data, ctx.data.pool
    assert pool is not None
    federation = replace(
        data,
        train=texts(data.train, 1),
        validation=texts(data.validation, 2),
        test=texts(data.test, 3),
        pool=texts(pool, 4),
    )
    assert federation.train.shape == (LENGTH, WORDS)
    return replace(ctx, data=federation, nets=Nets(data.train.classes, federation.train.shape))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "fedma"])
@pytest.mark.parametrize("law", HELD)
def test_every_algorithm_keeps_the_law_on_texts(law: str, name: str) -> None:
    algorithm = brief(name)
    server = "mlp:16" if name == "fedgkt" else "bag:16"
    ctx = text_context(algorithm, ("bag:8",), server, rounds=1 if name == "one-shot" else 2)
    algorithm.check(ctx)
    LAWS[law](algorithm, ctx)


def refused(name: str, archs: tuple[str, ...], server: str) -> str:
    algorithm = brief(name)
    ctx = text_context(algorithm, archs, server, rounds=2)
    with pytest.raises(FedfuseError) as refusal:
        begin(algorithm, ctx)
    return str(refusal.value)


def begin(algorithm: Algorithm, ctx: Context) -> None:
    algorithm.check(ctx)
    ctx.initial()


def test_what_has_no_meaning_on_texts_is_refused() -> None:
    assert "fedma cannot match bag" in refused("fedma", ("bag",), "mlp:8")
    assert "fedma cannot match lstm" in refused("fedma", ("lstm",), "mlp:8")
    assert "the features that bag sends have the shape (64,): lstm reads texts" in refused("fedgkt", ("bag",), "lstm")
    assert "their shapes differ: bag (64,), lstm (256,)" in refused("fedgkt", ("bag", "lstm"), "mlp:8")

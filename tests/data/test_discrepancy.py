"""The proxy A-distance, on data whose distance is known."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from fedfuse.data.discrepancy import FEWEST, MOST, ClientDiscrepancies, features, proxy_distance
from tests.doubles import blobs, federation


def normal(rows: int, seed: int, shift: float = 0.0) -> Tensor:
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(seed)) + torch.tensor([shift, 0.0, 0.0])


def test_the_same_examples_are_at_distance_zero() -> None:
    assert proxy_distance(normal(100, 0), normal(100, 0)) == 0.0
    assert proxy_distance(torch.ones(20, 4), torch.ones(20, 4)) == 0.0  # all alike, at no distance from each other


def test_two_draws_of_one_distribution_are_near_zero() -> None:
    """Guessing, the error of 400 answers has a standard deviation of 0.5 / 20, which is 0.1 in the distance."""
    assert sum(proxy_distance(normal(200, s), normal(200, s + 50)) for s in range(5)) / 5 < 0.15


def test_examples_that_are_far_apart_are_at_distance_two() -> None:
    assert proxy_distance(normal(50, 0), normal(50, 1, shift=20.0)) == 2.0


def test_a_shift_of_two_deviations_has_the_distance_of_the_best_classifier() -> None:
    """The best one answers by the midpoint and errs with probability Phi(-1) = 0.1587: 2 (1 - 2 x 0.1587) = 1.365."""
    best = 2 * (1 - 2 * NormalDist().cdf(-1.0))
    assert proxy_distance(normal(400, 0), normal(400, 1, shift=2.0)) == pytest.approx(best, abs=0.12)


def test_no_line_divides_a_ring_from_its_centre_but_the_classifier_does() -> None:
    angle = torch.linspace(0, 6.28, 100)
    ring = 5 * torch.stack([angle.cos(), angle.sin()], 1)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    assert proxy_distance(ring[order], normal(100, 3)[:, :2]) > 1.9


def texts(first: int, seed: int) -> dict[str, Tensor]:
    """50 texts of 3 to 6 tokens, out of the ten from `first` on; 0 is padding."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.arange(6) < torch.randint(3, 7, (50, 1), generator=draw)
    ids = torch.randint(first, first + 10, (50, 6), generator=draw)
    return {"input_ids": (ids * mask).int(), "attention_mask": mask.to(torch.uint8)}


def test_texts_are_bags_of_tokens_without_padding() -> None:
    one = {"input_ids": torch.tensor([[3, 1, 3, 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 0, 0]])}
    ours, _ = features(one, one)
    assert ours[0].tolist() == pytest.approx([0.0, 1 / 5**0.5, 2 / 5**0.5])  # of 0, 1 and 3
    assert proxy_distance(*features(texts(1, 0), texts(11, 1))) == 2.0
    assert proxy_distance(*features(texts(1, 0), texts(1, 0))) == 0.0


def test_other_mappings_are_their_numbers_side_by_side() -> None:
    both = {"a": torch.ones(2, 3), "b": torch.zeros(2, 1)}, {"a": torch.ones(4, 3), "b": torch.ones(4, 1)}
    ours, theirs = features(*both)
    assert (ours.shape, theirs[:, 3].tolist()) == ((2, 4), [1.0] * 4)


def test_clients_are_compared_by_key_and_only_once() -> None:
    data = federation(clients=4, rows=480)
    near, far = blobs(60, seed=5), replace(blobs(60, seed=5), x=blobs(60, seed=5).tensor + 50)
    one, again = ClientDiscrepancies(data, seed=0), ClientDiscrepancies(data, seed=0)
    backwards = [again.to_others(client) for client in reversed(range(4))][::-1]
    assert [one.to_others(client) for client in range(4)] == backwards
    assert one.to_pool(0, far) == 2.0
    assert one.to_pool(0, near) == 2.0  # cached: the pool of a run is always the same
    assert (one.to_pool(0, near, round=3) or 0.0) < 2.0  # that of a round is not


def test_too_few_examples_give_no_distance() -> None:
    data = federation(clients=1)  # with all 120 rows
    assert ClientDiscrepancies(data, 0).to_others(0) is None
    assert ClientDiscrepancies(data, 0).to_pool(0, blobs(FEWEST - 1, seed=0)) is None
    assert ClientDiscrepancies(data, 0).to_pool(0, blobs(FEWEST, seed=0)) is not None
    assert MOST >= 2 * FEWEST

"""Which client gets which architecture."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedfuse import rng
from fedfuse.context import assign
from fedfuse.types import FedfuseError
from tests.doubles import federation


def test_the_least_capable_take_the_first_named() -> None:
    capability, draw = torch.tensor([3.0, 1.0, 2.0, 9.0]), rng.generator(0, "x")
    halves, quarter = {"small": 1.0, "large": 1.0}, {"small": 3.0, "large": 1.0}
    assert assign(halves, 4, draw, capability) == ("large", "small", "small", "large")
    assert assign(quarter, 4, draw, capability) == ("small", "small", "small", "large")


def test_equals_keep_their_order() -> None:
    assert assign({"a": 1, "b": 1}, 4, rng.generator(0, "x"), torch.zeros(4)) == ("a", "a", "b", "b")


def test_without_a_capability_the_seed_decides() -> None:
    drawn = {assign({"a": 1, "b": 1}, 6, rng.generator(seed, "x")) for seed in range(20)}
    assert len(drawn) > 5
    assert all(sorted(each) == ["a"] * 3 + ["b"] * 3 for each in drawn)


def test_a_clients_capability_is_the_mean_of_its_column() -> None:
    data = federation(2, rows=8)
    train = replace(data.train, columns={"memory": torch.tensor([1, 3, 4, 4, 4, 4, 4, 10])})
    data = replace(data, train=train)
    assert [len(part) for part in data.parts] == [2, 6]
    assert data.client_means("memory").tolist() == [2.0, 5.0]
    with pytest.raises(FedfuseError, match=r"no column 'speed'.*memory"):
        data.client_means("speed")

"""Differences over paired seeds."""

from __future__ import annotations

import pytest

from fedfuse.records.statistics import Difference


def test_the_mean_and_its_standard_error_are_of_the_paired_differences() -> None:
    """Differences 0.02, 0.04, 0.06: mean 0.04, sample deviation 0.02, standard error 0.02 / sqrt(3)."""
    difference = Difference.paired([0.52, 0.74, 0.96], [0.50, 0.70, 0.90])
    assert difference.mean == pytest.approx(0.04)
    assert difference.error == pytest.approx(0.02 / 3**0.5)
    assert difference.clear
    assert difference.points() == "+4.00 ± 1.15"


def test_what_is_within_two_standard_errors_of_zero_is_noise() -> None:
    """Differences -0.01 and 0.03: mean 0.01, sample deviation 0.04 / sqrt(2), standard error 0.02."""
    difference = Difference.paired([0.49, 0.53], [0.5, 0.5])
    assert difference.error == pytest.approx(0.02)
    assert not difference.clear
    assert difference.points() == "+1.00 ± 2.00, within noise"


def test_one_seed_has_no_error() -> None:
    difference = Difference.paired([0.6], [0.5])
    assert (difference.error, difference.clear) == (None, False)
    assert difference.points() == "+10.00, one seed"

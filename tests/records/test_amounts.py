"""Amounts in words."""

import pytest

from fedfuse.records.amounts import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (12.34, "12.3 s"),
        (245, "4 min 5 s"),
        (7800, "2 h 10 min"),
        (47.9 * 3600, "47 h 54 min"),
        (526_467, "6 d 2 h"),  # 6 x 86,400 = 518,400; 8,067 left
    ],
)
def test_a_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfuse.models.norms import groups


@given(st.integers(1, 4096))
def test_groups_divide_the_channels(channels: int) -> None:
    count = groups(channels)
    assert channels % count == 0
    assert 1 <= count <= 32
    assert count == 1 or channels // count >= 8


@pytest.mark.parametrize(
    ("channels", "expected"), [(6, 1), (16, 2), (24, 3), (32, 4), (58, 2), (64, 8), (116, 4), (232, 29), (512, 32)]
)
def test_group_counts(channels: int, expected: int) -> None:
    assert groups(channels) == expected

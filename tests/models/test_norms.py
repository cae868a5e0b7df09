import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedfuse.models import build
from fedfuse.models.norms import groups, norm1d


@given(st.integers(1, 4096))
def test_groups_divide_the_channels(channels: int) -> None:
    count = groups(channels)
    assert channels % count == 0
    assert 1 <= count <= 32
    assert count == 1 or channels // count >= 8


def group_counts(name: str) -> list[tuple[int, int]]:
    """The channels and groups of each layer."""
    net = build(name, classes=10, shape=(3, 32, 32))
    return [(m.num_channels, m.num_groups) for m in net.modules() if isinstance(m, nn.GroupNorm)]


def test_the_name_says_how_many_groups_there_are() -> None:
    assert set(group_counts("resnet8:gn")) == {(16, 2), (32, 4), (64, 8)}
    assert set(group_counts("resnet8:gn4")) == {(16, 4), (32, 4), (64, 4)}
    assert set(group_counts("resnet8:gn1")) == {(16, 1), (32, 1), (64, 1)}
    assert group_counts("mlp:64-32:gn16") == [(64, 16), (32, 16)]
    assert group_counts("resnet8:gn16+head8") == group_counts("resnet8:gn16")


def test_groups_by_name_normalise_each_group() -> None:
    layer = norm1d("gn2", 4)
    values = layer(torch.tensor([[1.0, 3.0, 10.0, 30.0]]))
    torch.testing.assert_close(values, torch.tensor([[-1.0, 1.0, -1.0, 1.0]]), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("channels", "expected"), [(6, 1), (16, 2), (24, 3), (32, 4), (58, 2), (64, 8), (116, 4), (232, 29), (512, 32)]
)
def test_group_counts(channels: int, expected: int) -> None:
    assert groups(channels) == expected

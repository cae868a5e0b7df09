import pytest
import torch

from fedfuse.data import statistics
from fedfuse.data.statistics import channel_statistics


def test_of_images_by_hand() -> None:
    x = torch.tensor([0, 255, 0, 255], dtype=torch.uint8).view(2, 1, 1, 2)
    mean, std = channel_statistics(x)
    assert mean.tolist() == [0.5]
    assert std.tolist() == [0.5]


def test_a_constant_channel_normalises_to_zero() -> None:
    mean, std = channel_statistics(torch.full((4, 1, 2, 2), 51, dtype=torch.uint8))
    assert mean.tolist() == pytest.approx([0.2])
    assert std.tolist() == [1.0]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_chunks_agree_with_the_whole(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randint(256, (37, 3, 5, 4), generator=torch.Generator().manual_seed(0)).to(dtype)
    monkeypatch.setattr(statistics, "CHUNK", 8)
    mean, std = channel_statistics(x)
    whole = x.double() / (255 if dtype == torch.uint8 else 1)
    torch.testing.assert_close(mean, whole.mean((0, 2, 3)).float())
    torch.testing.assert_close(std, whole.std((0, 2, 3), correction=0).float())


def test_features_have_a_statistic_each() -> None:
    mean, std = channel_statistics(torch.tensor([[1.0, 10.0], [3.0, 10.0]]))
    assert mean.tolist() == [2.0, 10.0]
    assert std.tolist() == [1.0, 1.0]

import pytest
import torch
import torch.nn.functional as F

from fedfuse.data.augment import Compose, Flip, PadCrop, augmentation, crop
from fedfuse.types import FedfuseError


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(5 * 3 * 4 * 6, dtype=torch.float32).view(5, 3, 4, 6).to(memory_format=torch.channels_last)


def test_crop_is_a_slice_per_image(x: torch.Tensor) -> None:
    padded = F.pad(x, (2, 2, 2, 2))
    top, left = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([4, 0, 3, 1, 2])
    cut = crop(padded, top, left, 4, 6)
    for b, (t, w) in enumerate(zip(top, left, strict=True)):
        assert torch.equal(cut[b], padded[b, :, t : t + 4, w : w + 6])


def test_a_centred_crop_changes_nothing_and_a_corner_crop_brings_zeros(x: torch.Tensor) -> None:
    padded = F.pad(x, (2, 2, 2, 2))
    centre, corner = torch.full((5,), 2), torch.zeros(5, dtype=torch.long)
    assert torch.equal(crop(padded, centre, centre, 4, 6), x)
    assert torch.equal(crop(padded, corner, corner, 4, 6)[:, :, 2:, 2:], x[:, :, :2, :4])
    assert (crop(padded, corner, corner, 4, 6)[:, :, :2] == 0).all()


def test_crops_reach_every_offset() -> None:
    mark = torch.zeros(2000, 1, 3, 3)
    mark[:, :, 1, 1] = 1
    moved = PadCrop(1)(mark, torch.Generator().manual_seed(0))
    assert moved.sum(0).squeeze().gt(2000 / 9 / 2).all()


def test_flip_flips(x: torch.Tensor) -> None:
    rng = torch.Generator().manual_seed(0)
    assert torch.equal(Flip(1.0)(x, rng), x.flip(3))
    assert torch.equal(Flip(0.0)(x, rng), x)
    many = torch.arange(2.0).expand(1000, 1, 1, 2)
    assert 400 < int(Flip()(many, rng)[:, 0, 0, 0].sum()) < 600


def test_layout_shape_and_seed_are_kept(x: torch.Tensor) -> None:
    change = augmentation("crop+flip", (3, 4, 6))
    once, again = (change(x, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(once, again)
    assert once.shape == x.shape
    assert once.is_contiguous(memory_format=torch.channels_last)
    assert change(x.contiguous(), torch.Generator()).is_contiguous()


def test_names() -> None:
    assert augmentation("none", (2,)) == Compose()
    assert augmentation("crop+flip", (3, 32, 32)) == Compose((PadCrop(4), Flip()))
    assert augmentation("crop:2", (3, 32, 32)) == Compose((PadCrop(2),))
    with pytest.raises(FedfuseError, match="'spin' is unknown"):
        augmentation("flip+spin", (3, 32, 32))
    with pytest.raises(FedfuseError, match="needs images"):
        augmentation("flip", (2,))

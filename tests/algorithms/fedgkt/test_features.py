"""Features that wait in memory or in a file: the same rows."""

from __future__ import annotations

import pytest
import torch

from fedfuse.algorithms.fedgkt.features import Features
from fedfuse.types import FedfuseError


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4)])
@pytest.mark.parametrize("bound", [0, 150, 10**6], ids=["all spilled", "spilled midway", "kept"])
def test_rows_come_back_as_they_were_sent(shape: tuple[int, ...], bound: int) -> None:
    sent = [torch.randn(n, *shape) for n in (3, 1, 4, 6)]
    features = Features(bound)
    rows = [features.append(part) for part in sent]
    assert features.spilled == (bound < 10**6)
    assert len(features) == 14
    for index, part in zip(rows, sent, strict=True):
        assert torch.equal(features.batch(index), part)
    mixed = torch.tensor([13, 0, 4, 4])
    assert torch.equal(features.batch(mixed), torch.cat(sent)[mixed])


def test_what_is_kept_is_a_copy() -> None:
    features, sent = Features(), torch.ones(2, 3)
    rows = features.append(sent)
    sent.zero_()
    features.batch(rows).zero_()
    assert torch.equal(features.batch(rows), torch.ones(2, 3))


def test_maps_are_in_the_layout_of_images() -> None:
    features = Features()
    rows = features.append(torch.randn(4, 8, 5, 5))
    assert features.batch(rows).is_contiguous(memory_format=torch.channels_last)


def test_one_shape_only() -> None:
    features = Features()
    features.append(torch.ones(2, 3))
    with pytest.raises(FedfuseError, match=r"\(3,\) are followed by others of shape \(4,\)"):
        features.append(torch.ones(2, 4))

import torch

from fedfuse.data.sources import load


def test_a_batch_is_the_normalised_rows() -> None:
    train = load("digits").train
    rows = torch.tensor([3, 0, 3])
    by_hand = (train.x[rows].float() / 255 - train.mean.view(1, 1, 1, 1)) / train.std.view(1, 1, 1, 1)
    torch.testing.assert_close(train.batch(rows), by_hand)


def test_features_are_normalised_without_touching_the_data() -> None:
    train = load("swiss-roll", arguments={"examples": 30}).train
    before = train.x.clone()
    everything = train.batch(torch.arange(30))
    assert torch.equal(train.x, before)
    torch.testing.assert_close(everything.mean(0), torch.zeros(2), atol=1e-5, rtol=0)


def test_a_subset_keeps_statistics_and_columns() -> None:
    from dataclasses import replace

    train = load("digits").train
    part = replace(train, columns={"user": torch.arange(1437)}).subset(torch.tensor([5, 2]))
    assert part.columns["user"].tolist() == [5, 2]
    assert torch.equal(part.x, train.x[[5, 2]])
    assert part.mean is train.mean

"""Entries of the cache, made by several processes at once."""

import torch

from fedfuse.data.sources.cache import cached, cached_arrays
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Source


def _source() -> Source:
    x, y = torch.arange(8.0).view(4, 2), torch.tensor([0, 1, 0, 1])
    return Source.of((x, y, {}), (x[:2], y[:2], {}), ("a", "b"))


def test_an_entry_that_another_process_made_meanwhile_stays_in_its_place(location: Location) -> None:
    """It may be reading it: two runs that were started together on a new machine both decode the data."""
    made = []

    def slow() -> Source:
        if not made:  # the other process, which is done while this one still decodes
            made.append(1)
            cached(location, "data", {"size": 1}, slow)
            made.append(_inodes(location))
        return _source()

    ours = cached(location, "data", {"size": 1}, slow)
    assert made[1] == _inodes(location)
    assert torch.equal(ours.train.x, _source().train.x)


def test_arrays_that_another_process_made_meanwhile_stay_in_their_place(location: Location) -> None:
    made = []

    def slow() -> tuple[dict[str, torch.Tensor], dict[str, str]]:
        if not made:
            made.append(1)
            cached_arrays(location, "features", slow, ["x"])
            made.append(_inodes(location))
        return {"x": torch.ones(3)}, {}

    tensors, _ = cached_arrays(location, "features", slow, ["x"])
    assert made[1] == _inodes(location)
    assert torch.equal(tensors["x"], torch.ones(3))


def test_a_damaged_entry_is_made_again(location: Location) -> None:
    cached(location, "data", {"size": 1}, _source)
    (file,) = location.cache.glob("data-*/00-*.npy")
    file.write_bytes(file.read_bytes()[:-4])
    assert torch.equal(cached(location, "data", {"size": 1}, _source).train.x, _source().train.x)


def _inodes(location: Location) -> dict[str, int]:
    return {str(file): file.stat().st_ino for file in location.cache.rglob("*")}

import pytest
import torch

from fedfuse import rng
from fedfuse.data.pool import POOLS, Pooled, fit
from fedfuse.data.sources import load
from fedfuse.data.sources.location import Location
from fedfuse.data.sources.source import Source
from fedfuse.types import FedfuseError
from tests.data.small_data import labelled, pictures, write_parquet


@pytest.fixture(scope="module")
def digits() -> Source:
    return load("digits")


def test_split_takes_out_what_it_pools(digits: Source, location: Location) -> None:
    got = POOLS["split"](digits.train, rng.generator(0, "pool"), location, size=0.1)
    assert got.rest is not None
    assert (len(got.pool), len(got.rest)) == (144, 1437 - 144)
    assert not got.pool.y.any()
    both = torch.cat((got.pool.x, digits.train.x[got.rest])).flatten(1)
    assert torch.equal(both.long().sum(0), digits.train.x.flatten(1).long().sum(0))
    assert torch.equal(got.pool.mean, digits.train.mean)
    assert len(POOLS["split"](digits.train, rng.generator(0, "pool"), location, size=7).pool) == 7
    with pytest.raises(FedfuseError, match="asks for 5,000 of 1,437"):
        POOLS["split"](digits.train, rng.generator(0, "pool"), location, size=5000)


def test_split_uses_the_first_of_what_it_takes_out(digits: Source, location: Location) -> None:
    def made(**settings: float) -> Pooled:
        return POOLS["split"](digits.train, rng.generator(0, "pool"), location, size=400, **settings)

    whole, small, smaller = made(), made(use=100), made(use=0.1)
    assert [len(got.pool) for got in (whole, small, smaller)] == [400, 100, 40]
    rows = [{tuple(x.flatten().tolist()) for x in got.pool.tensor} for got in (whole, small, smaller)]
    assert rows[0] > rows[1] > rows[2]
    for got in (small, smaller):
        assert torch.equal(got.rest, whole.rest)
    assert torch.equal(made(use=400).pool.tensor, whole.pool.tensor)
    with pytest.raises(FedfuseError, match=r"data\.pool\.use asks for 401 of 400"):
        made(use=401)


def test_split_can_be_changed_once(digits: Source, location: Location) -> None:
    """Fed-ET's public data is transformed: the same rows are taken, each mirrored or not."""
    plain = POOLS["split"](digits.train, rng.generator(0, "pool"), location, size=100)
    changed = POOLS["split"](digits.train, rng.generator(0, "pool"), location, size=100, augment="flip")
    assert torch.equal(plain.rest, changed.rest)
    assert changed.pool.x.dtype == torch.uint8
    mirrored = (changed.pool.x == plain.pool.x.flip(3)).flatten(1).all(1)
    same = (changed.pool.x == plain.pool.x).flatten(1).all(1)
    assert bool((mirrored | same).all())
    assert 30 < int(mirrored.sum()) < 70


def test_source_is_resized_and_has_its_own_statistics(digits: Source, location: Location) -> None:
    arguments = {"examples": 60, "classes": 3, "shape": [3, 16, 16]}
    got = POOLS["source"](
        digits.train, rng.generator(0, "pool"), location, name="synthetic", size=20, arguments=arguments
    )
    assert got.rest is None
    assert got.pool.x.shape == (20, 1, 8, 8)
    assert got.pool.classes == 10
    normalised = got.pool.batch(torch.arange(20))
    assert normalised.mean().item() == pytest.approx(0, abs=1e-4)
    assert normalised.std(correction=0).item() == pytest.approx(1, abs=1e-4)


def test_source_by_classes(digits: Source, location: Location) -> None:
    assert location.data_dir is not None
    images = pictures(10, size=8)
    images[::2] = 10  # the cats
    write_parquet(location.data_dir / "pets" / "train.parquet", images)
    for chosen in ({"classes": ("cat",)}, {"without": (1,)}):
        got = POOLS["source"](
            digits.train, rng.generator(0, "pool"), location, name="pets", arguments={"holdout": 2}, **chosen
        )
        assert len(got.pool) == 4
        assert (got.pool.x == 10).all()
    with pytest.raises(FedfuseError, match="pool pets has no class 'cow': it has cat, dog"):
        POOLS["source"](digits.train, rng.generator(0, "pool"), location, name="pets", classes=("cow",))


def test_fit_by_hand(digits: Source) -> None:
    like = load("synthetic", arguments={"examples": 2, "classes": 2, "shape": [1, 1, 1]}).train
    colour = torch.tensor([[[[100]], [[200]], [[50]]]], dtype=torch.uint8)
    # 0.299 x 100 + 0.587 x 200 + 0.114 x 50 = 153
    assert fit(colour, torch.tensor([0]), like, "pool").item() == 153
    square = torch.tensor([[[[10, 20], [30, 40]]]], dtype=torch.uint8)
    assert fit(square, torch.tensor([0]), like, "pool").item() == 25  # antialiased: the mean, not a corner
    three = load("synthetic", arguments={"examples": 2, "classes": 2, "shape": [3, 2, 2]}).train
    assert torch.equal(fit(square, torch.tensor([0, 0]), three, "pool"), square.expand(2, 3, 2, 2))


def test_fit_refuses_what_is_no_image(digits: Source, location: Location) -> None:
    with pytest.raises(FedfuseError, match=r"pool swiss-roll: .*float32 \(2,\).*uint8 \(1, 8, 8\): .* choose a pool"):
        POOLS["source"](digits.train, rng.generator(0, "pool"), location, name="swiss-roll")


def test_noise(digits: Source, location: Location) -> None:
    got = POOLS["noise"](digits.train, rng.generator(0, "pool"), location, size=500)
    assert got.pool.x.shape == (500, 1, 8, 8)
    assert got.pool.x.float().mean().item() == pytest.approx(127.5, abs=2)
    assert got.pool.mean.item() == pytest.approx(0.5, abs=0.01)


def test_noise_for_features_fills_their_box(location: Location) -> None:
    train = load("swiss-roll", arguments={"examples": 300}).train
    got = POOLS["noise"](train, rng.generator(0, "pool"), location, size=2000).pool
    low, high = train.x.amin(0), train.x.amax(0)
    assert (got.x >= low).all()
    assert (got.x <= high).all()
    torch.testing.assert_close(got.x.mean(0), (low + high) / 2, atol=1.0, rtol=0)
    assert torch.equal(got.mean, train.mean)


def test_split_by_users_holds_out_whole_users(location: Location) -> None:
    users = torch.arange(60) % 12
    data = labelled(60, 3, {"user": users})
    made = POOLS["split"](data, rng.generator(0, "x"), location, size=0.3, column="user")
    assert made.rest is not None
    assert len(made.pool) == 20  # the fourth user of five examples reaches 18
    assert len(set(users[made.rest].tolist())) == 8
    assert len(made.pool) + len(made.rest) == 60
    with pytest.raises(FedfuseError, match="the data has no column 'writer', it has user"):
        POOLS["split"](data, rng.generator(0, "x"), location, column="writer")
    with pytest.raises(FedfuseError, match="would take all 12 users"):
        POOLS["split"](data, rng.generator(0, "x"), location, size=59, column="user")

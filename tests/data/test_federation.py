import json
from functools import partial
from pathlib import Path

import pytest
import torch

from fedfuse.data import arrays, federation
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation, federate
from fedfuse.data.holdout import amount, stratified
from fedfuse.data.partition import dirichlet, iid, step
from fedfuse.data.pool import noise, split
from fedfuse.data.sources import load
from fedfuse.data.sources.location import Location
from fedfuse.types import DamagedError, FedfuseError


@pytest.fixture
def made(location: Location) -> Federation:
    scheme = partial(dirichlet, alpha=0.5)
    return federate(
        load("digits"), clients=6, scheme=scheme, pool=partial(split, location=location, size=0.2), validation=0.1
    )


def test_nothing_is_lost_and_nothing_is_twice(made: Federation) -> None:
    assert made.pool is not None
    assert (len(made.validation), len(made.pool), len(made.train)) == (144, 259, 1034)
    assert torch.equal(torch.cat(made.parts).sort().values, torch.arange(1034))
    together = torch.cat((made.train.x, made.pool.x, made.validation.x)).flatten(1)
    whole = load("digits").train.x.flatten(1)
    for rows in (together, whole):
        assert len(rows) == 1437
    assert torch.equal(together.long().square().sum(0), whole.long().square().sum(0))
    assert made.sizes == tuple(made.counts.sum(1).tolist())
    assert len(made) == 6


def test_a_client_is_rows_of_one_tensor(made: Federation) -> None:
    rows = made.client(2)
    assert rows.dtype == torch.int64
    assert made.train.batch(rows[:5]).shape == (5, 1, 8, 8)
    with pytest.raises(FedfuseError, match="there is no client 6: this federation has clients 0 to 5"):
        made.client(6)


def test_validation_is_stratified_and_may_be_empty(location: Location) -> None:
    data = load("digits")
    held = federate(data, clients=2, scheme=iid, validation=100).validation
    assert len(held) == 100
    assert (torch.bincount(held.y) - torch.bincount(data.train.y) * 100 / 1437).abs().max() < 1
    none = federate(data, clients=2, scheme=iid, validation=0)
    assert len(none.validation) == 0
    assert none.train.x is data.train.x  # nothing was taken out, so nothing is copied
    assert none.validation.batch(torch.arange(0)).shape == (0, 1, 8, 8)


def test_hold_outs_by_hand() -> None:
    y = torch.tensor([0] * 6 + [1] * 3 + [3])
    rest, held = stratified(y, 4, torch.Generator().manual_seed(0))
    # 4/10 of 6, 3 and 1 is 2.4, 1.2 and 0.4: 2, 1, 0 and the one over to a largest remainder, 0.4.
    assert torch.bincount(y[held], minlength=4).tolist() in ([3, 1, 0, 0], [2, 1, 0, 1])
    assert torch.cat((rest, held)).sort().values.tolist() == list(range(10))
    assert (amount(0.25, 10, "x"), amount(3, 10, "x"), amount(0, 10, "x")) == (2, 3, 0)
    with pytest.raises(FedfuseError, match="validation asks for 11 of 10"):
        amount(11, 10, "validation")


def test_clients_have_the_same_data_however_much_of_the_pool_is_used(location: Location) -> None:
    pools = [partial(split, location=location, size=300, use=use) for use in (20, 150, 300, None)]
    first, *others = (federate(load("digits"), clients=4, scheme=iid, pool=pool) for pool in pools)
    for other in others:
        assert torch.equal(other.train.x, first.train.x)
        assert all(map(torch.equal, other.parts, first.parts))
        assert torch.equal(other.validation.x, first.validation.x)


def test_each_client_keeps_a_share_of_every_class(location: Location) -> None:
    data, scheme = load("digits"), partial(dirichlet, alpha=1.0)
    whole = federate(data, clients=5, scheme=scheme)
    half = federate(data, clients=5, scheme=scheme, keep=0.5)
    assert torch.equal(half.train.x, whole.train.x)
    for part, all_rows in zip(half.parts, whole.parts, strict=True):
        assert len(part) == round(0.5 * len(all_rows))
        assert torch.isin(part, all_rows).all()
        assert torch.equal(part, part.sort().values)
    assert (half.counts - whole.counts / 2).abs().max() < 1
    assert federate(data, clients=5, scheme=scheme, keep=1.0).fingerprint == whole.fingerprint
    assert min(federate(data, clients=5, scheme=scheme, keep=1e-9).sizes) == 1
    with pytest.raises(FedfuseError, match=r"partition\.keep = 0: "):
        federate(data, clients=5, scheme=scheme, keep=0.0)


def test_what_a_client_keeps_depends_on_the_seed_and_not_on_the_draws_of_the_scheme(location: Location) -> None:
    def same_parts(examples: Examples, clients: int, draw: torch.Generator, numbers: int) -> list[torch.Tensor]:
        torch.rand(numbers, generator=draw)
        return list(torch.arange(len(examples)).chunk(clients))

    def parts(numbers: int, seed: int) -> list[list[int]]:
        scheme = partial(same_parts, numbers=numbers)
        made = federate(load("digits"), clients=3, scheme=scheme, validation=0, keep=0.5, seed=seed)
        return [part.tolist() for part in made.parts]

    assert parts(0, 0) == parts(100, 0) != parts(0, 1)


def test_the_seed_decides(location: Location) -> None:
    data = load("digits")
    prints = [federate(data, clients=4, scheme=iid, seed=s).fingerprint for s in (0, 0, 1)]
    assert prints[0] == prints[1] != prints[2]
    other = federate(data, clients=4, scheme=partial(step, major=3, minor=2))
    assert torch.equal(other.validation.x, federate(data, clients=4, scheme=iid).validation.x)


def test_the_fingerprint_sees_every_part(made: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    def changed(examples: object) -> object:
        x = examples.x.clone()
        x[-1, 0, 0, 0] += 1
        return replace(examples, x=x)

    variants = [replace(made, **{n: changed(getattr(made, n))}) for n in ("train", "validation", "test", "pool")]
    variants += [replace(made, pool=None), replace(made, parts=made.parts[::-1]), made]
    assert len({v.fingerprint for v in variants}) == len(variants)
    monkeypatch.setattr(federation, "CHUNK", 7)
    assert replace(made).fingerprint == made.fingerprint


@pytest.mark.parametrize("pooled", [True, False])
def test_saved_and_opened_it_is_the_same(pooled: bool, location: Location, tmp_path: Path) -> None:
    pool = partial(noise, location=location, size=20) if pooled else None
    made = federate(load("digits"), clients=5, scheme=iid, pool=pool, validation=0.0)
    made.save(tmp_path / "fed")
    opened = Federation.open(tmp_path / "fed")
    assert opened.fingerprint == made.fingerprint
    assert opened.labels == made.labels
    assert all(torch.equal(a, b) for a, b in zip(opened.parts, made.parts, strict=True))
    assert (opened.pool is None) == (not pooled)
    assert torch.equal(opened.train.batch(opened.client(1)), made.train.batch(made.client(1)))


def test_columns_survive(tmp_path: Path) -> None:
    from dataclasses import replace

    data = load("digits")
    train = replace(data.train, columns={"user / écrivain": torch.arange(1437)})
    federate(replace(data, train=train), clients=2, scheme=iid, validation=0.5).save(tmp_path / "fed")
    opened = Federation.open(tmp_path / "fed")
    assert len(opened.train.columns["user / écrivain"]) == len(opened.train)


def test_a_damaged_folder_is_refused(made: Federation, tmp_path: Path) -> None:
    made.save(tmp_path / "fed")
    made.save(tmp_path / "fed")  # over itself
    assert [p.name for p in tmp_path.iterdir()].count("fed") == 1
    manifest = tmp_path / "fed" / "manifest.json"
    facts = json.loads(manifest.read_text())
    del facts["arrays"]["parts"]
    manifest.write_text(json.dumps(facts))
    with pytest.raises(DamagedError, match=r"manifest.json is not as it was written"):
        Federation.open(tmp_path / "fed")
    manifest.write_text(json.dumps({**facts, "sha256": arrays._hash_of_manifest(facts)}))
    with pytest.raises(DamagedError, match=r"is an incomplete federation .* save it again"):
        Federation.open(tmp_path / "fed")
    with pytest.raises(DamagedError, match="cannot be read"):
        Federation.open(tmp_path / "elsewhere")


def test_a_flipped_byte_is_seen_where_the_folder_is_not_brand_new(made: Federation, tmp_path: Path) -> None:
    made.save(tmp_path / "fed")
    file = tmp_path / "fed" / "00-train.x.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedError, match=r"00-train\.x\.npy is not as it was written"):
        arrays.read(tmp_path / "fed")


def test_a_manifest_cannot_point_out_of_its_folder(made: Federation, tmp_path: Path) -> None:
    made.save(tmp_path / "fed")
    torch_file = tmp_path / "secret.npy"
    torch_file.write_bytes((tmp_path / "fed" / "00-train.x.npy").read_bytes())
    (tmp_path / "fed" / "00-train.x.npy").unlink()
    manifest = tmp_path / "fed" / "manifest.json"
    facts = json.loads(manifest.read_text().replace("00-train.x.npy", "../secret.npy"))
    manifest.write_text(json.dumps({**facts, "sha256": arrays._hash_of_manifest(facts)}))
    with pytest.raises(DamagedError):
        Federation.open(tmp_path / "fed")

"""FedBE's Figure 1 at a tiny size."""

from pathlib import Path

import pytest
import torch

from fedfuse.context import Context
from fedfuse.papers.comparison import experiment_of
from fedfuse.papers.item import Item, load
from fedfuse.papers.measures import swiss_roll
from fedfuse.papers.study import PICTURE
from fedfuse.runs.display import Silent
from fedfuse.types import Snapshot

TINY = {"data.examples": 300, "models.clients": "mlp:8", "run.rounds": 1, "local.batch_size": 40}


@pytest.fixture(scope="module")
def item() -> Item:
    figure = load("fedbe-figure-1")
    return figure.model_copy(update={"groups": (figure.groups[0].model_copy(update={"small": TINY}),)})


@pytest.fixture(scope="module")
def ctx(item: Item) -> Context:
    return swiss_roll.context(experiment_of(item, item.groups[0], "small"), 0)


@pytest.fixture(scope="module")
def trained(ctx: Context) -> tuple[Snapshot, list[Snapshot]]:
    return swiss_roll.train(ctx)


def equal(first: Snapshot, second: Snapshot) -> bool:
    return all(torch.allclose(first.params[name], value, atol=1e-5) for name, value in second.params.items())


def test_clients_are_those_of_the_paper_and_fedavg_is_their_centre(
    ctx: Context, trained: tuple[Snapshot, list[Snapshot]]
) -> None:
    assert ctx.data.sizes == (100, 100, 100)
    assert all(sorted(counts) == [10, 10, 80] for counts in ctx.data.counts.tolist())
    average, clients = trained
    assert equal(swiss_roll.mixture(clients, [1 / 3] * 3), average)


def test_the_marked_shares_are_those_of_the_samples(ctx: Context, trained: tuple[Snapshot, list[Snapshot]]) -> None:
    _, clients = trained
    drawn = swiss_roll.survey(clients, ctx, sides=1).drawn.tolist()
    samples = swiss_roll.mixtures(clients, swiss_roll.SAMPLES, ctx)
    assert all(equal(swiss_roll.mixture(clients, shares), s) for shares, s in zip(drawn, samples, strict=True))


def test_it_measures_every_row_and_draws(item: Item, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swiss_roll.measure_seed, "__defaults__", (3,))
    curves = swiss_roll.measure(item, "small", [0, 1], tmp_path, Silent())[item.groups[0].name]
    assert list(curves) == [row.name for row in item.rows]
    assert all(len(seeds) == 2 for seeds in curves.values())
    assert (tmp_path / PICTURE).stat().st_size > 10_000
    # The corners of the triangle are the clients: their mean cannot be above the best mixture.
    best = curves["best mixture, chosen on the test data"]
    assert all(client <= most for client, most in zip(curves["one client, mean"], best, strict=True))

"""`run.discrepancy`: what is measured beside a fusion, which it does not change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fedfuse
from fedfuse.algorithms import fedavg, feddf
from fedfuse.context import Context
from fedfuse.data.discrepancy import FEWEST, ClientDiscrepancies
from fedfuse.engines import InProcess
from fedfuse.evaluate import evaluate
from fedfuse.fusion import AdamCosine
from fedfuse.round import run_round
from fedfuse.testing import all_bits, model_of
from fedfuse.types import FedfuseError, ServerState
from fedfuse.vet import Vetting
from tests.doubles import blobs, trained

QUICK = AdamCosine(steps=5, batch_size=16)


def measuring(ctx: Context) -> Context:
    return replace(ctx, discrepancies=ClientDiscrepancies(ctx.data, ctx.seed))


def test_facts_are_added_and_no_bit_moves(ctx: Context, server: ServerState) -> None:
    ctx = replace(ctx, data=replace(ctx.data, pool=blobs(40, seed=9)))
    plain, without = run_round(feddf(distiller=QUICK), server, InProcess(), [0, 1, 2], Vetting(), ctx)
    fused, record = run_round(feddf(distiller=QUICK), server, InProcess(), [0, 1, 2], Vetting(), measuring(ctx))
    assert all_bits(fused.models) == all_bits(plain.models)
    assert replace(record.facts, discrepancy={}) == without.facts
    assert not without.facts.discrepancy
    assert list(record.facts.discrepancy) == ["0", "1", "2"]
    for client, update in enumerate(trained(ctx, server, fedavg(), range(3))):
        own = ctx.data.train.subset(ctx.data.parts[client])
        measured = record.facts.discrepancy[str(client)]
        assert measured.own_error == pytest.approx(1 - evaluate(ctx.nets.load(model_of(update)), own).accuracy)
        assert measured.others == ClientDiscrepancies(ctx.data, ctx.seed).to_others(client)
        assert (measured.pool is None) == (len(own) < FEWEST)
    assert record.parse(record.line()).facts == record.facts


def test_without_a_pool_only_the_clients_are_compared(ctx: Context, server: ServerState) -> None:
    ctx = replace(ctx, data=replace(ctx.data, pool=None))
    _, record = run_round(fedavg(), server, InProcess(), [1, 3], Vetting(), measuring(ctx))
    assert [each.pool for each in record.facts.discrepancy.values()] == [None, None]
    assert all(each.others is not None for each in record.facts.discrepancy.values())


def test_a_flower_server_refuses_it() -> None:
    server_app = pytest.importorskip("fedfuse.flower").server_app
    experiment = fedfuse.load(Path(__file__).parent / "small.toml", {"run.discrepancy": True})
    with pytest.raises(FedfuseError, match=r"never sees: leave it out, or simulate with fedfuse run"):
        server_app(experiment)

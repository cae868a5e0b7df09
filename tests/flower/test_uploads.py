"""Clients of several precisions over a Grid: the same bits as in this process, and malformed packings are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import fedfuse
from fedfuse import codec
from fedfuse.engines import InProcess
from fedfuse.flower import Deployment, client_app
from fedfuse.flower.reply_checks import Expected, Refused
from fedfuse.flower.server import serve
from fedfuse.local import uploads
from fedfuse.records.stored import StoredRun
from fedfuse.round import run_round
from fedfuse.testing import all_bits
from fedfuse.types import PackedModel, Update
from fedfuse.vet import Vetting
from tests.command_line import rounds_of
from tests.flower.federations import NODE_OF, NODES, bits_of, deployed, experiment
from tests.flower.grid import LocalGrid
from tests.flower.test_hostile import sends, with_header

MIXED = {"mlp:8-6:bn:1bit": 1, "mlp:8-6:bn:int8": 1, "mlp:8-6:bn": 1}
WEIGHT = "trunk.4.weight"
LIAR = 1


def packed(name: str = "fedavg", **settings: object) -> fedfuse.Experiment:
    return experiment(name, **{"models.clients": MIXED, **settings})


@pytest.mark.parametrize("name", ["fedavg", "feddf", "scaffold"])
def test_nodes_give_the_same_bits_and_remember_what_their_uploads_lost(name: str, tmp_path: Path) -> None:
    made = packed(name, **{"local.error_feedback": True, "local.upload": "bfloat16"})
    fedfuse.run(made, tmp_path / "here")
    serve(made, LocalGrid(client_app(made), NODES), Deployment(out=str(tmp_path / "there")))
    assert bits_of(tmp_path / "there") == bits_of(tmp_path / "here")
    assert rounds_of(tmp_path / "there") == rounds_of(tmp_path / "here")
    assert all(not record["rejected"] for record in rounds_of(tmp_path / "there"))


def test_the_server_assigns_precisions_by_the_nodes_capabilities(tmp_path: Path) -> None:
    made = packed(**{"run.rounds": 1})
    nodes = {node: {**config, "capability": float(3 - int(config["partition-id"]))} for node, config in NODES.items()}
    serve(made, LocalGrid(client_app(made), nodes), Deployment(out=str(tmp_path / "run"), start=3))
    federation = StoredRun.open(tmp_path / "run").federation
    assert federation is not None
    assert list(federation.uploads) == ["float32", "int8", "1bit, one-bit net"]
    assert rounds_of(tmp_path / "run")[0]["rejected"] == {}


def lies(change: Callable[[PackedModel], PackedModel]) -> Callable[[Update], Update]:
    def changed(update: Update) -> Update:
        assert update.packed is not None
        return replace(update, packed=change(update.packed))

    return changed


def code(change: Callable[[Tensor], Tensor]) -> Callable[[Update], Update]:
    return lies(lambda p: replace(p, codes={**p.codes, WEIGHT: change(p.codes[WEIGHT])}))


def scale(change: Callable[[Tensor], Tensor]) -> Callable[[Update], Update]:
    return lies(lambda p: replace(p, scales={**p.scales, WEIGHT: change(p.scales[WEIGHT])}))


HOSTILE: dict[str, tuple[Callable[[Update], Update], str]] = {
    "more codes than weights": (code(lambda t: torch.cat([t, t])), "expected torch.uint8"),
    "codes of another type": (code(Tensor.float), "is torch.float32"),
    "a scale too many": (scale(lambda t: torch.cat([t, t[:1]])), "expected torch.float32"),
    "a scale that is not finite": (scale(lambda t: t * torch.nan), "is not finite"),
    "a negative scale": (scale(lambda t: t - 9), "holds values below 0"),
    "no scales": (lies(lambda p: replace(p, scales={})), "tensor names differ: missing"),
    "another format": (lies(lambda p: replace(p, upload="int8")), "sent int8 weights, where 1bit weights are expected"),
    "a difference": (lies(lambda p: replace(p, of="difference")), "sent 1bit differences, where 1bit weights"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_malformed_packing_costs_its_client_only(case: str, tmp_path: Path) -> None:
    change, reason = HOSTILE[case]
    run = deployed(tmp_path, experiment(**{"models.clients": "mlp:8-6:bn:1bit"}))
    run.grid.tamper[NODE_OF[LIAR]] = sends(change)
    fused, record = run_round(run.algorithm, run.server, run.engine, [0, 1, 2], Vetting(), run.ctx)
    without, _ = run_round(run.algorithm, run.server, InProcess(), [0, 2], Vetting(), run.ctx)
    assert list(record.rejected) == [str(LIAR)]
    assert reason in record.rejected[str(LIAR)]
    assert all_bits(fused.models) == all_bits(without.models)


def test_a_packed_reply_has_room_for_its_packed_bytes_only(tmp_path: Path) -> None:
    """Not for those of the model in float32: a larger reply is refused by its size."""
    run = deployed(tmp_path, experiment(**{"models.clients": "mlp:300-300:1bit", "run.rounds": 1}))
    model = run.server.models["mlp:300-300"]
    specs = uploads.expected(model, 0, run.ctx)
    assert specs is not None
    expected = Expected(0, model, {}, specs)
    with pytest.raises(Refused, match="its architecture needs at most"):
        expected.update(codec.encode_update(Update(0, 10, model)))


def test_what_a_packed_header_claims_is_not_allocated(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment(**{"models.clients": "mlp:8-6:bn:1bit"}))
    model = run.server.models["mlp:8-6:bn"]
    expected = Expected(0, model, {}, uploads.expected(model, 0, run.ctx))
    answer = next(iter(InProcess().run(run.algorithm, [run.algorithm.brief(run.server, 0, run.ctx)], run.ctx)))
    assert isinstance(answer, Update)
    honest = codec.encode_update(answer)
    assert expected.update(honest).packed is not None

    def claims(header: dict[str, dict[str, object]]) -> None:
        entry = header[f"packed/codes::{WEIGHT}"]
        entry.update(shape=[40_000_000_000], data_offsets=[0, 40_000_000_000])

    with pytest.raises(Refused, match=r"\(40000000000,\), expected"):
        expected.update(with_header(honest, claims))

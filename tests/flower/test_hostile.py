"""One node of three lies. Its reply is refused by client and reason, and the round is as if it had not been asked."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.app.error import Error

from fedfuse import codec
from fedfuse.engines import InProcess
from fedfuse.flower import wire
from fedfuse.flower.reply_checks import Expected, Refused
from fedfuse.round import run_round
from fedfuse.testing import all_bits
from fedfuse.types import Snapshot, Update
from fedfuse.vet import Vetting
from tests.flower.federations import NODE_OF, deployed, experiment
from tests.flower.grid import Tamper

LIAR = 1
Change = Callable[[Update], Update]


def with_blob(asked: Message, reply: Message, blob: bytes, **facts: int | str) -> Message:
    about = {**wire.about(reply), **facts}
    return Message(wire.content(about, wire.UPDATE, wire.array_of(blob)), reply_to=asked)


def sends(change: Change) -> Tamper:
    """The honest update, changed."""

    def tamper(asked: Message, reply: Message) -> list[Message]:
        update = codec.decode_update(wire.blob(reply, wire.UPDATE))
        return [with_blob(asked, reply, codec.encode_update(change(update)))]

    return tamper


def garbles(change: Callable[[bytes], bytes]) -> Tamper:
    """The honest bytes, changed."""
    return lambda asked, reply: [with_blob(asked, reply, change(wire.blob(reply, wire.UPDATE)))]


def first(change: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    """The first parameter changed."""

    def changed(update: Update) -> Update:
        assert update.model is not None
        name = next(iter(update.model.params))
        params = {**update.model.params, name: change(update.model.params[name])}
        return replace(update, model=replace(update.model, params=params))

    return changed


def renamed(update: Update) -> Update:
    assert update.model is not None
    params = dict(update.model.params)
    params["other"] = params.pop(next(iter(params)))
    return replace(update, model=replace(update.model, params=params))


def filled(value: float) -> Change:
    return first(lambda t: torch.full_like(t, value))


def counted(number: object) -> Change:
    return lambda update: replace(update, num_examples=number)  # type: ignore[arg-type]


def header_length(blob: bytes) -> int:
    return int.from_bytes(blob[:8], "little")


def with_header(blob: bytes, change: Callable[[dict[str, dict[str, object]]], None]) -> bytes:
    """The same data behind another header."""
    length = header_length(blob)
    header = json.loads(blob[8 : 8 + length])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + blob[8 + length :]


def first_entry(header: dict[str, dict[str, object]]) -> dict[str, object]:
    return header[next(key for key in header if key.startswith("model/params"))]


def lies_about_offsets(header: dict[str, dict[str, object]]) -> None:
    entry = first_entry(header)
    entry["data_offsets"] = [0, 10**9]


def says_40_gb(header: dict[str, dict[str, object]]) -> None:
    first_entry(header).update(shape=[10_000, 1_000_000], data_offsets=[0, 40_000_000_000])


def from_another_node(asked: Message, reply: Message) -> list[Message]:
    reply.metadata.__dict__["_src_node_id"] = NODE_OF[0]
    return [reply]


HOSTILE: dict[str, tuple[Tamper, str]] = {
    "NaN": (sends(filled(torch.nan)), "is not finite"),
    "Inf": (sends(filled(torch.inf)), "is not finite"),
    "wrong shape": (sends(first(lambda t: torch.cat([t, t]))), "expected torch.float32"),
    "wrong name": (sends(renamed), "tensor names differ"),
    "other dtype": (sends(first(torch.Tensor.double)), "is torch.float64"),
    "broadcastable shape": (sends(first(lambda t: t[:1])), "expected torch.float32"),
    "negative examples": (sends(counted(-5)), "claims -5 examples"),
    "huge examples": (sends(counted(10**30)), "claims 1000"),
    "fractional examples": (sends(counted(2.5)), "claims 2.5 examples"),
    "duplicate": (lambda asked, reply: [reply, reply], "answered more than once"),
    "another round": (
        lambda asked, reply: [with_blob(asked, reply, wire.blob(reply, wire.UPDATE), round=7)],
        "does not match its task of this round",
    ),
    "another attempt": (
        lambda asked, reply: [with_blob(asked, reply, wire.blob(reply, wire.UPDATE), attempt="earlier")],
        "does not match its task of this round",
    ),
    "another node": (from_another_node, "does not match its task of this round"),
    "truncated": (garbles(lambda blob: blob[:-100]), "cannot be read"),
    "hardly anything": (garbles(lambda blob: blob[:5]), "too short for a header"),
    "nothing": (garbles(lambda blob: b""), "too short for a header"),
    "lying header": (garbles(lambda blob: with_header(blob, lies_about_offsets)), "cannot be read"),
    "header of 40 GB": (
        garbles(lambda blob: (40_000_000_000).to_bytes(8, "little") + blob[8:]),
        "a header that claims 40,000,000,000 bytes",
    ),
    "tensor of 40 GB": (garbles(lambda blob: with_header(blob, says_40_gb)), r"\(10000, 1000000\), expected"),
    "header that is no JSON": (garbles(lambda blob: blob[:8] + b"[" * (len(blob) - 8)), "a header that cannot be read"),
    "too many bytes": (garbles(lambda blob: blob + bytes(200_000)), "its architecture needs at most"),
    "as another client": (sends(lambda update: replace(update, client=0)), "answered as client 0"),
    "another architecture": (
        sends(lambda u: replace(u, model=u.model and Snapshot("mlp:7", u.model.params, u.model.buffers))),
        "sent a mlp:7",
    ),
    "more than asked": (sends(lambda u: replace(u, extra={"more": {"x": torch.zeros(3)}})), "tensor names differ"),
    "no model": (sends(lambda u: replace(u, model=None)), "was sent a model and answered without one"),
    "no facts": (lambda asked, reply: [Message(RecordDict(), reply_to=asked)], "without its record 'about'"),
    "no update": (
        lambda asked, reply: [Message(wire.content(wire.about(reply)), reply_to=asked)],
        "without its record 'update'",
    ),
    "an error": (
        lambda asked, reply: [Message(Error(1, "\x1b[2Jout of memory"), reply_to=asked)],
        r"failed at its node:  \[2Jout of memory",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_reply_is_refused_and_the_round_is_as_without_the_node(case: str, tmp_path: Path) -> None:
    tamper, reason = HOSTILE[case]
    run = deployed(tmp_path, experiment())
    run.grid.tamper[NODE_OF[LIAR]] = tamper
    fused, record = run_round(run.algorithm, run.server, run.engine, [0, 1, 2], Vetting(), run.ctx)
    without, _ = run_round(run.algorithm, run.server, InProcess(), [0, 2], Vetting(), run.ctx)
    assert list(record.rejected) == [str(LIAR)]
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(record.rejected[str(LIAR)])
    assert all_bits(fused.models) == all_bits(without.models)


def test_what_a_header_claims_is_not_allocated(tmp_path: Path) -> None:
    run = deployed(tmp_path, experiment())
    model = run.server.models["mlp:6:bn"]
    expected = Expected(LIAR, model, {})
    honest = codec.encode_update(Update(LIAR, 10, model))
    assert expected.update(honest).num_examples == 10
    for blob in ((40_000_000_000).to_bytes(8, "little") + honest[8:], with_header(honest, says_40_gb)):
        tracemalloc.start()
        with pytest.raises(Refused):
            expected.update(blob)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1_000_000


def test_an_honest_reply_of_many_small_tensors_has_room_for_its_header() -> None:
    model = Snapshot("many", {f"a.rather.long.name.of.layer.{i}.weight": torch.zeros(1) for i in range(5000)}, {})
    blob = codec.encode_update(Update(0, 1, model, metrics={"loss": 1.0}))
    assert Expected(0, model, {}).update(blob).num_examples == 1


def test_a_record_under_the_wrong_name_holds_no_update(tmp_path: Path) -> None:
    message = Message.__new__(Message)
    message.__dict__.update(
        _content=RecordDict({"x": ArrayRecord({"blob": Array("uint8", (1,), "x", b"1")})}), _error=None
    )
    with pytest.raises(wire.FedfuseError, match="without its record 'update'"):
        wire.blob(message, wire.UPDATE)

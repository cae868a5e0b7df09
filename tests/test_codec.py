"""Values <-> bytes: what goes in comes out, bit for bit and in order; what others send can only be refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import fedfuse
from fedfuse import codec
from fedfuse.testing import bits
from fedfuse.types import FedfuseError, ServerState, Snapshot, Task, Update
from tests.doubles import NORMED, context, initial, snapshot

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool)

names = st.text(st.characters(exclude_categories=("Cs",)), max_size=12).filter(
    lambda s: "::" not in s and s[-1:] != ":"
)
shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Any bytes whatsoever as any dtype: NaN with a payload, infinities and denormals among them."""
    shape, dtype = draw(shapes), draw(st.sampled_from(DTYPES))
    count = torch.Size(shape).numel() * torch.empty((), dtype=dtype).element_size()
    raw = torch.tensor(list(draw(st.binary(min_size=count, max_size=count))), dtype=torch.uint8)
    return (raw % 2).bool().view(shape) if dtype == torch.bool else raw.view(dtype).view(shape)


groups_of_tensors = st.dictionaries(names, st.dictionaries(names, tensors(), max_size=3), max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
headers = st.dictionaries(st.text(max_size=8), json_values, max_size=3)


def raw(tensor: Tensor) -> tuple[object, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.contiguous().view(-1).view(torch.uint8).tolist()


@given(groups_of_tensors, headers)
def test_groups_and_header_come_back_as_they_went_in(
    groups: dict[str, dict[str, Tensor]], header: dict[str, object]
) -> None:
    read, facts = codec.decode(codec.encode(groups, header))
    assert [(g, [(n, raw(t)) for n, t in ts.items()]) for g, ts in read.items()] == [
        (g, [(n, raw(t)) for n, t in ts.items()]) for g, ts in groups.items()
    ]
    assert facts == header


def test_the_order_of_names_is_kept() -> None:
    # Draws that go through a model name by name follow it: another order after a resumption would be other bits.
    order = ["z", "a", "m", "b"]
    group = {name: torch.zeros(2, dtype=DTYPES[i]) for i, name in enumerate(order)}
    assert list(codec.decode(codec.encode({"g": group}, {}))[0]["g"]) == order


def test_tensors_that_share_memory_and_views_are_written_whole() -> None:
    base = torch.arange(6.0)
    group = {"all": base, "same": base, "tail": base[3:], "turned": base.view(2, 3).T, "one": base[:1].expand(4)}
    read = codec.decode(codec.encode({"g": group}, {}))[0]["g"]
    assert {n: t.tolist() for n, t in read.items()} == {n: t.tolist() for n, t in group.items()}


@pytest.mark.parametrize(("group", "name"), [("a::b", "x"), ("a", "x::y"), ("a:", "x")])
def test_names_that_could_not_be_told_apart_again_are_refused(group: str, name: str) -> None:
    with pytest.raises(FedfuseError, match="must not contain"):
        codec.encode({group: {name: torch.zeros(1)}}, {})


def test_any_safetensors_reader_can_open_it() -> None:
    assert safetensors.torch.load(codec.encode({"g": {"x": torch.ones(2)}}, {}))["g::x"].tolist() == [1.0, 1.0]


DECODERS = [codec.decode, codec.decode_task, codec.decode_update, codec.decode_state]
VALID = {
    codec.decode: codec.encode({"g": {"x": torch.ones(3)}}, {"a": 1}),
    codec.decode_task: codec.encode_task(Task(1, 2, snapshot(1.0), {"e": {"x": torch.ones(1)}})),
    codec.decode_update: codec.encode_update(Update(1, 2, snapshot(1.0), metrics={"loss": 0.5})),
    codec.decode_state: codec.encode_state(ServerState(3, {"one": snapshot(1.0)}), {}, {"record": None}),
}
either = pytest.mark.parametrize("decode", DECODERS, ids=lambda d: d.__name__)


def only_refuses(decode: object, blob: bytes) -> None:
    try:
        decode(blob)  # type: ignore[operator]
    except FedfuseError:
        return


@either
@given(blob=st.binary(max_size=200))
def test_garbage_is_refused(decode: object, blob: bytes) -> None:
    with pytest.raises(FedfuseError):
        decode(blob)  # type: ignore[operator]


@either
def test_every_truncation_is_refused(decode: object) -> None:
    blob = VALID[decode]  # type: ignore[index]
    for length in range(len(blob)):
        with pytest.raises(FedfuseError):
            decode(blob[:length])  # type: ignore[operator]


@either
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_changed_byte_raises_nothing_but_a_refusal(decode: object, data: st.DataObject) -> None:
    blob = bytearray(VALID[decode])  # type: ignore[index]
    for _ in range(data.draw(st.integers(1, 3))):
        blob[data.draw(st.integers(0, len(blob) - 1))] = data.draw(st.integers(0, 255))
    only_refuses(decode, bytes(blob))


def crafted(envelope: object, tensors: dict[str, object], payload: bytes = b"") -> bytes:
    """A well-formed safetensors file with this inside: what someone would send who knows the format."""
    text = json.dumps({"__metadata__": {"fedfuse": json.dumps(envelope)}, **tensors}).encode()
    return len(text).to_bytes(8, "little") + text + payload


@either
@given(envelope=json_values | st.fixed_dictionaries({"groups": json_values, "header": json_values}))
def test_a_crafted_envelope_raises_nothing_but_a_refusal(decode: object, envelope: object) -> None:
    only_refuses(decode, crafted(envelope, {}))


@pytest.mark.parametrize("decode", DECODERS[1:], ids=lambda d: d.__name__)
@given(header=headers)
def test_a_crafted_header_raises_nothing_but_a_refusal(decode: object, header: dict[str, object]) -> None:
    only_refuses(decode, codec.encode({}, header))


@given(
    st.fixed_dictionaries(
        {"client": json_values, "num_examples": json_values, "arch": json_values, "metrics": json_values}
    )
)
def test_a_crafted_update_raises_nothing_but_a_refusal(header: dict[str, object]) -> None:
    only_refuses(codec.decode_update, codec.encode({"model/params": {}, "model/buffers": {}}, header))


@pytest.mark.parametrize("metric", [10**400, "many", None, [1]])
def test_a_metric_that_is_no_number_is_refused(metric: object) -> None:
    header = {"client": 1, "num_examples": 1, "arch": None, "metrics": {"loss": metric}}
    with pytest.raises(FedfuseError, match="not an update"):
        codec.decode_update(codec.encode({}, header))


def test_a_shape_beyond_all_memory_is_refused() -> None:
    huge = {"g::x": {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}
    with pytest.raises(FedfuseError):
        codec.decode(crafted({"groups": {"g": ["x"]}, "header": {}}, huge))


@pytest.mark.parametrize("listed", [{}, {"g": []}, {"g": ["x", "y"]}, {"g": ["x", "x"]}, {"h": ["x"]}])
def test_tensors_and_their_list_must_agree(listed: dict[str, list[str]]) -> None:
    one = {"g::x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    with pytest.raises(FedfuseError):
        codec.decode(crafted({"groups": listed, "header": {}}, one, bytes(4)))


def test_a_task_comes_back() -> None:
    task = Task(4, 9, snapshot(1.0, 2.0, b=torch.tensor(3)), {"control": {"c": torch.ones(2)}, "none": {}})
    read = codec.decode_task(codec.encode_task(task))
    assert (read.client, read.round) == (4, 9)
    assert read.model is not None
    assert task.model is not None
    assert bits(read.model) == bits(task.model)
    assert {g: list(t) for g, t in read.extra.items()} == {"control": ["c"], "none": []}
    assert codec.decode_task(codec.encode_task(Task(4, 9, None))).model is None


def test_an_update_comes_back_without_its_memory() -> None:
    memory = {"secret": {"s": torch.ones(3)}}
    update = Update(4, 17, snapshot(1.0), {"soft": {"l": torch.ones(2, 3)}}, {"loss": 0.25}, memory)
    blob = codec.encode_update(update)
    read = codec.decode_update(blob)
    assert (read.client, read.num_examples, read.metrics, read.memory) == (4, 17, {"loss": 0.25}, {})
    assert read.extra["soft"]["l"].shape == (2, 3)
    assert b"secret" not in blob  # it is the client's own: it never travels


def test_a_checkpoint_comes_back_with_each_clients_memory() -> None:
    ctx = context((NORMED, "mlp:8") * 2)
    server = ServerState(7, initial(ctx).models, {"velocity/mlp:8": {"w": torch.ones(2)}, "empty": {}})
    clients = {1: {"own": {"c": torch.ones(1)}}, 11: {"own": {"c": torch.zeros(1)}}, 2: {}}
    read, memory, header = codec.decode_state(codec.encode_state(server, clients, {"record": "line"}))
    assert read.round == 7
    assert {a: bits(m) for a, m in read.models.items()} == {a: bits(m) for a, m in server.models.items()}
    assert [list(m.params) for m in read.models.values()] == [list(m.params) for m in server.models.values()]
    assert {g: list(t) for g, t in read.memory.items()} == {"velocity/mlp:8": ["w"], "empty": []}
    # Client 1's memory must not be found under client 11's.
    assert {c: {g: t["c"].item() for g, t in m.items()} for c, m in memory.items()} == {
        1: {"own": 1.0},
        11: {"own": 0.0},
        2: {},
    }
    assert header == {"record": "line"}


def test_an_architecture_whose_name_holds_colons_and_slashes_comes_back() -> None:
    odd = Snapshot("hf:/some/folder:gn", {"w": torch.ones(1)}, {})
    read, _, _ = codec.decode_state(codec.encode_state(ServerState(0, {odd.arch: odd}), {}, {}))
    assert bits(read.models[odd.arch]) == bits(odd)


def test_nothing_in_the_package_unpickles() -> None:
    # A pickle that is read runs what it says: none is, from anywhere.
    forbidden = re.compile(
        r"^\s*(import|from)\s+(pickle|cloudpickle|dill|joblib|shelve)\b|(?<!safetensors\.)torch\.(load|save)\(|allow_pickle=True",
        re.M,
    )
    sources = sorted(Path(fedfuse.__file__).parent.rglob("*.py"))
    assert len(sources) > 30
    assert {str(f): forbidden.findall(f.read_text()) for f in sources if forbidden.search(f.read_text())} == {}

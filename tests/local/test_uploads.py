"""Uploads in fewer bits: what a client packs and remembers, what vetting unpacks, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import fedfuse
from fedfuse import codec, packing, tree
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS
from fedfuse.context import Context
from fedfuse.engines import InProcess
from fedfuse.engines.engine import attempt
from fedfuse.local import uploads
from fedfuse.local.training import Training
from fedfuse.models.one_bit import OneBit
from fedfuse.models.precision import Precision
from fedfuse.packing import PACKINGS, Upload
from fedfuse.round import run_round
from fedfuse.runs.setup import check, load_federation, set_up
from fedfuse.testing import all_bits
from fedfuse.types import Failure, FedfuseError, Groups, PackedModel, ServerState, Snapshot, Task, Update
from fedfuse.vet import VettedUpdates, Vetting
from tests.doubles import brief, brief_settings, context, initial, trained

ARCH = "mlp:8-6:bn"
WEIGHT = "trunk.4.weight"  # the only one between the first and the last
LOSSY: tuple[Upload, ...] = ("bfloat16", "int8", "1bit")
NO_MODEL = {
    "ds-fl": "soft labels", "decentralised-logits": "soft labels",
    "fedgkt": "features and logits", "fedma": "layers whose neurons",
}  # fmt: skip


def with_precision(precision: Precision, **local: object) -> Context:
    ctx = context((ARCH,) * 4, **local)
    return replace(ctx, precisions=(precision,) * 4)


def answer(ctx: Context, algorithm: Algorithm | None = None, memory: Groups | None = None) -> tuple[Update, Groups]:
    """What client 0 sends and keeps."""
    server = initial(ctx)
    algorithm = algorithm or brief("fedavg")
    update, kept = attempt(algorithm, algorithm.brief(server, 0, ctx), memory or {}, ctx)
    assert isinstance(update, Update), update
    return update, kept


def vetted(update: Update, ctx: Context) -> tuple[list[Update], VettedUpdates]:
    stream = VettedUpdates([update], [0], initial(ctx), Vetting(quorum=0), ctx, sent_model=[0])
    return list(stream), stream


@pytest.mark.parametrize("upload", LOSSY)
def test_a_client_packs_its_trained_model_and_vetting_unpacks_it(upload: Upload) -> None:
    ctx = with_precision(Precision(upload))
    (plain,) = trained(ctx, initial(ctx), brief("fedavg"), [0])
    update, kept = answer(ctx)
    assert update.model is None
    assert update.packed is not None
    assert update.packed.arch == ARCH
    assert not kept
    (accepted,), _ = vetted(update, ctx)
    assert plain.model is not None
    assert accepted.model is not None
    assert list(accepted.model.params) == list(plain.model.params)
    packed = set(update.packed.codes)
    assert packed == ({WEIGHT} if upload == "1bit" else {name for name in plain.model.params if "weight" in name
                                                         and plain.model.params[name].dim() == 2})  # fmt: skip
    for name, tensor in plain.model.params.items():
        codes, scales = PACKINGS[upload].pack(tensor) if name in packed else (None, None)
        expected = tensor if codes is None else PACKINGS[upload].unpack(codes, scales, tensor.shape)
        assert torch.equal(accepted.model.params[name], expected)
    assert tree.equal(accepted.model.buffers, plain.model.buffers)


@pytest.mark.parametrize("upload", LOSSY)
def test_bytes_are_those_of_the_packed_tensors_and_parameters_those_of_the_model(upload: Upload) -> None:
    ctx = with_precision(Precision(upload))
    update, _ = answer(ctx)
    _, stream = vetted(update, ctx)
    model = initial(ctx).models[ARCH]
    assert stream.params_up == tree.count(model.params) + tree.count(model.buffers)
    assert update.packed is not None
    assert stream.bytes_up == sum(tree.nbytes(group) for group in update.packed.groups().values())
    assert stream.bytes_up < tree.nbytes(model.params) + tree.nbytes(model.buffers)


@pytest.mark.parametrize("upload", LOSSY)
def test_a_packed_update_survives_its_message(upload: Upload) -> None:
    update, _ = answer(with_precision(Precision(upload)))
    back = codec.decode_update(codec.encode_update(update))
    assert update.packed is not None
    assert back.packed is not None
    assert (back.packed.arch, back.packed.upload, back.packed.of) == (ARCH, upload, "model")
    for group, tensors in update.packed.groups().items():
        assert tree.equal(tensors, back.packed.groups()[group])
        assert list(tensors) == list(back.packed.groups()[group])


def test_a_one_bit_client_trains_full_precision_weights_and_sends_their_signs() -> None:
    """It trains the one-bit net from the received weights, and sends alpha sign of what they became."""
    ctx = with_precision(Precision("1bit", OneBit()))
    server = initial(ctx)
    update, _ = answer(ctx)
    (accepted,), _ = vetted(update, ctx)
    task = Task(0, 1, replace(server.models[ARCH], arch=f"{ARCH}:1bit"))
    own = Training()(task, {}, replace(ctx, precisions=()))  # the same net, named
    (plain,) = trained(replace(ctx, precisions=()), server, brief("fedavg"), [0])
    assert own.model is not None
    assert accepted.model is not None
    assert plain.model is not None
    latent = own.model.params[WEIGHT]
    assert not torch.equal(latent, plain.model.params[WEIGHT])  # other gradients than the plain net's
    expected = latent.abs().mean(1, keepdim=True) * torch.where(latent >= 0, 1.0, -1.0)
    assert torch.equal(accepted.model.params[WEIGHT], expected)
    for name, tensor in own.model.params.items():
        assert name == WEIGHT or torch.equal(accepted.model.params[name], tensor)


class _Fixed:
    """A client whose trained weight is given."""

    def __init__(self, *weights: Tensor) -> None:
        self.weights = list(weights)

    def __call__(self, task: Task, memory: Groups, ctx: Context) -> Update:
        assert not memory  # the residual is not the algorithm's
        assert task.model is not None
        params = {**task.model.params, WEIGHT: self.weights.pop(0)}
        return Update(task.client, 1, replace(task.model, params=params))


def sent(update: Update, ctx: Context) -> Tensor:
    (accepted,), _ = vetted(update, ctx)
    assert accepted.model is not None
    return accepted.model.params[WEIGHT]


def test_error_feedback_over_two_rounds_by_hand() -> None:
    """Round 1: w -> alpha sign(w), and e = w - that. Round 2: w + e -> its signs, and e' = (w + e) - that."""
    ctx = with_precision(Precision("1bit"), error_feedback=True)
    row = torch.zeros(8)
    first, second = row.clone(), row.clone()
    first[:4] = torch.tensor([4.0, -2.0, 1.0, 1.0])  # alpha = 1
    second[:4] = torch.tensor([1.0, 1.0, 2.0, -2.0])
    algorithm = replace(brief("fedavg"), local=_Fixed(first.expand(6, 8).clone(), second.expand(6, 8).clone()))
    update, memory = answer(ctx, algorithm)
    assert sent(update, ctx)[0].tolist() == [1, -1, 1, 1, 1, 1, 1, 1]
    assert memory[uploads.RESIDUAL][WEIGHT][0].tolist() == [3, -1, 0, 0, -1, -1, -1, -1]
    update, memory = answer(ctx, algorithm, memory)
    # [4, 0, 2, -2, -1, -1, -1, -1], alpha = 12 / 8
    assert sent(update, ctx)[0].tolist() == [1.5, 1.5, 1.5, -1.5, -1.5, -1.5, -1.5, -1.5]
    assert memory[uploads.RESIDUAL][WEIGHT][0].tolist() == [2.5, -1.5, 0.5, -0.5, 0.5, 0.5, 0.5, 0.5]
    assert memory.keys() == {uploads.RESIDUAL}
    assert memory[uploads.RESIDUAL].keys() == {WEIGHT}


def test_the_residual_of_a_refused_upload_is_not_kept() -> None:
    ctx = with_precision(Precision("int8"), error_feedback=True)
    engine, server = InProcess(), initial(ctx)
    algorithm = brief("fedavg")
    run_round(algorithm, server, engine, [0, 1], Vetting(max_norm=1e-9), ctx)
    assert engine.memory() == {}
    run_round(algorithm, server, engine, [0, 1], Vetting(), ctx)
    assert {client: set(groups) for client, groups in engine.memory().items()} == {
        0: {uploads.RESIDUAL}, 1: {uploads.RESIDUAL},
    }  # fmt: skip


@pytest.mark.parametrize("name", ["scaffold", "moon"])
def test_the_residual_lives_beside_what_the_algorithm_keeps(name: str) -> None:
    ctx = with_precision(Precision("1bit"), error_feedback=True)
    algorithm = brief(name)
    _, kept = answer(ctx, algorithm)
    _, alone = answer(replace(ctx, precisions=()), algorithm)
    assert kept.keys() == {*alone, uploads.RESIDUAL}
    _, again = answer(ctx, algorithm, kept)
    assert again.keys() == kept.keys()


@pytest.mark.parametrize("upload", LOSSY)
def test_a_difference_is_added_to_what_was_received(upload: Upload) -> None:
    """Its error is that of the difference, which is smaller than the weights."""
    of_model, of_difference = (with_precision(Precision(upload), upload_of=of) for of in ("model", "difference"))
    (plain,) = trained(of_model, initial(of_model), brief("fedavg"), [0])
    assert plain.model is not None
    received = initial(of_model).models[ARCH].params[WEIGHT]
    whole, difference = (sent(answer(ctx)[0], ctx) for ctx in (of_model, of_difference))
    codes, scales = PACKINGS[upload].pack(plain.model.params[WEIGHT] - received)
    assert torch.equal(difference, PACKINGS[upload].unpack(codes, scales, received.shape).add_(received))
    own = plain.model.params[WEIGHT]
    assert (difference - own).norm() < 0.5 * (whole - own).norm()


def test_a_difference_from_another_model_than_the_servers() -> None:
    """A client that was sent a model of its own: the difference is added to that one."""
    ctx = with_precision(Precision("int8"), upload_of="difference")
    server = initial(ctx)
    other = Snapshot(ARCH, {k: t + 1 for k, t in server.models[ARCH].params.items()}, server.models[ARCH].buffers)
    algorithm = replace(
        brief("fedavg"),
        brief=lambda server, client, ctx: Task(client, 1, other),
        local=lambda task, memory, ctx: Update(task.client, 1, task.model),
    )
    fused, _ = run_round(algorithm, server, InProcess(), [0, 1], Vetting(), ctx)
    assert tree.equal(fused.models[ARCH].params, other.params)


# What is refused.

Change = Callable[[PackedModel], PackedModel]


def group(name: str, change: Callable[[dict[str, Tensor]], object]) -> Change:
    def changed(packed: PackedModel) -> PackedModel:
        tensors = dict(getattr(packed, name))
        change(tensors)
        return replace(packed, **{name: tensors})

    return changed


def entry(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    return group(name, lambda tensors: tensors.update({WEIGHT: change(tensors[WEIGHT])}))


def filled(name: str, value: float) -> Change:
    return entry(name, lambda t: torch.full_like(t, value))


MALFORMED: dict[str, tuple[Upload, Change, str]] = {
    "scale NaN": ("1bit", filled("scales", torch.nan), "packed/scales/trunk.4.weight is not finite"),
    "scale infinite": ("int8", filled("scales", torch.inf), "is not finite"),
    "scale negative": ("int8", filled("scales", -1), "packed/scales/trunk.4.weight holds values below 0"),
    "scale too large": ("int8", filled("scales", 3e38), "parameter trunk.4.weight is not finite"),
    "scales too few": ("1bit", entry("scales", lambda t: t[1:]), "is torch.float32 (5,), expected torch.float32 (6,)"),
    "scale for all": ("1bit", entry("scales", lambda t: t[:1]), "expected torch.float32 (6,)"),
    "scales in double": ("1bit", entry("scales", Tensor.double), "is torch.float64"),
    "codes too short": ("1bit", entry("codes", lambda t: t[:-1]), "is torch.uint8 (5,), expected torch.uint8 (6,)"),
    "codes too long": ("1bit", entry("codes", lambda t: torch.cat([t, t])), "(12,), expected torch.uint8 (6,)"),
    "codes of another type": ("1bit", entry("codes", Tensor.char), "is torch.int8"),
    "codes without a scale": ("1bit", group("scales", dict.clear), "tensors of packed/scales differ: missing"),
    "a code of -128": ("int8", filled("codes", -128), "holds values below -127"),
    "a flat int8": ("int8", entry("codes", Tensor.flatten), "expected torch.int8 (6, 8)"),
    "bfloat16 NaN": ("bfloat16", filled("codes", torch.nan), "packed/codes/trunk.4.weight is not finite"),
    "a weight twice": (
        "1bit", group("params", lambda p: p.update({WEIGHT: torch.zeros(6, 8)})), "tensors of model/params differ",
    ),
    "a weight nowhere": ("1bit", group("codes", dict.clear), "tensors of packed/codes differ: missing"),
    "another weight packed": (
        "1bit", group("codes", lambda c: c.update(other=c[WEIGHT])), "unexpected ['other']",
    ),
    "a buffer missing": ("1bit", group("buffers", dict.clear), "tensors of model/buffers differ"),
    "another format": ("int8", lambda p: replace(p, upload="1bit"), "sent 1bit weights, where int8 weights are"),
    "an unknown format": ("int8", lambda p: replace(p, upload="int4"), "sent int4 weights, where int8 weights are"),
    "a difference": ("int8", lambda p: replace(p, of="difference"), "sent int8 differences, where int8 weights are"),
    "another architecture": ("int8", lambda p: replace(p, arch="mlp:7"), "sent a mlp:7 where its architecture is"),
}  # fmt: skip


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_packing_is_refused_with_its_reason(case: str) -> None:
    upload, change, reason = MALFORMED[case]
    ctx = with_precision(Precision(upload))
    update, _ = answer(ctx)
    assert update.packed is not None
    accepted, stream = vetted(replace(update, packed=change(update.packed)), ctx)
    assert not accepted
    assert reason in stream.rejected[0]


def test_bits_behind_the_last_weight_are_refused() -> None:
    template = Snapshot("one", {"w": torch.zeros(1, 5)})
    for code, said in ((0b11111, None), (0b100000, "w has bits behind its last weight"), (255, "w has bits behind")):
        codes = {"w": torch.tensor([code], dtype=torch.uint8)}
        packed = PackedModel("one", "1bit", "model", {}, {}, codes, {"w": torch.ones(1)})
        problem = packing.problem(packed, template, "1bit")
        assert problem is None if said is None else problem is not None and problem.startswith(said)


def test_an_upload_in_another_precision_than_its_own_is_refused() -> None:
    plain, packed = with_precision(Precision()), with_precision(Precision("int8"))
    (whole,) = trained(plain, initial(plain), brief("fedavg"), [0])
    _, stream = vetted(whole, packed)
    assert stream.rejected == {0: "sent its model as it is, where int8 weights are expected"}
    small, _ = answer(packed)
    _, stream = vetted(small, plain)
    assert stream.rejected == {0: "sent a packed model, where float32 is expected"}


def test_what_is_packed_is_checked_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpacked(*args: object) -> Snapshot:
        raise AssertionError("unpacked what was not checked")

    monkeypatch.setattr(packing, "unpacked", unpacked)
    for case, (upload, change, _) in MALFORMED.items():
        if case == "scale too large":  # a finite scale, whose product with a code is not
            continue
        ctx = with_precision(Precision(upload))
        update, _ = answer(ctx)
        assert update.packed is not None
        _, stream = vetted(replace(update, packed=change(update.packed)), ctx)
        assert stream.rejected


def test_a_distance_beyond_its_bound_is_that_of_the_unpacked_model() -> None:
    ctx = with_precision(Precision("int8"))
    update, _ = answer(ctx)
    stream = VettedUpdates([update], [0], initial(ctx), Vetting(quorum=0, max_norm=1e-6), ctx)
    assert not list(stream)
    assert "more than the bound" in stream.rejected[0]


# Every algorithm.


def experiment(name: str, **settings: object) -> fedfuse.Experiment:
    made = fedfuse.Experiment(
        data={
            "source": "synthetic",
            "examples": 240,
            "classes": 3,
            "shape": [4],
            "pool": {"kind": "split", "size": 64},
        },
        partition={"scheme": "iid", "clients": 6},
        models={"clients": "mlp:8-6", "server": "mlp:12"},
        local={"epochs": 1, "batch_size": 8},
        algorithm={"name": name, **brief_settings(name)},
        run={"rounds": 1 if name == "one-shot" else 2, "workers": 1},
    )
    return made.with_settings(settings)


MIXED = {"mlp:8-6:1bit": 1, "mlp:8-6:int8": 1, "mlp:8-6": 1, "mlp:9-7:1bit": 1, "mlp:9-7": 1}


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in NO_MODEL])
def test_every_algorithm_whose_clients_send_a_model_takes_any_precision(name: str) -> None:
    made = experiment(name, **{"models.clients": MIXED, "local.upload": "bfloat16", "local.error_feedback": True})
    setup = check(made)
    assert {*setup.ctx.archs} == {*setup.roles.clients}
    assert {str(p) for p in setup.ctx.precisions} == {"1bit, one-bit net", "int8", "bfloat16"}
    engine, server = InProcess(), ServerState(0, setup.ctx.initial())
    for number in range(1, setup.ctx.rounds + 1):
        ctx = setup.ctx.at(number)
        server, record = run_round(setup.algorithm, server, engine, list(range(6)), Vetting(), ctx)
        assert record.rejected == {}
        assert record.note is None
    assert all(uploads.RESIDUAL in groups for groups in engine.memory().values())
    assert len(engine.memory()) == 6


@pytest.mark.parametrize("name", NO_MODEL)
@pytest.mark.parametrize("settings", [{"local.upload": "int8"}, {"models.clients": "mlp:8-6:1bit"}], ids=str)
def test_an_algorithm_whose_clients_send_no_model_refuses_with_the_reason(name: str, settings: dict[str, str]) -> None:
    with pytest.raises(FedfuseError, match=NO_MODEL[name]):
        check(experiment(name, **settings))


def test_a_client_that_sends_no_model_says_so() -> None:
    ctx = with_precision(Precision("int8"))
    algorithm = replace(brief("fedavg"), local=lambda task, memory, ctx: Update(task.client, 1, None))
    failure, _ = attempt(algorithm, Task(0, 1, None), {}, ctx)
    assert isinstance(failure, Failure)
    assert "sends no model that could be packed as int8" in failure.reason


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"local.upload": "int4"}, "local.upload = 'int4'"),
        ({"local.error_feedback": True}, "local.error_feedback = true has no effect"),
        ({"local.upload_of": "difference"}, 'local.upload_of = "difference" has no effect'),
        ({"local.upload_of": "difference", "models.clients": "mlp:8-6:1bit"}, "has no effect"),
        ({"local.upload": "int8", "models.clients": "mlp:8-6:1bit"}, "local.upload = 'int8': every architecture"),
        ({"local.upload": "1bit", "models.clients": "mlp:8"}, "mlp:8 has no weights that an upload as 1bit would pack"),
        ({"models.clients": "mlp:8:1bit"}, "mlp:8:1bit: a one-bit net needs"),
        ({"models.clients": "mlp:8-6:1bit:keep=x"}, "'keep=x' is not an option of one-bit nets"),
    ],
    ids=str,
)
def test_a_setting_without_effect_is_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(FedfuseError) as error:
        check(experiment("fedavg", **settings))
    assert said in str(error.value)


def test_precisions_follow_the_weights_and_leave_the_architectures_as_they_are() -> None:
    made = experiment("fedavg", **{"models.clients": {"mlp:8-6:1bit": 2, "mlp:8-6": 1}})
    ctx = set_up(made, load_federation(made)).ctx
    assert ctx.archs == ("mlp:8-6",) * 6
    assert sum(p.one_bit is not None for p in ctx.precisions) == 4
    assert ctx.initial().keys() == {"mlp:8-6"}
    plain = experiment("fedavg")
    assert all_bits(set_up(plain, load_federation(plain)).ctx.initial()) == all_bits(ctx.initial())


def test_the_least_capable_get_the_precision_that_is_named_first() -> None:
    made = experiment("fedavg", **{"models.clients": {"mlp:8-6:1bit": 1, "mlp:8-6:int8": 1, "mlp:8-6": 1}})
    setup = set_up(made, load_federation(made)).with_capability(torch.tensor([5.0, 1.0, 3.0, 4.0, 2.0, 6.0]))
    assert [str(p).partition(",")[0] for p in setup.ctx.precisions] == [
        "float32", "1bit", "int8", "int8", "1bit", "float32",
    ]  # fmt: skip

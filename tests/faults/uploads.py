"""Hostile uploads: the bytes of an update changed at random, and finite weights that are meant to do harm."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from fedfuse import codec, tree
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import ALGORITHMS
from fedfuse.context import Context
from fedfuse.engines import InProcess
from fedfuse.engines.engine import attempt
from fedfuse.models.one_bit import OneBit
from fedfuse.models.precision import Precision
from fedfuse.round import run_round
from fedfuse.testing import all_bits, copied, small_context
from fedfuse.types import Failure, FedfuseError, ServerState, Snapshot, Task, Update
from fedfuse.vet import VettedUpdates, Vetting
from tests.doubles import brief, context, initial
from tests.faults.mutations import MUTATIONS
from tests.faults.tally import Tally, WrongError

RULES = Vetting()


def blobs(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Bytes that one client of four sends, changed: refused, or else a sound update."""
    tally = Tally("hostile uploads: bytes")
    _mutated_blobs(tally, random.Random(seed), seed, 3000 * amount, context(("mlp:4:bn",) * 4), progress)
    return tally


def packed_blobs(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """The same, where clients send their model in fewer bits: what is accepted was unpacked to a sound one."""
    tally, draw = Tally("hostile uploads: packed bytes"), random.Random(seed)
    for precision in (Precision("1bit"), Precision("1bit", OneBit()), Precision("int8"), Precision("bfloat16")):
        ctx = replace(context(("mlp:5-3:bn",) * 4), precisions=(precision, *[Precision()] * 3))
        _mutated_blobs(tally, draw, seed, 375 * amount, ctx, progress)
    return tally


def _mutated_blobs(
    tally: Tally, draw: random.Random, seed: int, count: int, ctx: Context, progress: Callable[[], None]
) -> None:
    algorithm, server = brief("fedavg"), initial(ctx)
    updates = [_answer(algorithm, server, client, ctx) for client in range(4)]
    honest, _ = algorithm.fuse(server, VettedUpdates(updates[1:], range(1, 4), server, RULES, ctx), ctx)
    expected, sound = all_bits(honest.models), codec.encode_update(updates[0])
    for number in range(count):
        what = draw.choice([*MUTATIONS, *HEADERS])
        blob = HEADERS[what](sound, draw) if what in HEADERS else MUTATIONS[what](sound, draw)
        with tally.trying(f"seed {seed}, {number}: {ctx.precision(0)}, {what}"):
            stream = VettedUpdates([_decoded(blob), *updates[1:]], range(4), server, RULES, ctx, sent_model=range(4))
            accepted: list[Update] = []
            fused, _ = algorithm.fuse(server, _seen(stream, accepted), ctx)
            if 0 in stream.rejected:
                if all_bits(fused.models) != expected:
                    raise WrongError("a refused update changed the model")
                raise FedfuseError(stream.rejected[0])
            _check_sound(accepted[0], server.models[ctx.archs[0]])
        progress()


def _answer(algorithm: Algorithm, server: ServerState, client: int, ctx: Context) -> Update:
    update, _ = attempt(algorithm, algorithm.brief(server, client, ctx), {}, ctx)
    if isinstance(update, Failure):
        raise WrongError(update.reason)
    return update


def _seen(stream: Iterable[Update], accepted: list[Update]) -> Iterator[Update]:
    for update in stream:
        accepted.append(update)
        yield update


def _decoded(blob: bytes) -> Update | Failure:
    try:
        return codec.decode_update(blob)
    except FedfuseError as error:
        return Failure(0, str(error))


def _check_sound(answer: Update, template: Snapshot) -> None:
    """An accepted update has the names, shapes and types of the model, finite values, and its own client's number."""
    if answer.model is None or answer.packed is not None or answer.client != 0:
        raise WrongError(f"accepted {answer}")
    for sent, own in ((answer.model.params, template.params), (answer.model.buffers, template.buffers)):
        if sent.keys() != own.keys():
            raise WrongError("accepted other names")
        for name, tensor in sent.items():
            if tensor.shape != own[name].shape or tensor.dtype != own[name].dtype or not tree.all_finite(tensor):
                raise WrongError(f"accepted {name}: {tensor}")
    if not 1 <= answer.num_examples <= RULES.max_examples or not all(map(math.isfinite, answer.metrics.values())):
        raise WrongError(f"accepted {answer.num_examples} examples, {answer.metrics}")


def _header(change: Callable[[dict[str, Any], random.Random], None]) -> Callable[[bytes, random.Random], bytes]:
    """Change the header of a blob, and leave its tensors as they are."""

    def changed(blob: bytes, draw: random.Random) -> bytes:
        length = int.from_bytes(blob[:8], "little")
        entries = json.loads(blob[8 : 8 + length])
        envelope = json.loads(entries["__metadata__"]["fedfuse"])
        change(envelope, draw)
        entries["__metadata__"]["fedfuse"] = json.dumps(envelope)
        text = json.dumps(entries).encode()
        return len(text).to_bytes(8, "little") + text + blob[8 + length :]

    return changed


VALUES = (None, -1, 0, 1.5, 1e300, 2**70, True, "x", [], {}, math.nan, math.inf, [[]], {"a": {}})


def _other_value(envelope: dict[str, Any], draw: random.Random) -> None:
    header = envelope["header"]
    header[draw.choice(list(header))] = draw.choice(VALUES)


def _other_group(envelope: dict[str, Any], draw: random.Random) -> None:
    groups = envelope["groups"]
    name = draw.choice(list(groups))
    groups[draw.choice(["x", "extra/x", "model/x", "../x", ""])] = groups.pop(name)


def _other_names(envelope: dict[str, Any], draw: random.Random) -> None:
    groups = envelope["groups"]
    groups[draw.choice(list(groups))] = draw.choice(VALUES)


def _metric(envelope: dict[str, Any], draw: random.Random) -> None:
    envelope["header"]["metrics"] = {"loss": draw.choice(VALUES)}


def _packing(envelope: dict[str, Any], draw: random.Random) -> None:
    packing = draw.choice(({"upload": "int8", "of": "model"}, {"upload": "1bit", "of": "difference"}, {}, *VALUES))
    envelope["header"]["packing"] = packing
    if isinstance(packing, dict) and packing and draw.random() < 0.5:
        packing[draw.choice(list(packing))] = draw.choice(VALUES)


HEADERS = {
    "header value": _header(_other_value),
    "group": _header(_other_group),
    "names of a group": _header(_other_names),
    "metric": _header(_metric),
    "packing": _header(_packing),
}


class Scripted(InProcess):
    """Clients do their work; then one of them changes its update."""

    def __init__(self, hostile: int, change: Callable[[Update], Update]) -> None:
        super().__init__()
        self.hostile, self.change = hostile, change

    def run(
        self, algorithm: Algorithm, tasks: Iterable[Task], ctx: Context, server: ServerState | None = None
    ) -> Iterator[Update | Failure]:
        for answer in super().run(algorithm, tasks, ctx, server):
            hostile = isinstance(answer, Update) and answer.client == self.hostile
            yield self.change(answer) if hostile else answer  # type: ignore[arg-type]


def scaled(update: Update, factor: float, layers: int) -> Update:
    """The last `layers` tensors of the model times a factor, as far as float32 reaches; outputs that it sends too."""
    extra = {g: {n: _times(t, factor) for n, t in tensors.items()} for g, tensors in update.extra.items()}
    if update.model is None:
        return replace(update, extra=extra)
    model = copied(update.model)
    last = {name: _times(model.params[name], factor) for name in list(model.params)[-layers:]}
    return replace(update, model=replace(model, params={**model.params, **last}), extra=extra)


def _times(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    limit = torch.finfo(tensor.dtype).max
    return (tensor.double() * factor).clamp(-limit, limit).to(tensor.dtype)


def weights(seed: int, amount: int, progress: Callable[[], None]) -> Tally:
    """Finite weights and outputs times up to 1e38, with every algorithm, two rounds: no client ends a run."""
    tally, draw = Tally("hostile uploads: finite weights"), random.Random(seed)
    for name in ALGORITHMS:
        algorithm = brief(name)
        for number in range(5 * amount):
            arch = draw.choice(("mlp:8", "mlp:8:bn")) if name != "fedma" else "mlp:8"  # FedMA matches no batch norm
            ctx = small_context(algorithm, (arch,), rounds=1 if name == "one-shot" else 2)
            factor = draw.choice((-1, 1)) * 10.0 ** draw.choice((3, 6, 12, 20, 30, 38))
            layers = draw.choice((1, 2, 99))
            with tally.trying(f"seed {seed}, {name} {number}: last {layers} of {arch} times {factor:g}"):
                _run(algorithm, ctx, factor, layers)
            progress()
    return tally


def _run(algorithm: Algorithm, ctx: Context, factor: float, layers: int) -> None:
    server = ServerState(0, ctx.initial())
    engine = Scripted(2, lambda update: scaled(update, factor, layers))
    for number in range(1, ctx.rounds + 1):
        server, record = run_round(algorithm, server, engine, [0, 1, 2, 3], RULES, ctx.at(number))
        for arch, model in server.models.items():
            if not all(tree.all_finite(t) for t in (*model.params.values(), *model.buffers.values())):
                raise WrongError(f"{arch} is not finite after round {number}")
        # A model may overflow on test data, which decides nothing: then someone must be suspected.
        if not 0 <= record.test_accuracy <= 1 or not (math.isfinite(record.test_loss) or record.facts.warning):
            raise WrongError(f"round {number}: accuracy {record.test_accuracy}, loss {record.test_loss}")

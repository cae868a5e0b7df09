"""The laws: what every algorithm owes its users. `check_algorithm(my_algorithm())` holds your own to all of them.

Each law takes an algorithm and a context that suits it, and raises an AssertionError that says what was broken.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from fedfuse import codec
from fedfuse.algorithm import Algorithm
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.fusion import Averaged
from fedfuse.local_settings import LocalSettings
from fedfuse.types import FedfuseError, Groups, ServerState, Snapshot, Tensors, Update
from fedfuse.vet import VettedUpdates, Vetting

Law = Callable[[Algorithm, Context], None]


def check_algorithm(
    algorithm: Algorithm,
    *,
    archs: Sequence[str] = ("mlp:8",),
    server: str = "mlp:16",
    rounds: int = 2,
    exempt: Mapping[str, str] | None = None,
) -> None:
    """Hold an algorithm to every law, on four small clients of unequal size.

    archs: the clients' architectures, in turn. server: that of the large model, if the algorithm has one.
    exempt: laws that it is not held to, each with the reason in words.
    """
    if unknown := set(exempt or {}) - LAWS.keys():
        raise FedfuseError(f"there is no law {sorted(unknown)[0]!r}: the laws are {', '.join(LAWS)}")
    for name, law in LAWS.items():
        if name not in (exempt or {}):
            law(algorithm, small_context(algorithm, archs, server=server, rounds=rounds))


def small_context(
    algorithm: Algorithm, archs: Sequence[str] = ("mlp:8",), *, server: str = "mlp:16", rounds: int = 2
) -> Context:
    """Round 1 of a run of this algorithm with four clients of 45, 65, 85 and 105 examples of three noisy clusters."""
    ends = (0, 45, 110, 195, 300)
    parts = tuple(torch.arange(start, stop) for start, stop in pairwise(ends))
    data = Federation(_clusters(300, 1), parts, _clusters(30, 2), _clusters(60, 3), _clusters(256, 4), ("a", "b", "c"))
    roles = algorithm.models(dict.fromkeys(archs, 1.0), server)
    names = list(roles.clients)
    spread = tuple(names[client % len(names)] for client in range(len(parts)))
    nets = Nets(data.train.classes, data.train.shape)
    local = LocalSettings(epochs=5, batch_size=16)
    return Context(
        0, rounds, local, data, spread, nets, round=1, small_models=roles.small_models, server=roles.server
    )  # fmt: skip


def _clusters(rows: int, seed: int, classes: int = 3, features: int = 4) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    x = 2 * torch.eye(classes, features)[y] + torch.randn(rows, features, generator=draw)
    return Examples(x, y, classes, torch.zeros(features), torch.ones(features))


def answers(algorithm: Algorithm, server: ServerState, ctx: Context) -> list[Update]:
    """What all clients answer in their first round."""
    return [algorithm.local(algorithm.brief(server, k, ctx), {}, ctx) for k in range(len(ctx.archs))]


def order_does_not_matter(algorithm: Algorithm, ctx: Context) -> None:
    """The answers fused in another order give the same models, to rounding."""
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    forward, _ = algorithm.fuse(server, updates, ctx)
    backward, _ = algorithm.fuse(server, updates[::-1], ctx)
    _assert_close(forward.models, backward.models, tolerance(algorithm))


def inputs_are_not_mutated(algorithm: Algorithm, ctx: Context) -> None:
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    before = everything(server, updates, ctx)
    algorithm.fuse(server, updates, ctx)
    assert everything(server, updates, ctx) == before, "fusing changed what it was given"
    # A client's work is given the server's own tensors when it runs in the server's process.
    answers(algorithm, server, ctx)
    assert everything(server, updates, ctx) == before, "a client's work changed what the server holds"


def nothing_is_aliased(algorithm: Algorithm, ctx: Context) -> None:
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    before = everything(server, updates, ctx)
    fused, _ = algorithm.fuse(server, updates, ctx)
    for model in fused.models.values():
        for tensor in tensors_of(model).values():
            tensor.add_(1)
    assert everything(server, updates, ctx) == before, "changing the result changed what it was made from"


def identical_clients_fuse_to_themselves(algorithm: Algorithm, ctx: Context) -> None:
    """Averages to the bit. A distiller may move (a sharpened label is another label) but not change its mind.

    Where the result is another model than the clients' (a large server, or only outputs travelled), many identical
    clients give what one of them gives.
    """
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    if ctx.server or any(update.model is None for update in updates):
        _as_one_alone(algorithm, server, updates, ctx)
        return
    first = {ctx.archs[update.client]: model_of(update) for update in updates}  # of each the one with most examples
    same = [replace(u, model=copied(first[ctx.archs[u.client]])) for u in updates]
    fused, _ = algorithm.fuse(server, same, ctx)
    if isinstance(algorithm.fuse, Averaged):
        assert all_bits(fused.models) == all_bits(first), "the average of equal models differs from them"
        return
    for arch, model in fused.models.items():
        agree = (_predictions(model, ctx) == _predictions(first[arch], ctx)).double().mean().item()
        assert agree >= (0.95 if len(server.models) == 1 else 0.85), f"{arch} changed {1 - agree:.0%} of its answers"


def _as_one_alone(algorithm: Algorithm, server: ServerState, updates: Sequence[Update], ctx: Context) -> None:
    arch = ctx.archs[updates[0].client]
    alike = [u.client for u in updates if ctx.archs[u.client] == arch]
    one, _ = algorithm.fuse(server, updates[:1], ctx)
    many, _ = algorithm.fuse(server, [replace(updates[0], client=client) for client in alike], ctx)
    _assert_close(one.models, many.models, tolerance(algorithm))


def only_its_arguments_count(algorithm: Algorithm, ctx: Context) -> None:
    """The same inputs give the same bits whatever was drawn before, and nothing global is drawn from."""
    server = ServerState(0, ctx.initial())
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.random.get_rng_state()
        updates = answers(algorithm, server, ctx)
        results.append(all_bits(algorithm.fuse(server, updates, ctx)[0].models))
        assert torch.equal(torch.random.get_rng_state(), state), "it drew from torch's global generator"
    assert results[0] == results[1], "the same inputs gave other models"


def state_survives_the_codec(algorithm: Algorithm, ctx: Context) -> None:
    """Its models fit their architectures, and what server and clients remember comes back from a checkpoint."""
    server = ServerState(0, ctx.initial())
    memory: dict[int, Groups] = {}
    for number in range(1, ctx.rounds + 1):
        now = ctx.at(number)
        updates = [
            algorithm.local(algorithm.brief(server, k, now), memory.get(k, {}), now) for k in range(len(ctx.archs))
        ]
        memory = {update.client: update.memory for update in updates}
        fused, _ = algorithm.fuse(server, updates, now)
        assert fused.round == server.round + 1, "the round was not counted"
        assert fused.models.keys() == server.models.keys(), "the server's architectures changed"
        for model in fused.models.values():
            template = Snapshot.of(model.arch, ctx.nets.scratch(model.arch, "law"))
            assert _shapes(tensors_of(model)) == _shapes(tensors_of(template)), f"this is no {model.arch}"
            assert all(bool(torch.isfinite(t).all()) for t in tensors_of(model).values()), "it is not finite"
        server = fused
    read, kept, _ = codec.decode_state(codec.encode_state(server, memory, {}))
    assert all_bits(read.models) == all_bits(server.models), "the models differ after a checkpoint"
    assert _group_bits(read.memory) == _group_bits(server.memory), "the server's memory differs after a checkpoint"
    for client, groups in memory.items():
        assert _group_bits(kept[client]) == _group_bits(groups), f"client {client}'s memory differs after a checkpoint"


def honest_answers_are_accepted(algorithm: Algorithm, ctx: Context) -> None:
    """What its own clients send passes the server's vetting, over the wire."""
    server = ServerState(0, ctx.initial())
    sent = [codec.decode_update(codec.encode_update(u)) for u in answers(algorithm, server, ctx)]

    expect = partial(algorithm.expect, server, ctx=ctx)
    vetted = VettedUpdates(sent, range(len(sent)), server, Vetting(quorum=0), ctx, expect)
    accepted = [update.client for update in vetted]
    assert accepted == [u.client for u in sent], f"honest clients were refused: {vetted.rejected}"


def updates_are_a_stream(algorithm: Algorithm, ctx: Context) -> None:
    """Read once, and of all client models never more than two alive: the one in hand and the one that comes."""
    server = ServerState(0, ctx.initial())
    alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
    most = 0

    def stream() -> Iterator[Update]:
        nonlocal most
        for client in range(len(ctx.archs)):
            answer = algorithm.local(algorithm.brief(server, client, ctx), {}, ctx)
            tensor = next((t for group in answer.groups() for t in group.values()), None)
            assert tensor is not None, f"client {client} sent nothing"
            alive.add(tensor)
            most = max(most, len(alive))
            del tensor
            yield answer
            del answer

    algorithm.fuse(server, stream(), ctx)
    assert most <= 2, f"the answers of {most} of {len(ctx.archs)} clients were held at once"


LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        order_does_not_matter,
        inputs_are_not_mutated,
        nothing_is_aliased,
        identical_clients_fuse_to_themselves,
        only_its_arguments_count,
        state_survives_the_codec,
        honest_answers_are_accepted,
        updates_are_a_stream,
    )
}


def tolerance(algorithm: Algorithm) -> float:
    """Averages differ by rounding alone; a distiller's steps carry the rounding of their targets further."""
    return 1e-6 if isinstance(algorithm.fuse, Averaged) else 1e-5


def model_of(update: Update) -> Snapshot:
    assert update.model is not None, f"client {update.client} sent no model"
    return update.model


def tensors_of(model: Snapshot) -> dict[str, Tensor]:
    return {**model.params, **model.buffers}


def copied(model: Snapshot) -> Snapshot:
    """The same values in memory of their own."""
    return Snapshot(
        model.arch,
        {name: t.clone() for name, t in model.params.items()},
        {name: t.clone() for name, t in model.buffers.items()},
    )


def bits(model: Snapshot) -> dict[str, bytes]:
    """Its bytes by name, so that 0 and -0 differ and NaN equals itself."""
    return _bits(tensors_of(model))


def all_bits(models: Mapping[str, Snapshot]) -> dict[str, dict[str, bytes]]:
    return {arch: bits(model) for arch, model in models.items()}


def everything(server: ServerState, updates: Iterable[Update], ctx: Context) -> object:
    """All that a fusion is given, as bytes. The federation is rebuilt, because it remembers its fingerprint."""
    sent = [(u.client, u.num_examples, [_bits(group) for group in u.groups()]) for u in updates]
    return server.round, all_bits(server.models), _group_bits(server.memory), sent, replace(ctx.data).fingerprint


def _bits(tensors: Tensors) -> dict[str, bytes]:
    return {
        name: t.contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else repr(t.item()).encode()
        for name, t in tensors.items()
    }


def _group_bits(groups: Groups) -> dict[str, dict[str, bytes]]:
    return {group: _bits(tensors) for group, tensors in groups.items()}


def _shapes(tensors: Tensors) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (t.shape, t.dtype) for name, t in tensors.items()}


def _assert_close(one: Mapping[str, Snapshot], other: Mapping[str, Snapshot], allowed: float) -> None:
    assert one.keys() == other.keys()
    for arch, model in one.items():
        tensors = tensors_of(other[arch])
        for name, tensor in tensors_of(model).items():
            torch.testing.assert_close(tensor, tensors[name], rtol=allowed, atol=allowed, msg=f"{arch} {name} differs")


def _predictions(model: Snapshot, ctx: Context) -> Tensor:
    net = ctx.nets.load(model, "law").eval()
    with torch.no_grad():
        answer: Tensor = net(ctx.data.test.batch(torch.arange(len(ctx.data.test)))).argmax(1)
    return answer

"""Laws that every algorithm must satisfy. `check_algorithm(my_algorithm())` checks your own against all of them.

Each law takes an algorithm and a context for it, and raises an AssertionError that says what was violated.
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
from fedfuse.compute.batches import forward
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
    """Check an algorithm against every law, with four small clients of unequal size.

    archs: the clients' architectures, in turn. server: that of the large model, if the algorithm has one.
    exempt: laws that are not checked, each with the reason. The AssertionError names the law that failed.
    """
    if unknown := set(exempt or {}) - LAWS.keys():
        raise FedfuseError(f"there is no law {sorted(unknown)[0]!r}: the laws are {', '.join(LAWS)}")
    for name, law in LAWS.items():
        if name in (exempt or {}):
            continue
        try:
            law(algorithm, small_context(algorithm, archs, server=server, rounds=rounds))
        except AssertionError as error:
            raise AssertionError(
                f"{algorithm.name} breaks the law {name}: {error}. If that is how the algorithm is meant, exempt it: "
                f'check_algorithm(..., exempt={{"{name}": "the reason"}})'
            ) from error


def small_context(
    algorithm: Algorithm, archs: Sequence[str] = ("mlp:8",), *, server: str = "mlp:16", rounds: int = 2
) -> Context:
    """Return round 1 of a run of four clients, with 45, 65, 85 and 105 examples of three noisy clusters."""
    ends = (0, 45, 110, 195, 300)
    parts = tuple(torch.arange(start, stop) for start, stop in pairwise(ends))
    data = Federation(_clusters(300, 1), parts, _clusters(30, 2), _clusters(60, 3), _clusters(256, 4), ("a", "b", "c"))
    roles = algorithm.models(dict.fromkeys(archs, 1.0), server)
    names = list(roles.clients)
    client_archs = tuple(names[client % len(names)] for client in range(len(parts)))
    nets = Nets(data.train.classes, data.train.shape)
    local = LocalSettings(epochs=5, batch_size=16)
    return Context(
        0, rounds, local, data, client_archs, nets, round=1, small_models=roles.small_models, server=roles.server
    )  # fmt: skip


def _clusters(rows: int, seed: int, classes: int = 3, features: int = 4) -> Examples:
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % classes
    x = 2 * torch.eye(classes, features)[y] + torch.randn(rows, features, generator=draw)
    return Examples(x, y, classes, torch.zeros(features), torch.ones(features))


def answers(algorithm: Algorithm, server: ServerState, ctx: Context) -> list[Update]:
    """Return the updates of all clients in their first round."""
    return [algorithm.local(algorithm.brief(server, k, ctx), {}, ctx) for k in range(len(ctx.archs))]


def order_does_not_matter(algorithm: Algorithm, ctx: Context) -> None:
    """Fusing the updates in another order gives the same models, up to rounding."""
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    one, _ = algorithm.fuse(server, updates, ctx)
    other, _ = algorithm.fuse(server, updates[::-1], ctx)
    _assert_close(one.models, other.models, tolerance(algorithm))


def inputs_are_not_mutated(algorithm: Algorithm, ctx: Context) -> None:
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    before = everything(server, updates, ctx)
    algorithm.fuse(server, updates, ctx)
    assert everything(server, updates, ctx) == before, "fusing changed its inputs"
    # Local work in the server's process gets the server's own tensors.
    answers(algorithm, server, ctx)
    assert everything(server, updates, ctx) == before, "a client's local work changed the server's state"


def nothing_is_aliased(algorithm: Algorithm, ctx: Context) -> None:
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    before = everything(server, updates, ctx)
    fused, _ = algorithm.fuse(server, updates, ctx)
    for model in fused.models.values():
        for tensor in tensors_of(model).values():
            tensor.add_(1)
    assert everything(server, updates, ctx) == before, "changing the result changed the inputs of the fusion"


def identical_clients_fuse_to_themselves(algorithm: Algorithm, ctx: Context) -> None:
    """Averages are equal bit for bit. Distilled models may change (labels are sharpened) but must predict the same.

    Where the result is no client's model (a large server model, or only outputs are sent), many identical clients
    give the same result as one of them.
    """
    server = ServerState(0, ctx.initial())
    updates = answers(algorithm, server, ctx)
    if ctx.server or any(update.model is None for update in updates):
        _as_one_alone(algorithm, server, updates, ctx)
        return
    first = {ctx.archs[update.client]: model_of(update) for update in updates}  # of the largest client
    same = [replace(u, model=copied(first[ctx.archs[u.client]])) for u in updates]
    fused, _ = algorithm.fuse(server, same, ctx)
    if isinstance(algorithm.fuse, Averaged):
        assert all_bits(fused.models) == all_bits(first), "the average of equal models differs from them"
        return
    for arch, model in fused.models.items():
        agree = (_predictions(model, ctx) == _predictions(first[arch], ctx)).double().mean().item()
        assert agree >= (0.95 if len(server.models) == 1 else 0.85), f"{arch} changed {1 - agree:.0%} of predictions"


def _as_one_alone(algorithm: Algorithm, server: ServerState, updates: Sequence[Update], ctx: Context) -> None:
    arch = ctx.archs[updates[0].client]
    alike = [u.client for u in updates if ctx.archs[u.client] == arch]
    one, _ = algorithm.fuse(server, updates[:1], ctx)
    many, _ = algorithm.fuse(server, [replace(updates[0], client=client) for client in alike], ctx)
    _assert_close(one.models, many.models, tolerance(algorithm))


def only_its_arguments_count(algorithm: Algorithm, ctx: Context) -> None:
    """The same inputs give the same bits whatever was drawn before, and torch's global generator is not used."""
    server = ServerState(0, ctx.initial())
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.random.get_rng_state()
        updates = answers(algorithm, server, ctx)
        results.append(all_bits(algorithm.fuse(server, updates, ctx)[0].models))
        assert torch.equal(torch.random.get_rng_state(), state), "it drew from torch's global generator"
    assert results[0] == results[1], "the same inputs gave different models"


def state_survives_the_codec(algorithm: Algorithm, ctx: Context) -> None:
    """The models fit their architectures, and a checkpoint restores the memory of server and clients."""
    server = ServerState(0, ctx.initial())
    memory: dict[int, Groups] = {}
    for number in range(1, ctx.rounds + 1):
        now = ctx.at(number)
        updates = [
            algorithm.local(algorithm.brief(server, k, now), memory.get(k, {}), now) for k in range(len(ctx.archs))
        ]
        memory = {update.client: update.memory for update in updates}
        new, _ = algorithm.fuse(server, updates, now)
        assert new.round == server.round + 1, "fusing did not increase the round by 1"
        assert new.models.keys() == server.models.keys(), "the server's architectures changed"
        for model in new.models.values():
            template = Snapshot.of(model.arch, ctx.nets.scratch(model.arch, "law"))
            assert _shapes(tensors_of(model)) == _shapes(tensors_of(template)), f"the model does not fit {model.arch}"
            assert all(bool(torch.isfinite(t).all()) for t in tensors_of(model).values()), f"{model.arch} is not finite"
        server = new
    state, client_memory, _ = codec.decode_state(codec.encode_state(server, memory, {}))
    assert all_bits(state.models) == all_bits(server.models), "the models differ after a checkpoint"
    assert _group_bits(state.memory) == _group_bits(server.memory), "the server's memory differs after a checkpoint"
    for client, groups in memory.items():
        assert _group_bits(client_memory[client]) == _group_bits(groups), f"client {client}'s memory differs"


def honest_answers_are_accepted(algorithm: Algorithm, ctx: Context) -> None:
    """The updates of its own clients, encoded and decoded, pass the server's vetting."""
    server = ServerState(0, ctx.initial())
    updates = [codec.decode_update(codec.encode_update(u)) for u in answers(algorithm, server, ctx)]

    expect = partial(algorithm.expect, server, ctx=ctx)
    vetted = VettedUpdates(updates, range(len(updates)), server, Vetting(quorum=0), ctx, expect)
    accepted = [update.client for update in vetted]
    assert accepted == [u.client for u in updates], f"honest clients were refused: {vetted.rejected}"


def updates_are_a_stream(algorithm: Algorithm, ctx: Context) -> None:
    """Updates are read once, and at most two are in memory at a time: the current one and the next."""
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
    assert most <= 2, f"the updates of {most} of {len(ctx.archs)} clients were held at once"


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
    """Return the allowed difference: averages differ by rounding, and distillation amplifies that of its targets."""
    return 1e-6 if isinstance(algorithm.fuse, Averaged) else 1e-5


def model_of(update: Update) -> Snapshot:
    assert update.model is not None, f"client {update.client} sent no model"
    return update.model


def tensors_of(model: Snapshot) -> dict[str, Tensor]:
    return {**model.params, **model.buffers}


def copied(model: Snapshot) -> Snapshot:
    """Return a copy that shares no memory with the model."""
    return Snapshot(
        model.arch,
        {name: t.clone() for name, t in model.params.items()},
        {name: t.clone() for name, t in model.buffers.items()},
    )


def bits(model: Snapshot) -> dict[str, bytes]:
    """Return the bytes of each tensor, so that 0 and -0 differ and NaN equals itself."""
    return _bits(tensors_of(model))


def all_bits(models: Mapping[str, Snapshot]) -> dict[str, dict[str, bytes]]:
    return {arch: bits(model) for arch, model in models.items()}


def everything(server: ServerState, updates: Iterable[Update], ctx: Context) -> object:
    """Return all inputs of a fusion as bytes. The federation is copied, because it caches its fingerprint."""
    contents = [(u.client, u.num_examples, [_bits(group) for group in u.groups()]) for u in updates]
    return server.round, all_bits(server.models), _group_bits(server.memory), contents, replace(ctx.data).fingerprint


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
        return forward(net, ctx.data.test.batch(torch.arange(len(ctx.data.test)))).argmax(1)

"""What every algorithm owes its users. `check_*(algorithm, ctx)` takes any algorithm and any context that suits it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from fedfuse import codec
from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.fusion import Averaged
from fedfuse.types import ServerState, Snapshot, Update
from tests.doubles import all_bits, bits, copied, initial, tensors_of, trained


def everyone(ctx: Context) -> range:
    return range(len(ctx.archs))


def answers(algorithm: Algorithm, server: ServerState, ctx: Context) -> list[Update]:
    return trained(ctx, server, algorithm, everyone(ctx))


def tolerance(algorithm: Algorithm) -> float:
    """Averages differ by rounding alone; a distiller's steps carry the rounding of their targets further."""
    return 1e-6 if isinstance(algorithm.fuse, Averaged) else 1e-5


def model_of(update: Update) -> Snapshot:
    assert update.model is not None
    return update.model


def check_order_does_not_matter(algorithm: Algorithm, ctx: Context) -> None:
    server = initial(ctx)
    updates = answers(algorithm, server, ctx)
    forward, _ = algorithm.fuse(server, updates, ctx)
    backward, _ = algorithm.fuse(server, updates[::-1], ctx)
    for arch, model in forward.models.items():
        other = tensors_of(backward.models[arch])
        for name, tensor in tensors_of(model).items():
            allowed = tolerance(algorithm)
            torch.testing.assert_close(tensor, other[name], rtol=allowed, atol=allowed, msg=f"{arch} {name}")


def check_inputs_are_not_mutated(algorithm: Algorithm, ctx: Context) -> None:
    server = initial(ctx)
    updates = answers(algorithm, server, ctx)
    before = _everything(server, updates, ctx)
    algorithm.fuse(server, updates, ctx)
    assert _everything(server, updates, ctx) == before
    # A client's work is given the server's own tensors when it runs in the server's process.
    answers(algorithm, server, ctx)
    assert _everything(server, updates, ctx) == before


def check_nothing_is_aliased(algorithm: Algorithm, ctx: Context) -> None:
    server = initial(ctx)
    updates = answers(algorithm, server, ctx)
    before = _everything(server, updates, ctx)
    fused, _ = algorithm.fuse(server, updates, ctx)
    for model in fused.models.values():
        for tensor in tensors_of(model).values():
            tensor.add_(1)
    assert _everything(server, updates, ctx) == before, "changing the result changed what it was made from"


def check_identical_clients_fuse_to_themselves(algorithm: Algorithm, ctx: Context) -> None:
    """To the bit for averages. A distiller may move (a sharpened label is another label) but not change its mind."""
    server = initial(ctx)
    first = {arch: model_of(answers(algorithm, server, ctx)[ctx.archs.index(arch)]) for arch in server.models}
    updates = [replace(u, model=copied(first[ctx.archs[u.client]])) for u in answers(algorithm, server, ctx)]
    fused, _ = algorithm.fuse(server, updates, ctx)
    if isinstance(algorithm.fuse, Averaged):
        assert all_bits(fused.models) == all_bits(first)
        return
    for arch, model in fused.models.items():
        agree = (_predictions(model, ctx) == _predictions(first[arch], ctx)).double().mean().item()
        assert agree >= (0.95 if len(server.models) == 1 else 0.85), f"{arch} changed {1 - agree:.0%} of its answers"


def check_only_its_arguments_count(algorithm: Algorithm, ctx: Context) -> None:
    """The same inputs give the same bits whatever was drawn before, and nothing global is drawn from."""
    server = initial(ctx)
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.random.get_rng_state()
        updates = answers(algorithm, server, ctx)
        results.append(all_bits(algorithm.fuse(server, updates, ctx)[0].models))
        assert torch.equal(torch.random.get_rng_state(), state), "it drew from torch's global generator"
    assert results[0] == results[1]


def check_state_is_well_formed_and_survives_the_codec(algorithm: Algorithm, ctx: Context) -> None:
    """Its models are like the server's own, and what it remembers comes back from a checkpoint, bit for bit."""
    server = initial(ctx)
    for number in range(1, 3 if ctx.rounds > 1 else 2):
        now = ctx.at(number)
        fused, _ = algorithm.fuse(server, answers(algorithm, server, now), now)
        assert fused.round == server.round + 1
        assert fused.models.keys() == server.models.keys()
        for arch, model in fused.models.items():
            template = tensors_of(server.models[arch])
            assert {n: (t.shape, t.dtype) for n, t in tensors_of(model).items()} == {
                n: (t.shape, t.dtype) for n, t in template.items()
            }
            assert all(bool(torch.isfinite(t).all()) for t in tensors_of(model).values())
        server = fused
    read, _, _ = codec.decode_state(codec.encode_state(server, {}, {}))
    assert all_bits(read.models) == all_bits(server.models)
    assert {g: bits(Snapshot("", t)) for g, t in read.memory.items()} == {
        g: bits(Snapshot("", t)) for g, t in server.memory.items()
    }


def check_updates_are_a_stream(algorithm: Algorithm, ctx: Context) -> None:
    """Read once, and of all client models never more than two alive: the one in hand and the one that comes."""
    server = initial(ctx)
    alive: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()
    most = 0

    def stream() -> Iterator[Update]:
        nonlocal most
        for client in everyone(ctx):
            answer = algorithm.local(algorithm.brief(server, client, ctx), {}, ctx)
            tensor = next(iter(model_of(answer).params.values()))
            alive.add(tensor)
            most = max(most, len(alive))
            del tensor
            yield answer
            del answer

    algorithm.fuse(server, stream(), ctx)
    assert most <= 2, f"{most} of {len(ctx.archs)} client models were held at once"


def _everything(server: ServerState, updates: Sequence[Update], ctx: Context) -> object:
    """All that a fusion is given, as bytes. The federation is rebuilt, because it remembers its fingerprint."""
    return (
        server.round,
        all_bits(server.models),
        {group: bits(Snapshot("", tensors)) for group, tensors in server.memory.items()},
        [(u.client, u.num_examples, bits(model_of(u))) for u in updates],
        replace(ctx.data).fingerprint,
    )


def _predictions(model: Snapshot, ctx: Context) -> torch.Tensor:
    net = ctx.nets.load(model, "law").eval()
    with torch.no_grad():
        answer: torch.Tensor = net(ctx.data.test.batch(torch.arange(len(ctx.data.test)))).argmax(1)
    return answer

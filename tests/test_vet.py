"""What a server accepts: any sound update, and not one that is corrupted anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedfuse.context import Context
from fedfuse.testing import copied, tensors_of
from fedfuse.types import Extras, Failure, ServerState, Snapshot, TensorSpec, Update
from fedfuse.vet import QuorumNotMet, VettedUpdates, Vetting
from tests.doubles import NORMED, context, initial

CTX = context((NORMED, "mlp:8", NORMED))
SERVER: ServerState = initial(CTX)
Corrupt = Callable[[Update], Update]


def expect(client: int) -> Extras:
    return {"soft": {"l": TensorSpec((2, None), low=0, high=1)}} if client == 0 else {}


def valid(client: int = 0, examples: int = 12) -> Update:
    extra = {"soft": {"l": torch.ones(2, 3)}} if client == 0 else {}
    return Update(client, examples, copied(SERVER.models[CTX.archs[client]]), extra)


def vetted(
    answers: Iterable[Update | Failure],
    rules: Vetting | None = None,
    cohort: Sequence[int] = (0, 1, 2),
    ctx: Context = CTX,
) -> VettedUpdates:
    """All answers, one for each client of the cohort; quorum 0 so that a refusal can be looked at."""
    stream = VettedUpdates(answers, cohort, SERVER, rules or Vetting(quorum=0), ctx, expect)
    for _ in stream:
        pass
    return stream


def soft(update: Update, labels: Tensor) -> Update:
    return replace(update, extra={"soft": {"l": labels}})


def reason(update: Update, rules: Vetting | None = None) -> str:
    seen = vetted([update], rules, (update.client,))
    assert seen.clients == {}
    return seen.rejected[update.client]


def model_of(update: Update) -> Snapshot:
    assert update.model is not None
    return update.model


def with_param(update: Update, name: str, change: Callable[[Tensor], Tensor]) -> Update:
    model = model_of(update)
    return replace(update, model=replace(model, params={**model.params, name: change(model.params[name])}))


def with_buffer(update: Update, name: str, change: Callable[[Tensor], Tensor]) -> Update:
    model = model_of(update)
    return replace(update, model=replace(model, buffers={**model.buffers, name: change(model.buffers[name])}))


def without(update: Update, name: str) -> Update:
    model = model_of(update)
    return replace(
        update,
        model=replace(
            model,
            params={n: t for n, t in model.params.items() if n != name},
            buffers={n: t for n, t in model.buffers.items() if n != name},
        ),
    )


def first_to(value: float) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        changed = tensor.clone()
        changed.view(-1)[0] = value
        return changed

    return change


def test_a_sound_update_is_accepted_and_counted() -> None:
    sound = valid()
    seen = vetted([sound])
    assert (seen.clients.keys(), seen.rejected) == ({0}, {})
    numbers = sum(t.numel() for t in tensors_of(model_of(sound)).values()) + 6
    assert seen.params_up == numbers
    assert seen.bytes_up == 4 * (numbers - 1) + 8  # all floats but the counter of batch norm


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (lambda u: without(u, "0.weight"), r"names differ: missing \['0.weight'\]"),
        (lambda u: without(u, "1.running_mean"), r"names differ: missing \['1.running_mean'\]"),
        (lambda u: with_param(u, "0.bias", lambda t: t[:-1]), r"0.bias is torch.float32 \(4,\), expected .* \(5,\)"),
        (lambda u: with_param(u, "0.bias", lambda t: t[:, None]), r"\(5, 1\), expected .* \(5,\)"),
        (lambda u: with_param(u, "0.weight", lambda t: t.double()), r"torch.float64 .* expected torch.float32"),
        (lambda u: with_buffer(u, "1.num_batches_tracked", lambda t: t.float()), r"torch.float32 .* torch.int64"),
        (lambda u: with_param(u, "3.weight", first_to(math.nan)), "parameter 3.weight is not finite"),
        (lambda u: with_param(u, "3.weight", first_to(-math.inf)), "parameter 3.weight is not finite"),
        (lambda u: with_buffer(u, "1.running_mean", first_to(math.inf)), "buffer 1.running_mean is not finite"),
        (lambda u: with_buffer(u, "1.running_var", first_to(-1e-6)), "buffer 1.running_var is negative"),
        (lambda u: replace(u, num_examples=0), "claims 0 examples"),
        (lambda u: replace(u, num_examples=-3), "claims -3 examples"),
        (lambda u: replace(u, num_examples=10_000_001), "from 1 to 10,000,000 is accepted"),
        (lambda u: replace(u, num_examples=True), "claims True examples"),
        (lambda u: replace(u, num_examples=12.0), r"claims 12\.0 examples"),
        (lambda u: replace(u, num_examples="12"), "claims '12' examples"),
        (lambda u: replace(u, num_examples=None), "claims None examples"),
        (lambda u: replace(u, num_examples=math.nan), "claims nan examples"),
        (lambda u: replace(u, model=copied(SERVER.models["mlp:8"])), "sent a mlp:8 where its architecture is"),
        (lambda u: soft(u, torch.full((2, 3), math.nan)), "extra soft/l is not finite"),
        (lambda u: soft(u, torch.full((2, 3), -0.1)), "soft/l holds values below 0"),
        (lambda u: soft(u, torch.full((2, 3), 1.1)), "soft/l holds values above 1"),
        (lambda u: soft(u, torch.ones(3, 3)), r"soft/l is torch.float32 \(3, 3\), expected .* \(2, 'any'\)"),
        (lambda u: soft(u, torch.ones(2)), r"soft/l is torch.float32 \(2,\), expected"),
        (lambda u: soft(u, torch.ones(2, 3).double()), "soft/l is torch.float64"),
        (lambda u: replace(u, extra={}), r"groups differ: missing \['soft'\]"),
        (lambda u: replace(u, extra={"soft": {}}), r"tensors of soft differ: missing \['l'\]"),
        (lambda u: replace(u, extra={**u.extra, "more": {}}), r"groups differ: missing \[\], unexpected \['more'\]"),
        (lambda u: with_buffer(u, "1.num_batches_tracked", lambda t: t - 1000), "1.num_batches_tracked is negative"),
        (lambda u: replace(u, metrics={"loss": math.nan}), "metric loss = nan"),
        (lambda u: replace(u, metrics={"loss": -math.inf}), "metric loss = -inf"),
        (lambda u: replace(u, client=7), "answered as client 7"),
        (lambda u: replace(u, client=1), "answered as client 1"),
        (lambda u: replace(u, client=-1), "answered as client -1"),
    ],
)
def test_each_fault_is_refused_with_its_reason(corrupt: Corrupt, message: str) -> None:
    refused = corrupt(valid())
    seen = vetted([refused])
    assert seen.clients == {}
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(seen.rejected[0])


def test_a_parameter_too_many_is_refused() -> None:
    model = model_of(valid())
    more = replace(valid(), model=replace(model, params={**model.params, "back.door": torch.zeros(1)}))
    assert "unexpected ['back.door']" in reason(more)


def test_a_second_update_in_a_round_is_refused_and_the_first_stands() -> None:
    seen = vetted([valid(), valid(2), valid()], cohort=(0, 2))
    assert seen.clients.keys() == {0, 2}
    assert seen.rejected == {0: "sent a second update in one round"}


def test_a_refused_client_may_not_try_again_in_the_same_round() -> None:
    # One update per client and round: else the record would name it as refused and the model hold it.
    seen = vetted([replace(valid(), num_examples=0), valid(2), valid()], cohort=(0, 2))
    assert seen.clients.keys() == {2}
    assert seen.rejected[0].startswith("claims 0 examples")


def test_one_client_cannot_answer_for_another() -> None:
    """Else it could choose whose update is refused as the second one."""
    seen = vetted([replace(valid(1), client=2), valid(2)], cohort=(1, 2))
    assert seen.clients.keys() == {2}
    assert seen.rejected == {1: "answered as client 2"}


def test_what_nobody_was_asked_for_is_refused() -> None:
    seen = vetted([valid(0), valid(1)], cohort=(0,))
    assert seen.clients.keys() == {0}
    assert seen.rejected == {1: "was not asked in this round"}


@pytest.mark.parametrize(("moved", "accepted"), [(4.9, True), (5.0, True), (5.1, False)])
def test_the_norm_bound_is_on_the_way_from_the_servers_model(moved: float, accepted: bool) -> None:
    # (3, 4) moved by its own direction: the distance over all parameters is what was asked for.
    far = with_param(valid(), "0.bias", lambda t: t + moved * torch.tensor([0.6, 0.8, 0, 0, 0]))
    seen = vetted([far], Vetting(quorum=0, max_norm=5.000001))
    assert (seen.clients.keys() == {0}) is accepted
    if not accepted:
        assert seen.rejected[0] == "moved by 5.1, more than the bound of 5"


def test_without_a_bound_any_distance_is_accepted() -> None:
    assert vetted([with_param(valid(), "0.bias", lambda t: t + 1e6)]).clients.keys() == {0}


def test_the_cap_on_examples_is_the_rules() -> None:
    rules = Vetting(quorum=0, max_examples=20)
    assert vetted([valid(examples=20)], rules).clients.keys() == {0}
    assert "from 1 to 20" in reason(valid(examples=21), rules)


def test_a_failure_is_on_record_and_is_no_update() -> None:
    seen = vetted([Failure(1, "its worker process died"), valid(2)], cohort=(1, 2))
    assert (seen.clients.keys(), seen.rejected) == ({2}, {1: "its worker process died"})


def test_a_stream_that_ends_below_the_quorum_raises_and_one_at_it_does_not() -> None:
    assert vetted([valid(0), valid(2)], Vetting(quorum=2), (0, 2)).clients.keys() == {0, 2}
    with pytest.raises(QuorumNotMet, match="1 of 2 clients, the quorum is 2"):
        vetted([valid(0), Failure(2, "gone")], Vetting(quorum=2), (0, 2))


def test_it_is_a_stream_that_asks_for_the_next_only_when_asked() -> None:
    taken = []

    def answers() -> Iterable[Update]:
        for client in (0, 1, 2):
            taken.append(client)
            yield valid(client)

    stream = iter(VettedUpdates(answers(), (0, 1, 2), SERVER, Vetting(), CTX, expect))
    next(stream)
    assert taken == [0]


# Any sound update, and any single corruption of it.

floats = st.floats(-1e6, 1e6, width=32)


@st.composite
def sound_updates(draw: st.DrawFn) -> Update:
    client = draw(st.sampled_from([0, 1, 2]))
    template = SERVER.models[CTX.archs[client]]
    seed, scale = draw(st.integers(0, 2**32)), draw(st.floats(0, 1e4))
    generator = torch.Generator().manual_seed(seed)

    def drawn(name: str, like: Tensor) -> Tensor:
        if not like.is_floating_point():
            return torch.full_like(like, draw(st.integers(0, 2**40)))
        values = scale * torch.randn(like.shape, generator=generator)
        return values.abs() if name.endswith("running_var") else values

    model = Snapshot(
        template.arch,
        {name: drawn(name, t) for name, t in template.params.items()},
        {name: drawn(name, t) for name, t in template.buffers.items()},
    )
    return Update(client, draw(st.integers(1, 10_000_000)), model, valid(client).extra)


@st.composite
def corruptions(draw: st.DrawFn) -> Update:
    """A sound update with exactly one thing wrong, anywhere in it."""
    update = draw(sound_updates())
    model = model_of(update)
    name = draw(st.sampled_from(sorted(tensors_of(model))))
    change = with_param if name in model.params else with_buffer
    tensor = tensors_of(model)[name]
    kinds = ["missing", "renamed", "dtype", "shape", "architecture", "examples", "client"]
    kinds += ["not finite"] if tensor.is_floating_point() else []
    kinds += ["variance"] if name.endswith("running_var") else []
    kind = draw(st.sampled_from(kinds))
    if kind == "missing":
        return without(update, name)
    if kind == "renamed":
        gone = without(update, name)
        group = {**model_of(gone).params, name + "_": tensor}
        return replace(gone, model=replace(model_of(gone), params=group))
    if kind == "dtype":
        other = draw(st.sampled_from([torch.float16, torch.float64, torch.int32, torch.bool]))
        return change(update, name, lambda t: t.to(other))
    if kind == "shape":
        return change(update, name, lambda t: t.unsqueeze(draw(st.integers(0, t.dim()))))
    if kind == "architecture":
        return replace(update, model=replace(model, arch=draw(st.sampled_from(["", "mlp:9", "resnet8"]))))
    if kind == "examples":
        wrong = st.integers(max_value=0) | st.integers(10_000_001) | st.floats() | st.booleans() | st.none() | st.text()
        return replace(update, num_examples=draw(wrong))
    if kind == "client":
        return replace(update, client=draw(st.integers().filter(lambda c: c not in (0, 1, 2))))
    place = draw(st.integers(0, tensor.numel() - 1))
    value = draw(st.floats(-1e6, -1e-6) if kind == "variance" else st.sampled_from([math.nan, math.inf, -math.inf]))

    def spoilt(t: Tensor) -> Tensor:
        copy = t.clone()
        copy.view(-1)[place] = value
        return copy

    return change(update, name, spoilt)


@given(sound_updates())
def test_any_sound_update_is_accepted(update: Update) -> None:
    seen = vetted([update], cohort=(update.client,))
    assert (seen.clients.keys(), seen.rejected) == ({update.client}, {})


@given(corruptions())
def test_any_single_corruption_is_refused_and_no_other_client_pays_for_it(update: Update) -> None:
    asked = update.client if update.client in (0, 1, 2) else 0
    others = [valid(client) for client in (0, 1, 2) if client != asked]
    seen = vetted([update, *others], cohort=(asked, *(other.client for other in others)))
    assert seen.clients.keys() == {u.client for u in others}
    assert set(seen.rejected) == {asked}


def test_a_client_that_was_sent_a_model_owes_one() -> None:
    bare = Update(1, 10, None)
    stream = VettedUpdates([bare], (1,), SERVER, Vetting(quorum=0), CTX, sent_model={1})
    assert list(stream) == []
    assert stream.rejected == {1: "was sent a model and answered without one"}
    assert list(VettedUpdates([bare], (1,), SERVER, Vetting(quorum=0), CTX)) == [bare]  # nobody asked it for a model

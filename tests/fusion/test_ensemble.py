"""Who teaches, when, and that samples are drawn for each client by itself."""

from __future__ import annotations

import pytest
import torch

from fedfuse.context import Context
from fedfuse.fusion import Anchors, Clients, DiagonalGaussian, DirichletMixture, Ensemble, Samples, Teacher, Union
from fedfuse.types import FedfuseError, ServerState, Update
from tests.fusion.cases import context, of_value

SERVER = ServerState(0, {"one": of_value(0.0), "two": of_value(0.0, "two")})
UPDATES = [
    Update(0, 1, of_value(0.0)),
    Update(1, 1, of_value(3.0)),
    Update(2, 2, of_value(6.0)),
    Update(3, 5, of_value(9.0, "two")),
]


def teachers_of(ensemble: Ensemble, ctx: Context, updates: list[Update]) -> tuple[list[Teacher], list[Teacher]]:
    """Who teaches during the stream, and who after it."""
    running = ensemble.start(SERVER, ctx)
    during: list[Teacher] = []
    for update in updates:
        during += running.teachers(update)
        running.add(update)
    return during, list(running.value({"one": of_value(3.75), "two": of_value(9.0, "two")}))


def values(teachers: list[Teacher]) -> list[float]:
    return [float(t.model.params["w"]) for t in teachers]


def test_clients_teach_as_they_arrive_and_anchors_after(ctx: Context) -> None:
    during, after = teachers_of(Union(Anchors(), Clients()), ctx, UPDATES)
    assert values(during) == [0.0, 3.0, 6.0, 9.0]
    assert [t.weight for t in during] == [1.0] * 4
    assert values(after) == [3.75, 9.0]
    weighted, _ = teachers_of(Clients("examples"), ctx, UPDATES)
    assert [t.weight for t in weighted] == [1.0, 1.0, 2.0, 5.0]


def test_samples_are_per_architecture(ctx: Context) -> None:
    during, after = teachers_of(Samples(DiagonalGaussian(), 3), ctx, UPDATES)
    assert not during
    assert [t.model.arch for t in after] == ["one"] * 3 + ["two"] * 3
    assert values(after)[3:] == [9.0] * 3  # a single client has no variance
    assert len(set(values(after)[:3])) == 3
    assert teachers_of(Samples(DiagonalGaussian(), 0), ctx, UPDATES) == ([], [])


def test_each_client_has_its_own_gamma_draws(ctx: Context) -> None:
    # With the same draws for all, every mixture would be the mean, 3.75.
    _, after = teachers_of(Samples(DirichletMixture(1.0), 200), ctx, UPDATES[:3])
    samples = torch.tensor(values(after))
    assert len(samples.unique()) == 200
    assert float(samples.std()) > 0.5
    # and they follow the client, not its place in the stream
    _, other = teachers_of(Samples(DirichletMixture(1.0), 200), ctx, [UPDATES[k] for k in (2, 0, 1)])
    torch.testing.assert_close(torch.tensor(values(other)), samples)


def test_rounds_and_seeds_have_samples_of_their_own() -> None:
    def first(ctx: Context) -> float:
        return values(teachers_of(Samples(DirichletMixture(), 1), ctx, UPDATES[:3])[1])[0]

    ctx = context()
    assert first(ctx) == first(context()) != first(ctx.at(2))
    assert first(ctx) != first(context(seed=1))


def test_errors(ctx: Context) -> None:
    with pytest.raises(FedfuseError, match="count=-1"):
        Samples(DiagonalGaussian(), -1)
    with pytest.raises(FedfuseError, match="client 7 sent no model"):
        teachers_of(Clients(), ctx, [Update(7, 1, None)])

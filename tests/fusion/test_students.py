"""Where students start, and who is dropped."""

from collections.abc import Iterator

import pytest

from fedfuse.fusion import DropWorst, PerArchitecture
from fedfuse.types import FedfuseError, ServerState, Snapshot, Update
from tests.fusion.cases import context, of_value


def test_students_start_from_the_average_or_from_before() -> None:
    server = ServerState(0, {"one": of_value(1.0), "two": of_value(2.0, "two")})
    averages = {"one": of_value(5.0)}
    from_average = PerArchitecture().enrol(server, context()).starts(averages)
    from_previous = PerArchitecture("previous").enrol(server, context()).starts(averages)
    assert {arch: float(m.params["w"]) for arch, m in from_average.items()} == {"one": 5.0, "two": 2.0}
    assert {arch: float(m.params["w"]) for arch, m in from_previous.items()} == {"one": 1.0, "two": 2.0}


def judged(rule: DropWorst, *accuracies: float) -> dict[int, bool]:
    """Which clients are kept; a model's parameter is its accuracy, with ten classes."""
    updates = (Update(k, 1, of_value(a), metrics={"loss": 1.0}) for k, a in enumerate(accuracies))
    found = list(rule(updates, lambda model: float(model.params["w"].double()), 10))
    assert [float(u.model.params["w"]) for u, _ in found] == pytest.approx(accuracies)
    return {u.client: reason is None for u, reason in found}


def test_those_at_chance_are_dropped() -> None:
    assert judged(DropWorst(), 0.5, 0.119, 0.121) == {0: True, 1: False, 2: True}


def test_outliers_are_dropped_when_none_is_at_chance() -> None:
    # Without the best: 0.5 x 5 and 0.27 have mean 0.4617, deviation 0.0857; the bar is 0.3331. With it, 0.2653.
    rule = DropWorst(deviations=1.5)
    assert judged(rule, 0.5, 0.5, 0.27, 0.5, 0.9, 0.5, 0.5) == {k: k != 2 for k in range(7)}
    # One at chance: only it is dropped.
    assert judged(rule, 0.5, 0.5, 0.2, 0.5, 0.1, 0.5, 0.5) == {k: k != 4 for k in range(7)}
    assert judged(rule, 0.5) == {0: True}


def test_streaming_without_deviations_and_one_at_a_time_with() -> None:
    pulled: list[int] = []

    def updates() -> Iterator[Update]:
        for k in range(3):
            pulled.append(k)
            yield Update(k, 1, of_value(0.5))

    def half(model: Snapshot) -> float:
        return 0.5

    next(DropWorst()(updates(), half, 10))
    assert pulled == [0]
    pulled.clear()
    next(DropWorst(deviations=1.5)(updates(), half, 10))
    assert pulled == [0, 1, 2]


def test_errors() -> None:
    with pytest.raises(FedfuseError, match="negative"):
        DropWorst(factor=-1)
    with pytest.raises(FedfuseError, match="client 4 sent no model"):
        next(DropWorst()([Update(4, 1, None)], lambda model: 0.0, 10))

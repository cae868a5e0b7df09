"""Which updates take part in a fusion."""

from collections.abc import Iterator

import pytest

from fedfuse.evaluate import Score
from fedfuse.fusion import AdmitAll, DropWorst, admission
from fedfuse.types import FedfuseError, Update
from tests.fusion.cases import context, of_value

CLASSES = 3  # of the context's validation data


@pytest.fixture(autouse=True)
def _accuracy_is_the_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's parameter is its accuracy."""
    monkeypatch.setattr(admission, "evaluate", lambda value, data: Score(value, 0.0))
    monkeypatch.setattr("fedfuse.context.Nets.load", lambda nets, model, use: float(model.params["w"].double()))


def admitted(rule: DropWorst, *accuracies: float) -> dict[int, bool]:
    """Which clients take part."""
    updates = (Update(k, 1, of_value(a), metrics={"loss": 1.0}) for k, a in enumerate(accuracies))
    judged = list(rule(updates, context()))
    assert [float(u.model.params["w"]) for u, _ in judged if u.model] == pytest.approx(accuracies)
    return {u.client: reason is None for u, reason in judged}


def test_all_are_admitted_by_default() -> None:
    updates = [Update(k, 1, of_value(0.0)) for k in range(3)]
    assert list(AdmitAll()(updates, context())) == [(update, None) for update in updates]


def test_those_at_chance_are_dropped() -> None:
    assert admitted(DropWorst(), 0.5, 0.399, 0.401) == {0: True, 1: False, 2: True}


def test_outliers_are_dropped_when_none_is_at_chance() -> None:
    # Without the best: 0.5 x 5 and 0.27 have mean 0.4617, deviation 0.0857; the bar is 0.3331. With it, 0.2653.
    rule = DropWorst(factor=0.36, deviations=1.5)  # chance counts as 0.12
    assert admitted(rule, 0.5, 0.5, 0.27, 0.5, 0.9, 0.5, 0.5) == {k: k != 2 for k in range(7)}
    # One at chance: only it is dropped.
    assert admitted(rule, 0.5, 0.5, 0.2, 0.5, 0.1, 0.5, 0.5) == {k: k != 4 for k in range(7)}
    assert admitted(rule, 0.5) == {0: True}


def test_streaming_without_deviations_and_one_at_a_time_with() -> None:
    pulled: list[int] = []

    def updates() -> Iterator[Update]:
        for k in range(3):
            pulled.append(k)
            yield Update(k, 1, of_value(0.5))

    next(DropWorst()(updates(), context()))
    assert pulled == [0]
    pulled.clear()
    next(DropWorst(deviations=1.5)(updates(), context()))
    assert pulled == [0, 1, 2]


def test_errors() -> None:
    with pytest.raises(FedfuseError, match="negative"):
        DropWorst(factor=-1)
    with pytest.raises(FedfuseError, match="client 4 sent no model"):
        next(DropWorst()([Update(4, 1, None)], context()))

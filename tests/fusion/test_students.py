"""Where students start, and what the server's next models are."""

from fedfuse.fusion import PerArchitecture
from fedfuse.types import ServerState
from tests.fusion.cases import context, of_value


def test_students_start_from_the_average_or_from_before() -> None:
    server = ServerState(0, {"one": of_value(1.0), "two": of_value(2.0, "two")})
    averages = {"one": of_value(5.0)}
    from_average = PerArchitecture().start(server, context()).starts(averages)
    from_previous = PerArchitecture("previous").start(server, context()).starts(averages)
    assert {arch: float(m.params["w"]) for arch, m in from_average.items()} == {"one": 5.0, "two": 2.0}
    assert {arch: float(m.params["w"]) for arch, m in from_previous.items()} == {"one": 1.0, "two": 2.0}


def test_the_next_models_are_the_students_and_those_that_did_not_learn() -> None:
    server = ServerState(0, {"one": of_value(1.0), "two": of_value(2.0, "two")})
    value = PerArchitecture().start(server, context()).value({"one": of_value(5.0)}, {"one": of_value(7.0)})
    assert {arch: float(m.params["w"]) for arch, m in value.items()} == {"one": 7.0, "two": 2.0}

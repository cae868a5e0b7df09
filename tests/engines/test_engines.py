"""Engines: the same bits from either, clients' own memory kept for them, and failures that stay with their client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedfuse.algorithm import Algorithm
from fedfuse.config.experiment import Experiment
from fedfuse.context import Context
from fedfuse.engines import Engine, InProcess, Workers
from fedfuse.engines.engine import attempt
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.testing import bits
from fedfuse.types import Failure, FedfuseError, ServerState, Task, Update
from tests.doubles import DROPPING, failing, initial


def experiment(algorithm: str, clients: int = 20, arch: str = DROPPING) -> Experiment:
    return Experiment(
        data={"source": "tests.doubles:own_data", "validation": 0},
        partition={"scheme": "iid", "clients": clients},
        models={"clients": arch},
        local={"epochs": 1, "batch_size": 4},
        algorithm={"name": f"tests.doubles:{algorithm}"},
        run={"rounds": 3},
    )


class Bench:
    """An experiment with an engine of each kind, and the server they start from."""

    def __init__(self, algorithm: str, folder: Path, workers: int) -> None:
        made = experiment(algorithm)
        federation = load_federation(made)
        self.ctx: Context = set_up(made, federation).ctx.at(1)
        self.server: ServerState = initial(self.ctx)
        self.algorithm: Algorithm = made.algorithm.build()
        folder.mkdir()
        federation.save(folder / "scratch")
        (folder / "experiment.toml").write_text(made.toml())
        self.workers = Workers(workers, folder / "experiment.toml", folder / "scratch")
        self.folder = folder / "scratch"

    def answers(self, engine: Engine, cohort: list[int], round: int = 1) -> list[Update | Failure]:
        ctx = self.ctx.at(round)
        tasks = (self.algorithm.brief(self.server, client, ctx) for client in cohort)
        answers = list(engine.run(self.algorithm, tasks, ctx))
        engine.settle(cohort)
        return answers


@pytest.fixture(scope="module")
def five_fail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, list[Update | Failure]]]:
    """Five clients fail, two of them with their process; asked once, looked at by several tests."""
    bench = Bench("five_fail", tmp_path_factory.mktemp("bench") / "five", workers=2)
    with closing(bench.workers):
        yield bench, bench.answers(bench.workers, [0, 1, 2, 3, 4, 5])


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench("remembering", tmp_path_factory.mktemp("bench") / "remembering", workers=2)
    with closing(bench.workers):
        yield bench


def test_a_worker_that_dies_costs_its_clients_update_only(five_fail: tuple[Bench, list[Update | Failure]]) -> None:
    _, answers = five_fail
    assert [a.client for a in answers] == [0, 1, 2, 3, 4, 5]
    reasons = {a.client: a.reason for a in answers if isinstance(a, Failure)}
    assert reasons == {
        0: "failed in its local work: ValueError: round 1 was too much",
        1: "ran out of memory in its local work",
        3: "its worker process died: exit code 7",
        4: "its worker process died: killed (signal 9), perhaps out of memory",
    }
    assert isinstance(answers[2], Update)  # it answered with NaN: that is for the server to refuse
    assert isinstance(answers[5], Update)


def test_the_client_that_is_left_answers_what_it_would_have_in_this_process(
    five_fail: tuple[Bench, list[Update | Failure]],
) -> None:
    bench, answers = five_fail
    (here,) = bench.answers(InProcess(), [5])
    there = answers[5]
    assert isinstance(here, Update)
    assert isinstance(there, Update)
    assert here.model is not None
    assert there.model is not None
    assert bits(here.model) == bits(there.model)
    assert (here.metrics, here.num_examples) == (there.metrics, there.num_examples)
    assert list(here.model.params) == list(there.model.params)  # whoever draws name by name draws the same


def test_a_worker_that_died_is_replaced(five_fail: tuple[Bench, list[Update | Failure]]) -> None:
    bench, _ = five_fail
    again = bench.answers(bench.workers, [3, 5, 6], round=2)
    assert [type(a) for a in again] == [Failure, Update, Update]


def test_nothing_is_left_in_the_scratch_folder_after_a_round(five_fail: tuple[Bench, list[Update | Failure]]) -> None:
    bench, _ = five_fail
    assert [p.name for p in bench.folder.iterdir() if p.name.startswith("round-")] == []


def counts(answers: list[Update | Failure]) -> dict[int, int]:
    return {a.client: int(a.extra["count"]["n"]) for a in answers if isinstance(a, Update)}


@pytest.mark.parametrize("kind", ["in process", "workers"])
def test_each_client_finds_what_it_kept(remembering: Bench, kind: str) -> None:
    engine: Engine = InProcess() if kind == "in process" else remembering.workers
    engine.restore({4: {"own": {"rounds": torch.tensor(40)}}})
    assert counts(remembering.answers(engine, [1, 2, 4], round=1)) == {1: 1, 2: 1, 4: 41}
    assert counts(remembering.answers(engine, [2, 3, 4], round=2)) == {2: 2, 3: 1, 4: 42}
    memory = {client: int(groups["own"]["rounds"]) for client, groups in engine.memory().items()}
    assert memory == {1: 1, 2: 2, 3: 1, 4: 42}
    assert list(memory) == sorted(memory)


@pytest.mark.parametrize("kind", ["in process", "workers"])
def test_a_client_whose_answer_was_not_accepted_remembers_what_it_did_before(remembering: Bench, kind: str) -> None:
    engine: Engine = InProcess() if kind == "in process" else remembering.workers
    engine.restore({5: {"own": {"rounds": torch.tensor(7)}}, 6: {"own": {"rounds": torch.tensor(7)}}})
    ctx = remembering.ctx.at(1)
    tasks = [remembering.algorithm.brief(remembering.server, client, ctx) for client in (5, 6)]
    for accepted in ([5], []):
        list(engine.run(remembering.algorithm, tasks, ctx))
        engine.settle(accepted)
        memory = {client: int(groups["own"]["rounds"]) for client, groups in engine.memory().items()}
        assert (memory[5], memory[6]) == (8, 7)
    assert [p.name for p in remembering.folder.iterdir() if p.name.startswith("fresh-")] == []


def test_what_a_client_keeps_does_not_travel(remembering: Bench) -> None:
    (answer,) = remembering.answers(InProcess(), [0])
    assert isinstance(answer, Update)
    assert answer.memory == {}


def test_a_client_that_fails_keeps_what_it_had(ctx: Context, server: ServerState) -> None:
    def fail(task: Task) -> None:
        raise ValueError

    had = {"own": {"rounds": torch.tensor(3)}}
    answer, memory = attempt(failing({0: fail}), Task(0, 1, server.models["mlp:8"]), had, ctx)
    assert isinstance(answer, Failure)
    assert memory is had


def test_a_client_that_answers_nonsense_costs_its_own_update_only(ctx: Context, server: ServerState) -> None:
    class Nonsense:
        def __call__(self, task: Task, memory: object, ctx: Context) -> Update:
            return None  # type: ignore[return-value]

    algorithm = replace(failing({}), local=Nonsense())
    answers = list(InProcess().run(algorithm, [Task(0, 1, server.models["mlp:8"])], ctx))
    assert [type(a) for a in answers] == [Failure]


def test_a_client_that_leaves_the_program_costs_its_own_update_only(ctx: Context, server: ServerState) -> None:
    def leave(task: Task) -> None:
        raise SystemExit(3)

    answers = list(InProcess().run(failing({0: leave}), [Task(0, 1, server.models["mlp:8"])], ctx))
    assert [type(a) for a in answers] == [Failure]


def test_a_user_who_interrupts_is_not_a_client_that_failed(ctx: Context, server: ServerState) -> None:
    def interrupt(task: Task) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(InProcess().run(failing({0: interrupt}), [Task(0, 1, server.models["mlp:8"])], ctx))


def test_answers_come_in_the_order_of_the_tasks_and_tasks_are_drawn_as_needed(remembering: Bench) -> None:
    """A thousand clients are not a thousand tasks in memory: no more are drawn than may be under way."""
    drawn: list[int] = []

    def tasks() -> Iterator[Task]:
        for client in range(20):
            drawn.append(client)
            yield remembering.algorithm.brief(remembering.server, client, remembering.ctx.at(3))

    stream = remembering.workers.run(remembering.algorithm, tasks(), remembering.ctx.at(3))
    first = next(stream)
    assert len(drawn) < 12
    assert [first.client, *(a.client for a in stream)] == list(range(20))


def test_an_experiment_that_a_worker_cannot_open_is_an_error_that_says_why(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text("[nonsense]")
    (tmp_path / "scratch").mkdir()
    sound = experiment("remembering")
    ctx = set_up(sound, load_federation(sound)).ctx.at(1)
    with closing(Workers(1, tmp_path / "experiment.toml", tmp_path / "scratch")) as engine:
        task = Task(0, 1, initial(ctx).models[DROPPING])
        with pytest.raises(
            FedfuseError, match=r"(?s)a worker process could not open .*nonsense = {}: is not a known key"
        ):
            list(engine.run(failing({}), [task], ctx))


def test_what_a_client_prints_does_not_get_between_the_messages(tmp_path: Path) -> None:
    bench = Bench("talkative", tmp_path / "bench", workers=1)
    with closing(bench.workers):
        assert [type(a) for a in bench.answers(bench.workers, [0, 1])] == [Update, Update]


def test_a_worker_that_served_one_experiment_serves_the_next_as_its_own(tmp_path: Path) -> None:
    """Files of the same name, other models in them: what a worker holds of the run before must not be found again."""
    for name, arch in (("first", "mlp:4"), ("second", "mlp:8")):
        made = experiment("remembering", arch=arch)
        federation = load_federation(made)
        ctx = set_up(made, federation).ctx.at(1)
        folder = tmp_path / "same"
        federation.save(folder)
        (tmp_path / f"{name}.toml").write_text(made.toml())
        task = Task(0, 1, initial(ctx).models[arch])
        with closing(Workers(1, tmp_path / f"{name}.toml", folder)) as engine:
            (there,) = engine.run(made.algorithm.build(), [task], ctx)
        (here,) = InProcess().run(made.algorithm.build(), [task], ctx)
        assert isinstance(there, Update)
        assert isinstance(here, Update)
        assert there.model is not None
        assert here.model is not None
        assert bits(there.model) == bits(here.model)


def test_a_worker_follows_its_run_into_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is reused was started elsewhere: it must find the relative paths and modules of the new run."""
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"net_{number}.py").write_text(
            "from pathlib import Path\nfrom torch import nn\n\n\ndef make(classes, shape):\n"
            "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], int(Path('width').read_text())), nn.ReLU(), "
            "nn.Linear(int(Path('width').read_text()), classes))\n"
        )
        (folder / "width").write_text(str(3 + number))
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))
        made = experiment("remembering", arch=f"net_{number}:make")
        federation = load_federation(made)
        ctx = set_up(made, federation).ctx.at(1)
        federation.save(Path("federation"))
        Path("experiment.toml").write_text(made.toml())
        task = Task(0, 1, initial(ctx).models[f"net_{number}:make"])
        with closing(Workers(1, Path("experiment.toml"), Path("federation"))) as engine:
            (there,) = engine.run(made.algorithm.build(), [task], ctx)
        assert isinstance(there, Update), there

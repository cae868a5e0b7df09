"""The command line: a user's mistake is a message and exit code 2; every command helps; options beat the file."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

import fedfuse
from fedfuse.algorithms import ALGORITHMS
from fedfuse.commands import completion, defaults
from fedfuse.commands.app import app
from fedfuse.commands.options import dotted_settings
from fedfuse.compute import devices
from fedfuse.config.experiment import builtin
from fedfuse.config.parts import PARTS
from fedfuse.data.generators.training import Trainer
from fedfuse.fusion import AdamCosine, Target
from fedfuse.tracking import TRACKERS
from fedfuse.types import FedfuseError
from tests.command_line import SMALL, CommandLine, environment, rounds_of
from tests.faults.disk import tiny


def paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command, those of groups among them: ("run",), ("generator", "train")."""
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from paths(inner, (*path, name))
    else:
        yield path


COMMANDS = list(paths(typer.main.get_command(app)))
PLAIN = re.compile(r"\x1b\[[0-9;]*m")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_helps_with_an_example(cli: CommandLine, command: tuple[str, ...]) -> None:
    result = cli.here(*command, "--help")
    assert result.code == 0
    assert re.search(rf"Example:\s+fedfuse {' '.join(command)}\b", PLAIN.sub("", result.out))


def test_the_commands_are_those_of_the_manual() -> None:
    assert {"run", "compare", "list", "show", "check", "partition"} <= {first for first, *_ in COMMANDS}


def test_alone_it_lists_its_commands(cli: CommandLine) -> None:
    result = cli.here()
    assert all(first in result.text for first, *_ in COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "digit"), "did you mean digits?"),
        (("run", "digits", "-a", "fedavgg"), "did you mean fedavg?"),
        (("run", "digits", "-r", "0"), "run.rounds = 0"),
        (("run", "digits", "--workers", "-1"), "run.workers = -1"),
        (("run", "digits", "--seed", "-1"), "run.seed = -1"),
        (("run", "digits", "--set", "local.lr"), "write KEY=VALUE"),
        (("run", "digits", "--set", "local.lr=fast"), "local.lr = 'fast'"),
        (("run", "digits", "--set", "local.rate=1"), "local.rate = 1: is not a known key"),
        (("run", "digits", "--set", "local=3"), "local = 3"),
        (("run", "digits", "--set", "nonsense.key=3"), "nonsense"),
        (("run", "digits", "--set", "=3"), "is not a known key"),
        (("run", "digits", "--set", "models.clients=mlq:3"), "unknown architecture"),
        (("run", "digits", "--set", "partition.clients=5000"), "5000"),
        (("run", "digits", "--set", "data.source=no/such"), "no/such"),
        (("run", "digits", "--set", "algorithm.name=tests.doubles:nobody"), "has no 'nobody'"),
        (("run", "digits", "--data-dir", "/no/such"), "/no/such: there is no such folder"),
        (("run", "digits", "--no-such-option"), "No such option"),
        (("run", "digits", "-r", "many"), "not a valid int"),
        (("run",), "Missing argument"),
        (("ran", "digits"), "No such command"),
        (("compare", "digits", "-a", "fedavgg"), "did you mean fedavg?"),
        (("compare", "digits", "-a", "fedavg", "--seeds", "0"), "0"),
        (("compare", "digits", "-a", "fedavg", "-a", "fedavg"), "fedavg is given twice: leave one of them out"),
        (("compare", "digits", "-a", "fedprox(mu=0.1)", "-a", " fedprox( mu = 0.1 )"), "has the same settings as"),
        (("compare", "digits", "-a", "fedprox", "-a", "fedprox(mu=0.01)"), "has the same settings as fedprox"),
        (("compare", "digits", "-a", "fedavg", "--target", "85"), "--target 85: give a share"),
        (("sweep", "digits", "-p", "local.lr=0.1..1", "--trials", "0"), "0"),
        (("show", "fedavgg"), "did you mean fedavg?"),
        (("check", "digit"), "did you mean digits?"),
        (("partition", "digits", "--set", "partition.alpha=-1"), "alpha"),
    ],
)
def test_a_mistake_is_a_message_and_exit_code_2(
    cli: CommandLine, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In this process a traceback would be an exception here: there is none for any of them.
    monkeypatch.chdir(tmp_path)
    answer = cli.here(*arguments)
    assert answer.code == 2
    assert message in " ".join(PLAIN.sub("", answer.err).replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_the_program_itself_says_so_without_a_traceback(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[data]\nsource = "digits"\n[models]\nclients = "mlp:8"\n[local]\nepoch = 3\n')
    result = cli("run", file)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"error {file}: ")
    assert "local.epoch = 3: is not a known key; did you mean epochs?" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        (*SMALL, "--out", "a" * 300),
        (*SMALL, "--out", "taken/run"),
        ("report", "run", "--out", "taken/report.html"),
        ("report", "run", "--out", "a" * 300),
        ("export", "run", "--hub-folder", "taken/hub"),
        ("export", "run", "--csv", "--out", "taken/csv"),
        ("export", "run", "--figures", "taken/figures"),
        ("compare", SMALL[1], "-a", "fedavg", "--out", "taken"),
        ("sweep", SMALL[1], "--param", "local.lr=0.1..1", "--out", "taken/sweep"),
        ("flower", "up", SMALL[1], "--out", "taken"),
        ("fuse", "model", "--student", "mlp:4", "--pool", "digits", "--out", "a" * 300),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_path_that_cannot_be_is_one_line_in_every_command(
    cli: CommandLine, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "run").symlink_to(finished)
    said = cli.here(*arguments)
    assert said.code == 2
    assert said.err.startswith("error ")
    assert said.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "taken"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fedfuse.run(tiny(rounds=1), tmp_path_factory.mktemp("finished") / "run").path


def test_a_run_directory_that_is_a_file_is_a_users_mistake(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    result = cli.here(*SMALL, "--out", tmp_path / "taken")
    assert result.code == 2
    assert "taken" in result.err


def test_a_directory_that_holds_a_run_is_not_overwritten(cli: CommandLine, tmp_path: Path) -> None:
    assert cli.here(*SMALL, "--out", tmp_path).code == 0
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = cli.here(*SMALL, "--out", tmp_path)
    assert result.code == 2
    assert "already holds a run: continue with --resume, or choose another --out" in result.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == written


@pytest.mark.parametrize(
    ("pair", "key", "value"),
    [
        ("local.lr=0.05", "local.lr", 0.05),
        ("run.rounds=7", "run.rounds", 7),
        ("local.stragglers=true", "local.stragglers", True),
        ("models.clients=mlp:16", "models.clients", "mlp:16"),
        ('models.clients="mlp:16"', "models.clients", "mlp:16"),
        ("local.milestones=[0.3, 0.6]", "local.milestones", [0.3, 0.6]),
        ('models.clients={"mlp:8" = 1, lenet = 2}', "models.clients", {"mlp:8": 1, "lenet": 2}),
        (" local.lr = 0.5 ", "local.lr", 0.5),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
        ("name=1\nx=2", "name", "1\nx=2"),
    ],
)
def test_a_value_is_toml_or_else_a_word(pair: str, key: str, value: object) -> None:
    assert dotted_settings([pair]) == {key: value}


def test_options_with_a_name_of_their_own_beat_set() -> None:
    assert dotted_settings(["run.rounds=7"], run__rounds=3) == {"run.rounds": 3}
    assert dotted_settings(["run.rounds=7"], run__rounds=None) == {"run.rounds": 7}


def test_set_without_equals_is_refused() -> None:
    with pytest.raises(FedfuseError, match="write KEY=VALUE"):
        dotted_settings(["local.lr"])


def test_a_run_prints_plain_lines_and_where_its_results_lie(cli: CommandLine, tmp_path: Path) -> None:
    result = cli.here(*SMALL, "--workers", "1", "--out", tmp_path / "run")
    assert result.code == 0
    assert next(line for line in result.out.splitlines() if line.startswith("round ")).startswith(
        "round 1/4  accuracy 0."
    )
    assert all(
        (tmp_path / "run" / part).exists() for part in ("experiment.toml", "rounds.jsonl", "models", "checkpoint")
    )
    assert [r["round"] for r in rounds_of(tmp_path / "run")] == [1, 2, 3, 4]
    assert "\x1b[" not in result.out


def test_options_beat_the_file(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        '[data]\nsource = "digits"\n[models]\nclients = "mlp:8"\n[local]\nsteps = 1\n[run]\nrounds = 9\n'
        'seed = 4\nworkers = 1\n[algorithm]\nname = "fedprox"\nmu = 0.5\n'
    )
    result = cli.here(
        "run", file, "-r", "1", "--seed", "5", "-a", "fedavgm", "--set", "algorithm.beta=0.3", "--out", tmp_path / "out"
    )
    assert result.code == 0, result.err
    written = (tmp_path / "out" / "experiment.toml").read_text()
    assert all(line in written for line in ("rounds = 1\n", "seed = 5\n", 'name = "fedavgm"\n', "beta = 0.3\n"))
    assert "\nmu = " not in written


def test_a_run_has_a_place_of_its_own_by_default(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert cli.here("run", "digits", "-r", "1", "--workers", "1", "--set", "local.epochs=1").code == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["digits-fedavg-seed0", "digits-fedavg-seed0-2"]


def test_compare_puts_algorithms_side_by_side_and_goes_on_where_it_stopped(cli: CommandLine, tmp_path: Path) -> None:
    command = (
        "compare", "digits", "-a", "fedavg", "-a", "fedprox", "--seeds", "2", "-r", "2", "--workers", "1",
        "--target", "0.99", "--set", "local.epochs=1", "--out", str(tmp_path),
    )  # fmt: skip
    first = cli.here(*command)
    assert first.code == 0, first.err
    folders = ["fedavg-seed0", "fedavg-seed1", "fedprox-seed0", "fedprox-seed1"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [*folders, "report.html"]
    assert "> 2" in first.out  # nobody reached 99 % in two rounds, and the table does not pretend
    # The same cohorts and initial weights for both algorithms; other ones for the other seed.
    cohorts = {name: [r["cohort"] for r in rounds_of(tmp_path / name)] for name in folders}
    assert cohorts["fedavg-seed0"] == cohorts["fedprox-seed0"] != cohorts["fedavg-seed1"]
    again = cli.here(*command)
    assert "2 already finished" in again.out
    assert again.out.splitlines()[-8:] == first.out.splitlines()[-8:]


def test_list_names_everything_that_has_a_name(cli: CommandLine) -> None:
    result = cli.here("list").out
    for word in (
        "fedavg",
        "fedprox",
        "fedavgm",
        "digits",
        "cifar10",
        "resnet8",
        "mlp:64-32",
        "dirichlet",
        "synthetic",
        "noise",
    ):
        assert word in result


def test_show_gives_the_paper_the_settings_and_the_parts(cli: CommandLine) -> None:
    result = cli.here("show", "fedavgm").out
    assert all(word in result for word in ("arXiv:1909.06335", "beta = 0.9", "Momentum(beta=0.9)", "aggregate.py:"))


def test_check_validates_without_training(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = cli.here("check", "digits")
    assert result.code == 0
    assert "digits is sound" in result.out
    assert list(tmp_path.iterdir()) == []


def test_partition_shows_what_clients_keep(cli: CommandLine) -> None:
    results = (cli.here("partition", "digits", "--set", f"partition.keep={keep}") for keep in (1.0, 0.5))
    whole, half = (" ".join(result.text.split()) for result in results)  # lines are broken at the terminal's width
    assert "0.5 of each client's data" in half
    assert "of each client's data" not in whole
    refused = cli.here("partition", "digits", "--set", "partition.keep=0")
    assert refused.code == 2
    assert "partition.keep" in refused.err


def test_partition_shows_every_client(cli: CommandLine, tmp_path: Path) -> None:
    result = cli.here("partition", "digits", "--picture", tmp_path / "clients.svg")
    assert result.code == 0, result.err
    assert len([line for line in result.out.splitlines() if re.match(r"\s+\d\s", line)]) == 10
    assert (tmp_path / "clients.svg").read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    "words", [("run", "digits"), ("compare", "digits", "-a", "fedavg"), ("report", "."), ("flower", "up", "digits")]
)
def test_an_empty_out_is_not_this_folder(cli: CommandLine, words: tuple[str, ...]) -> None:
    ended = cli.here(*words, "--out", "")
    assert ended.code == 2
    assert "--out ''" in ended.err


WITHOUT_TORCH = """
import sys
from fedfuse.cli import main

for words in [["--help"], ["--version"], *([*command.split(), "--help"] for command in sys.argv[1:])]:
    sys.argv = ["fedfuse", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
    assert "torch" not in sys.modules, f"fedfuse {' '.join(words)} imports torch"
"""


def test_help_does_not_wait_for_torch() -> None:
    """Importing torch takes seconds. One process asks for the help of all commands."""
    commands = [" ".join(command) for command in COMMANDS]
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *commands], capture_output=True, text=True, env=environment(None)
    )
    assert process.returncode == 0, process.stderr
    assert f"fedfuse {fedfuse.__version__}" in process.stdout


def test_help_shows_the_defaults_of_the_code() -> None:
    assert (
        AdamCosine.steps,
        AdamCosine.lr,
        AdamCosine.batch_size,
    ) == (defaults.STEPS, defaults.LR, defaults.BATCH_SIZE)
    trainer = (defaults.GENERATOR_STEPS, defaults.LATENT, defaults.WIDTH, defaults.GENERATOR_SEED)
    assert trainer == (Trainer.steps, Trainer.latent, Trainer.width, Trainer.seed)
    assert tuple(PARTS[Target]) == defaults.TARGETS
    assert tuple(TRACKERS) == defaults.TRACKERS
    assert defaults.DEVICE == devices.AUTO


def test_a_shell_completes_experiments_and_algorithms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digital.toml").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.toml").write_text("")
    assert set(builtin()) <= set(completion.experiments(""))
    assert completion.experiments("digi") == ["digits", "digital.toml"]
    assert completion.experiments("fol") == ["folder/"]
    assert completion.experiments("./folder/") == ["./folder/mine.toml"]
    assert completion.experiments("no/such/") == []
    assert completion.algorithms("") == sorted(ALGORITHMS)
    assert completion.algorithms("fed-") == ["fed-et"]


def test_completion_reaches_the_shell(cli: CommandLine) -> None:
    asked = {"_FEDFUSE_COMPLETE": "complete_bash", "COMP_WORDS": "fedfuse compare digits -a fedavg", "COMP_CWORD": "4"}
    assert cli(env=asked).out.split() == ["fedavg", "fedavgm"]

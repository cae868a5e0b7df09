"""What is said of an experiment that is wrong: the file, the key, the value, and what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedfuse
from fedfuse.config.experiment import Experiment, builtin, load
from fedfuse.config.named import ConfigError
from fedfuse.config.overlay import overlaid
from fedfuse.local_settings import LocalSettings
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.signature import did_you_mean, resolve
from fedfuse.types import FedfuseError

SOUND = """
[data]
source = "digits"

[models]
clients = "mlp:16"

[local]
epochs = 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "mine.toml"


def error_of(text: str, file: Path) -> str:
    file.write_text(text)
    with pytest.raises(FedfuseError) as caught:
        load(file)
    return str(caught.value)


def test_a_sound_file_is_filled_up_with_defaults(file: Path) -> None:
    file.write_text(SOUND)
    made = load(file)
    assert made.name == "mine"
    assert (made.run.rounds, made.partition.clients, made.algorithm.name) == (20, 10, "fedavg")
    # A resolved experiment states what it runs with, settings of its functions among them.
    assert made.resolved()["algorithm"] == {
        "name": "fedavg",
        "aggregate": {"name": "mean", "weights": "examples", "buffers": "mean"},
        "admission": {"name": "all"},
        "drop_worst": False,
    }


@pytest.mark.parametrize("name", builtin())
def test_every_built_in_experiment_is_sound(name: str) -> None:
    assert load(name).name == name


@pytest.mark.parametrize(
    ("section", "key", "value", "right"),
    [
        ("local", "epoch", "3", "local.epoch = 3: is not a known key; did you mean epochs?"),
        ("run", "seeds", "3", "run.seeds = 3: is not a known key; did you mean seed?"),
        ("partition", "cleints", "3", "partition.cleints = 3: is not a known key; did you mean clients?"),
        (
            "algorithm",
            "wieghts",
            '"uniform"',
            "algorithm.wieghts = 'uniform': is not a known key; did you mean weights?",
        ),
        ("data", "valdation", "0.2", "data.valdation = 0.2: is not a known key; did you mean validation?"),
        ("algorithm", "name", '"fedavgg"', "no algorithm is called 'fedavgg'; did you mean fedavg?"),
        ("data", "source", '"digit"', "no data source is called 'digit'; did you mean digits?"),
        ("partition", "scheme", '"dirichelt"', "no partition is called 'dirichelt'; did you mean dirichlet?"),
        ("local", "lr", '"fast"', "local.lr = 'fast': input should be a valid number"),
        ("local", "lr", "-0.1", "local.lr = -0.1: input should be greater than 0"),
        ("local", "steps", "4", "give either epochs or steps, and not both"),
        ("run", "fraction", "1.5", "run.fraction = 1.5: input should be less than or equal to 1"),
        ("run", "rounds", "0", "run.rounds = 0: input should be greater than 0"),
        ("run", "rounds", "2.5", "run.rounds = 2.5: input should be a valid integer"),
        ("run", "selection", '"random"', "run.selection = 'random': input should be 'uniform' or 'proportional'"),
        ("run", "quorum", "0", "run.quorum = 0: input should be greater than 0"),
        (
            "algorithm",
            "buffers",
            '"drop"',
            "algorithm.buffers = 'drop': input should be 'mean', 'keep', 'recalibrate' or 'last'",
        ),
        ("partition", "clients", '"ten"', "partition.clients = 'ten': input should be a valid integer"),
        ("data", "validation", "1.0", "data.validation = 1.0: input should be less than 1"),
        ("data", "pool", '"splitt"', "no pool is called 'splitt'; did you mean split?"),
        ("local", "lr", "inf", "local.lr = inf: input should be a finite number"),
        ("local", "lr", "true", "local.lr = True: must be a number, not true or false"),
        ("local", "milestones", "[0.5, true]", "local.milestones = [0.5, True]: must be a number, not true or false"),
        ("run", "seed", "true", "run.seed = True: must be a number, not true or false"),
        ("data", "validation", "nan", "data.validation = nan: input should be a finite number"),
        ("partition", "clients", "true", "partition.clients = True: must be a number, not true or false"),
        ("models", "clients", "5", "models.clients = 5: input should be a valid string, or a table"),
        ("models", "clients", '{"mlp:8" = -1}', "models.clients.mlp:8 = -1: input should be greater than 0"),
        ("models", "clients", '{"mlp:8" = true}', "models.clients: must be a number, not true or false"),
        ("models", "clients", "{}", "models.clients: give at least one architecture"),
        ("data", "pool", "5", "data.pool = 5: input should be a table"),
    ],
)
def test_a_mistake_names_file_key_value_and_remedy(section: str, key: str, value: str, right: str, file: Path) -> None:
    sections = {"data": {"source": '"digits"'}, "models": {"clients": '"mlp:16"'}, "local": {"epochs": "1"}}
    sections.setdefault(section, {})[key] = value
    text = "".join(f"[{s}]\n" + "".join(f"{k} = {v}\n" for k, v in keys.items()) for s, keys in sections.items())
    result = error_of(text, file)
    assert result.startswith(f"{file}: {section}")
    assert right in result


@pytest.mark.parametrize(
    ("algorithm", "right"),
    [
        ("name = 'fedprox'\nmu = nan", "algorithm.mu = nan: input should be a finite number"),
        ("name = 'fedprox'\nmu = true", "algorithm.mu = True: must be a number, not true or false"),
        ("name = 'feddf'\ndistiller = 5", "algorithm.distiller = 5: input should be a table"),
        ("name = 'feddf'\ndistiller = {name = 'adam', lr = inf}", "algorithm.distiller.lr = inf: input should be"),
    ],
)
def test_so_does_one_in_an_algorithm(algorithm: str, right: str, file: Path) -> None:
    result = error_of(f"{SOUND}\n[algorithm]\n{algorithm}\n", file)
    assert right in result
    assert "\n" not in result


def test_an_empty_file_is_one_line(file: Path) -> None:
    for text in ("", "\n# nothing yet\n"):
        assert error_of(text, file) == f"{file}: is empty: give at least the section [data]"


def test_deep_nesting_is_no_toml(file: Path) -> None:
    assert error_of(f"data = {'[' * 100_000}", file).startswith(f"{file}: not valid TOML")


def test_an_unknown_section_is_told_which_there_are(file: Path) -> None:
    result = error_of(SOUND + "\n[algoritm]\nname = 'fedavg'\n", file)
    assert "did you mean algorithm?" in result
    assert "Known here: algorithm, data, local, models, name, partition, provenance, run" in result


def test_all_mistakes_are_listed_at_once(file: Path) -> None:
    result = error_of(SOUND + "lr = -1\nmomentum = 2\n[run]\nrounds = 0\n[nonsense]\n", file)
    assert len(result.splitlines()) == 4
    assert all(line.startswith(f"{file}: ") for line in result.splitlines())
    assert all(key in result for key in ("local.lr = -1", "local.momentum = 2", "run.rounds = 0", "nonsense"))


def test_mistakes_in_settings_of_several_functions_are_listed_at_once(file: Path) -> None:
    result = error_of(
        SOUND + "[algorithm]\nname = 'fedprox'\nmu = 'x'\n[partition]\nscheme = 'dirichlet'\nalpha = 'y'\n", file
    )
    assert "algorithm.mu = 'x'" in result
    assert "partition.alpha = 'y'" in result


def test_a_section_that_is_missing_is_named(file: Path) -> None:
    without = SOUND.replace("[data]", "[other]")
    assert without != SOUND
    assert "data = None: is required and was not given" in error_of(without, file)


def test_without_local_settings_clients_train_for_one_epoch(file: Path) -> None:
    file.write_text(SOUND.replace("[local]\nepochs = 1", ""))
    assert load(file).local == LocalSettings(epochs=1)


def test_what_is_no_toml_says_in_which_line(file: Path) -> None:
    result = error_of("[data\nsource = 1", file)
    assert result.startswith(f"{file}: not valid TOML")
    assert "line 1" in result


def test_bytes_that_are_no_text_are_an_error_that_names_the_file(file: Path) -> None:
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FedfuseError, match=r"mine\.toml: cannot be read"):
        load(file)


def test_an_experiment_that_is_not_there_points_to_the_nearest() -> None:
    with pytest.raises(FedfuseError, match=r"no experiment 'digit': .*did you mean digits\?.*Built in: "):
        load("digit")


def test_from_python_the_same_mistake_says_the_same() -> None:
    with pytest.raises(ConfigError, match=r"local\.epoch = 3: is not a known key; did you mean epochs"):
        Experiment(data={"source": "digits"}, models={"clients": "mlp:16"}, local={"epoch": 3})


def test_every_settings_key_can_be_set_from_outside(file: Path) -> None:
    file.write_text(SOUND)
    settings = {
        "local.lr": 0.5,
        "run.seed": 9,
        "partition.scheme": "dirichlet",
        "partition.alpha": 0.3,
        "data.pool": "noise",
    }
    made = load(file, {**settings, "data.pool.size": 50})
    assert (made.local.lr, made.run.seed) == (0.5, 9)
    assert made.resolved()["partition"]["alpha"] == 0.3
    assert made.resolved()["data"]["pool"] == {"kind": "noise", "size": 50}


def test_a_key_below_one_that_is_no_section_is_refused(file: Path) -> None:
    file.write_text(SOUND)
    with pytest.raises(FedfuseError, match=r"local\.epochs is not a section"):
        load(file, {"local.epochs.more": 1})


def test_another_algorithm_drops_the_settings_of_the_one_before() -> None:
    before = {
        "algorithm": {"name": "fedprox", "mu": 0.5},
        "partition": {"scheme": "dirichlet", "alpha": 1.0, "clients": 7},
    }
    after = overlaid(before, {"algorithm.name": "fedavg", "partition.scheme": "iid"})
    # The section's own keys stay: how many clients there are has nothing to do with how data is spread.
    assert after == {"algorithm": {"name": "fedavg"}, "partition": {"scheme": "iid", "clients": 7}}
    assert before["algorithm"] == {"name": "fedprox", "mu": 0.5}


def test_the_same_algorithm_keeps_its_settings() -> None:
    before = {"algorithm": {"name": "fedprox", "mu": 0.5}}
    assert overlaid(before, {"algorithm.name": "fedprox"}) == before


def test_a_resolved_experiment_resolves_to_itself(tmp_path: Path) -> None:
    made = load("digits", {"algorithm.name": "fedprox", "algorithm.mu": 0.3, "data.pool": "split"})
    (tmp_path / "again.toml").write_text(made.toml())
    assert load(tmp_path / "again.toml").resolved() == made.resolved()
    assert made.with_settings({"local.lr": 0.7}).local.lr == 0.7


def test_several_architectures_have_weights(file: Path) -> None:
    file.write_text(SOUND.replace('clients = "mlp:16"', 'clients = {"mlp:16" = 1, "mlp:8" = 3}'))
    made = load(file, {"partition.clients": 8})
    archs = set_up(made, load_federation(made)).ctx.archs
    assert (archs.count("mlp:16"), archs.count("mlp:8")) == (2, 6)


@pytest.mark.parametrize(
    ("arch", "message"),
    [("mlq:16", "unknown architecture 'mlq:16'"), ("resnet8:xx", "norm 'xx'"), ("tests.doubles:nobody", "nobody")],
)
def test_a_model_that_does_not_resolve_is_found_by_check(arch: str, message: str, file: Path) -> None:
    file.write_text(SOUND.replace("mlp:16", arch))
    with pytest.raises(FedfuseError, match=message) as caught:
        fedfuse.check(load(file))
    assert "models.clients" in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("no.such.module:x", "no module 'no'"),
        ("tests.doubles:nobody", "module tests.doubles has no 'nobody'"),
        ("tests.doubles:LINEAR", "is a str, not a function"),
        ("tests.doubles:not_an_algorithm", "'tests.doubles:not_an_algorithm' returned a str"),
    ],
)
def test_an_algorithm_of_ones_own_that_is_none_says_why(reference: str, message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        load("digits", {"algorithm.name": reference}).algorithm.build()


def test_a_module_that_fails_to_import_says_how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_for_test.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FedfuseError, match="cannot be imported: ZeroDivisionError"):
        resolve("broken_for_test:x", {}, "algorithm")


@pytest.mark.parametrize(("word", "end"), [("fedavgg", "; did you mean fedavg?"), ("zzz", ".")])
def test_only_what_is_near_is_suggested(word: str, end: str) -> None:
    assert did_you_mean(word, ["fedavg", "fedprox"]) == end


def test_the_package_has_one_way_to_load() -> None:
    assert fedfuse.load is load
    assert fedfuse.Experiment is Experiment


def test_an_experiment_is_a_value(file: Path) -> None:
    file.write_text(SOUND)
    made: Any = load(file)
    with pytest.raises(ValueError, match="frozen"):
        made.name = "other"


def test_a_setting_that_would_be_ignored_is_refused(file: Path) -> None:
    message = error_of(SOUND.replace("epochs = 1", 'epochs = 1\noptimizer = "adam"\nmomentum = 0.9'), file)
    assert "local: adam has no momentum = 0.9" in message
    assert "{" not in message  # the section is not printed whole

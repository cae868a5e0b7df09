"""Parts by name, in a file and on the command line: the same values as in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import fedfuse
from examples.fedadam import fedadam
from fedfuse.algorithm import Algorithm
from fedfuse.algorithms import fed_et, fedavg, fedbe, feddf, fedprox, moon, scaffold, v_distillation
from fedfuse.algorithms.feddf import SGD_OF_TABLE_7
from fedfuse.config.experiment import Experiment, load
from fedfuse.config.overlay import algorithm_settings, overlaid
from fedfuse.config.parts import PARTS, algorithm_keys
from fedfuse.fusion import (
    SGD,
    SWA,
    AdamCosine,
    Averaged,
    CoordinateMedian,
    DirichletMixture,
    Distilled,
    DropWorst,
    MeanLogits,
    MeanProbs,
    MedianLogits,
    Momentum,
    WeightedMean,
)
from fedfuse.fusion.target import RunningTarget
from fedfuse.signature import settings_of
from fedfuse.types import FedfuseError
from tests.command_line import CommandLine


def experiment(text: str) -> Experiment:
    """The digits with the algorithm that a command line states so."""
    return load("digits", algorithm_settings(text))


def stated(text: str) -> Algorithm:
    return experiment(text).algorithm.build()


def problem(text: str) -> str:
    with pytest.raises(FedfuseError) as caught:
        experiment(text)
    return str(caught.value)


@dataclass(frozen=True)
class OwnTarget:
    """MeanLogits under another name."""

    temperature: float = 1.0

    def start(self, rows: int, classes: int) -> RunningTarget:
        return MeanLogits(self.temperature).start(rows, classes)


OWN = "tests.config.test_parts:OwnTarget"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('feddf(distiller="sgd")', feddf(distiller=SGD_OF_TABLE_7)),
        ('feddf(distiller={name="sgd", steps=100})', feddf(distiller=replace(SGD_OF_TABLE_7, steps=100))),
        (
            'feddf(distiller={name="sgd", epochs=5})',
            feddf(distiller=replace(SGD_OF_TABLE_7, epochs=5, steps=None)),
        ),
        ('fedbe(distiller="sgd")', fedbe(distiller=SGD())),
        ("feddf(steps=500, lr=0.01)", feddf(steps=500, lr=0.01)),
        ('feddf(distiller="sgd", lr=0.5)', feddf(distiller=replace(SGD_OF_TABLE_7, lr=0.5))),
        ('feddf(target="median", temperature=2.0)', feddf(target=MedianLogits(2.0))),
        ('feddf(over={name="fedavg", aggregate="median"})', feddf(over=fedavg(aggregate=CoordinateMedian()))),
        ('fedbe(distiller={name="adam", steps=500})', fedbe(distiller=AdamCosine(steps=500))),
        ('fedbe(posterior={name="dirichlet", alpha=0.5})', fedbe(posterior=DirichletMixture(alpha=0.5))),
        ('fedbe(posterior="dirichlet", alpha=0.5)', fedbe(posterior=DirichletMixture(alpha=0.5))),
        ('fedbe(preset="official-code", swa_start=50)', fedbe(preset="official-code", swa_start=50)),
        ('v-distillation(target={name="probs", sharpen=3.0})', v_distillation(target=MeanProbs(3.0))),
        ('fedavg(aggregate={name="momentum", mean="median"})', fedavg(aggregate=Momentum(mean=CoordinateMedian()))),
        ('fedavg(weights="uniform")', fedavg(aggregate=WeightedMean("uniform"))),
        ('fed-et(over="scaffold", samples=2, posterior="dirichlet")',
         fed_et(over=scaffold(), samples=2, posterior=DirichletMixture())),
        ('fedavg(admission="drop-worst")', fedavg(drop_worst=True)),
        ('feddf(admission={name="drop-worst", deviations=1.5})',
         feddf(preset="official-code", views=0, drop_worst=True)),
        ('feddf(over={name="moon", admission="drop-worst"}, admission="all")', feddf(over=moon())),
        (f'feddf(target={{name="{OWN}", temperature=2.0}})', feddf(target=OwnTarget(2.0))),
        (f'feddf(target="{OWN}(temperature=2.0)")', feddf(target=OwnTarget(2.0))),
        ('feddf(over="fedprox(mu=0.1)", steps=9)', feddf(over=fedprox(mu=0.1), steps=9)),
        ('feddf(over="examples.fedadam:fedadam(lr=0.03)")', feddf(over=fedadam(lr=0.03))),
    ],
)  # fmt: skip
def test_a_file_states_what_python_gives(text: str, value: Algorithm) -> None:
    assert stated(text) == value


def test_in_python_an_algorithm_is_a_value() -> None:
    with pytest.raises(FedfuseError, match=r"over = 'fedprox': give an Algorithm"):
        feddf(over="fedprox")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('feddf(distiller="swa", patience=5)', ("algorithm.patience = 5", "SWA has no setting patience")),
        ('fedbe(distiller={name="adam", steps=9}, epochs=5)', ("algorithm.epochs = 5", "AdamCosine has no setting")),
        ('fedbe(posterior="dirichlet", scale=5.0)', ("algorithm.scale = 5.0", "DirichletMixture has no setting scale")),
        ('fedavg(aggregate="median", weights="uniform")', ("algorithm.weights", "CoordinateMedian has no setting")),
        ('feddf(over={name="fedavg", aggregate="median", weights="uniform"})', ("algorithm.over.weights = 'uniform'",)),
        ('feddf(distiller="sdg")', ("algorithm.distiller.name = 'sdg'", "did you mean sgd?")),
        ('feddf(distiller={name="adam", stepz=5})', ("algorithm.distiller.stepz = 5", "did you mean steps?")),
        ('feddf(distiller={name="adam", steps="many"})', ("algorithm.distiller.steps = 'many'",)),
        ('feddf(over="fedprox(mu=0.1")', ("algorithm.over = 'fedprox(mu=0.1'", "unbalanced parentheses")),
        ('feddf(over="fedprox(muu=0.1)")', ("algorithm.over.muu = 0.1", "did you mean mu?")),
        ('feddf(over="fedprox(name=3)")', ("name stands before the brackets",)),
        ('fedavg(admission={name="drop-worst", facto=2})', ("algorithm.admission.facto = 2", "did you mean factor?")),
        ('feddf(stepz=5)', ("algorithm.stepz = 5", "did you mean steps?")),
        ('feddf(target="nothing.there:Target")', ("algorithm.target.name", "no module 'nothing'")),
    ],
)  # fmt: skip
def test_a_mistake_names_the_whole_key_and_the_remedy(text: str, keys: tuple[str, ...]) -> None:
    message = problem(text)
    assert all(key in message for key in keys), message


@pytest.mark.parametrize(
    "call",
    [
        lambda: feddf(distiller=SWA(), patience=5),
        lambda: fedbe(distiller=AdamCosine(), epochs=5),
        lambda: fedbe(posterior=DirichletMixture(), scale=5.0),
        lambda: fed_et(posterior=DirichletMixture()),
        lambda: SGD(epochs=2, steps=3),
        lambda: fedavg(admission=DropWorst(2.0), drop_worst=True),
        lambda: feddf(preset="official-code", admission=DropWorst(2.0), drop_worst=True),
        lambda: SWA(lr_low=1e-4, schedule="constant"),
        lambda: feddf(distiller="sgd"),  # type: ignore[arg-type]
    ],
)
def test_in_python_too_an_argument_that_would_be_ignored_is_an_error(call: Any) -> None:
    with pytest.raises(FedfuseError):
        call()


def test_what_is_resolved_states_everything_once_and_gives_the_same_algorithm() -> None:
    made = experiment("feddf(steps=500)")
    section = made.resolved()["algorithm"]
    assert section["distiller"]["steps"] == 500
    assert section["distiller"]["lr"] == 1e-3
    assert "steps" not in section
    again = Experiment(**made.resolved())
    assert again.resolved() == made.resolved()
    assert again.algorithm.build() == made.algorithm.build()


@pytest.mark.parametrize("name", ["ds-fl", "fed-et", "fedbe", "fedma", "one-shot", "scaffold"])
def test_every_kind_of_algorithm_comes_back_from_its_file(name: str) -> None:
    made = experiment(name)
    assert Experiment(**made.resolved()).algorithm.build() == made.algorithm.build()


def test_defaults_are_nobodys_to_change() -> None:
    """The settings of one experiment once reached the defaults of the next."""
    first, second = experiment("feddf(patience=7)"), experiment("feddf")
    fuse = second.algorithm.build().fuse
    assert isinstance(fuse, Distilled)
    assert fuse.distiller == AdamCosine()
    assert first.resolved()["algorithm"]["distiller"]["patience"] == 7


def test_settings_may_follow_one_by_one() -> None:
    settings = {"algorithm.name": "feddf", "algorithm.distiller": "sgd", "algorithm.distiller.steps": 9}
    made = load("digits", settings)
    assert made.algorithm.build() == feddf(distiller=replace(SGD_OF_TABLE_7, steps=9))
    other = made.with_settings({"algorithm.distiller.name": "adam"})  # another part drops the settings of the first
    assert other.algorithm.build() == feddf()
    assert made.with_settings({"algorithm.lr": 0.5}).algorithm.build() == feddf(
        distiller=replace(SGD_OF_TABLE_7, steps=9, lr=0.5)
    )


@pytest.mark.parametrize("name", sorted({name for known in PARTS.values() for name in known}))
def test_every_part_is_shown(cli: CommandLine, name: str) -> None:
    shown = cli.here("show", name)
    assert shown.code == 0
    for known in PARTS.values():
        if name in known:
            assert all(parameter.name in shown.out for parameter in settings_of(known[name]))


def test_show_lists_the_settings_of_parts_with_their_values(cli: CommandLine) -> None:
    shown = cli.here("show", "feddf").out
    assert "steps = 10000  of the distiller" in shown
    assert "distiller = 'adam'" in shown
    wrong = cli.here("show", "adma")
    assert wrong.code == 2
    assert "did you mean adam?" in wrong.err


def test_list_names_every_part(cli: CommandLine) -> None:
    listed = cli.here("list").out
    assert all(name in listed for known in PARTS.values() for name in known)


def test_the_public_function_is_the_one_that_a_file_names() -> None:
    assert isinstance(fedfuse.algorithms.feddf().fuse, Distilled)
    assert isinstance(fedavg(aggregate=CoordinateMedian()).fuse, Averaged)


def test_without_a_name_the_settings_are_those_of_the_default_part() -> None:
    assert stated("feddf(distiller={steps=100})") == feddf(steps=100)
    assert load("digits", {"algorithm.name": "feddf", "algorithm.distiller.steps": 100}).algorithm.build() == feddf(
        steps=100
    )
    assert stated("v-distillation(distiller={lr=0.5})") == v_distillation(lr=0.5)  # its other settings stay the paper's
    assert "algorithm.distiller.name" in problem("fedbe(distiller={lr=0.5})")  # the preset's: name it, or give lr


def test_none_comes_back_from_a_file() -> None:
    unclipped = feddf(distiller=AdamCosine(clip=None))
    assert stated('feddf(distiller={clip="none"})') == unclipped
    made = experiment('feddf(distiller={clip="none"})')
    assert made.resolved()["algorithm"]["distiller"]["clip"] == "none"
    assert Experiment(**made.resolved()).algorithm.build() == unclipped
    assert made.with_settings({"run.rounds": 3}).algorithm.build() == unclipped


BOTH = ("algorithm.steps = ", "algorithm.distiller.steps = 6", "leave out")


def test_a_setting_of_both_the_algorithm_and_its_part_is_an_error(cli: CommandLine, tmp_path: Path) -> None:
    in_a_file = tmp_path / "twice.toml"
    in_a_file.write_text(
        'data = "synthetic"\nmodels = "mlp:8"\n'
        'algorithm = {name = "feddf", steps = 5, distiller = {name = "adam", steps = 6}}\n'
    )
    text = 'feddf(steps=5, distiller={name="adam", steps=6})'
    twice = ["--set", "algorithm.steps=5", "--set", "algorithm.distiller.steps=6"]
    for arguments in (
        ["check", in_a_file],
        ["check", "digits", "-a", text],
        ["check", "digits", "-a", "feddf", *twice],
        ["check", "digits", "-a", "feddf(steps=5)", "--set", "algorithm.distiller.steps=6"],
        ["compare", "digits", "-a", "fedavg", "-a", text],
        ["sweep", "digits", "-a", "feddf", "--param=algorithm.steps=5,7", "--param=algorithm.distiller.steps=6,8"],
    ):
        ended = cli.here(*map(str, arguments))
        assert ended.code == 2, arguments
        assert all(word in ended.err for word in BOTH), ended.err
    inner = problem('feddf(over={name="fedavg", weights="uniform", aggregate={name="mean", weights="examples"}})')
    assert all(key in inner for key in ("algorithm.over.weights = ", "algorithm.over.aggregate.weights = "))


def test_a_later_setting_replaces_an_earlier_one_at_either_place() -> None:
    inner, outer = {"algorithm.distiller.steps": 6}, {"algorithm.steps": 5}
    feddf_once = {"algorithm.name": "feddf"}
    assert load("digits", {**feddf_once, **inner}).with_settings(outer).algorithm.build() == feddf(steps=5)
    assert load("digits", {**feddf_once, **outer}).with_settings(inner).algorithm.build() == feddf(steps=6)
    unresolved = {"algorithm": {"name": "feddf", "steps": 5}}
    assert overlaid(unresolved, inner)["algorithm"] == {"name": "feddf", "distiller": {"steps": 6}}
    part = {"algorithm.over": {"name": "fedavg", "aggregate": {"name": "mean", "weights": "uniform"}}}
    made = load("digits", {**feddf_once, **part}).with_settings({"algorithm.over.weights": "examples"})
    assert made.algorithm.build() == feddf()
    with pytest.raises(FedfuseError, match="leave out"):
        made.with_settings({**inner, **outer})


def test_a_stored_sgd_of_feddf_stays_as_it_was() -> None:
    """Settings that are None are left out of a file: they must not become those of the name's own meaning."""
    mine = feddf(distiller=SGD(steps=9))
    keys = algorithm_keys(mine)
    keys["distiller"] = {k: v for k, v in {"name": "sgd", **keys["distiller"].settings}.items() if v is not None}
    settings = {f"algorithm.{key}": value for key, value in keys.items()}
    assert load("digits", settings).algorithm.build() == mine

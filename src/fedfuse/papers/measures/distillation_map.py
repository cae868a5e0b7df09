"""Where distillation pays: mean client, average, ensemble and student after one round from one common model.

The scale's settings train the common model by FedAvg, apart for each alpha and seed. Each group then has one round of
FedDF, which changes how the clients train.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedfuse.config.experiment import Experiment
from fedfuse.config.experiment import load as load_experiment
from fedfuse.config.overlay import algorithm_settings
from fedfuse.papers.comparison import experiment_of, value_of
from fedfuse.papers.item import Group, Item, ScaleName
from fedfuse.papers.measures import one_round
from fedfuse.papers.result import Curves
from fedfuse.runs.display import Display
from fedfuse.types import FedfuseError

ALPHA = "partition.alpha"


def measure(item: Item, scale: ScaleName, seeds: Sequence[int], folder: Path, display: Display) -> Curves:
    """Measure all groups. Rounds that are finished in the folder are not repeated."""
    folders = []
    for seed in seeds:
        for alpha in dict.fromkeys(group.settings[ALPHA] for group in item.groups):
            groups = [group for group in item.groups if group.settings[ALPHA] == alpha]
            folders.append(_folder(folder, groups[0], seed))
            variations = {group.name: _varied(item, group, scale, seed) for group in groups}
            one_round.prepare(folders[-1], _common(item, groups[0], scale, seed), variations)
    display.preparing(f"{len(folders)} common models, {len(item.groups) * len(seeds)} rounds", 0.0)
    for number, finished in enumerate(one_round.measure_all(folders), 1):
        display.preparing(f"{finished.name}: finished", number / len(folders))
    return {
        group.name: {
            row.name: [[_value(item, group, row.name, _folder(folder, group, seed))] for seed in seeds]
            for row in item.rows_of(group.name)
        }
        for group in item.groups
    }


def _folder(folder: Path, group: Group, seed: int) -> Path:
    return folder / f"alpha={group.settings[ALPHA]:g}-seed{seed}"


def _common(item: Item, group: Group, scale: ScaleName, seed: int) -> Experiment:
    """The experiment that trains the common model: the scale's, with the group's alpha."""
    at_scale = item.scale(scale)
    own = {ALPHA: group.settings[ALPHA], "run.seed": seed, "run.workers": 1}
    return load_experiment(at_scale.experiment, {**at_scale.settings, **own})


def _varied(item: Item, group: Group, scale: ScaleName, seed: int) -> Experiment:
    """The experiment of one round after the common model's."""
    experiment = experiment_of(item, group, scale, {"run.seed": seed, "run.workers": 1})
    algorithms = {item.algorithm(row, scale, group) for row in item.rows}
    if len(algorithms) > 1:
        raise FedfuseError(f"{item.place}: its rows read one round: give all the same algorithm, not {algorithms}")
    settings = algorithm_settings(algorithms.pop())
    return experiment.with_settings({**settings, "run.rounds": experiment.run.rounds + 1})


def _value(item: Item, group: Group, row: str, folder: Path) -> float:
    record = one_round.read(folder, group.name)
    value = value_of(record, next(r for r in item.rows if r.name == row))
    if value is None:
        raise FedfuseError(f"{folder}, {group.name}: the round has no {row}: {record.note or record.facts.warning}")
    return round(value, 6)

"""Fit an experiment to its data: what nobody stated is chosen, or scaled down, and a line says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fedfuse import signature
from fedfuse.algorithm import Algorithm, parts_of
from fedfuse.config.experiment import Experiment
from fedfuse.config.values import format_value
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.fusion.fitting import LearnsFromPool, fitted
from fedfuse.models.defaults import AUTO, default_models

Settings = dict[str, Any]


def fit(experiment: Experiment, algorithm: Algorithm, federation: Federation) -> tuple[Experiment, tuple[str, ...]]:
    """Return the experiment with settings that fit its data, and a line for each change of an algorithm's default.

    A setting that the user stated is never changed: if it does not fit, the checks say so.
    """
    changes, notes = _models(experiment, federation.train), []
    for settings, note in (_rounds(experiment, algorithm), _schedule(experiment, algorithm, federation)):
        changes |= settings
        notes += [note] if settings else []
    return (experiment.with_settings(changes) if changes else experiment), tuple(notes)


def _models(experiment: Experiment, train: Examples) -> Settings:
    if experiment.models.clients != AUTO:
        return {}
    clients, server = default_models(train.shape, images=is_images(train), texts=not isinstance(train.x, Tensor))
    return {"models.clients": clients} | ({"models.server": server} if experiment.models.server is None else {})


def _rounds(experiment: Experiment, algorithm: Algorithm) -> tuple[Settings, str]:
    rounds = algorithm.rounds
    if rounds in (None, experiment.run.rounds) or experiment.states("run.rounds"):
        return {}, ""
    return {"run.rounds": rounds}, f"{algorithm.name}: run.rounds = {rounds}, not {experiment.run.rounds}"


def _schedule(experiment: Experiment, algorithm: Algorithm, federation: Federation) -> tuple[Settings, str]:
    """Return the settings of the distiller that must change for this pool."""

    def free(setting: str) -> bool:
        return not any(experiment.states(f"algorithm.{place}{setting}") for place in ("", "distiller."))

    for distiller, rows in _learnings(algorithm, federation):
        other: Any = fitted(distiller, rows, is_images(federation.train), free)
        if other == distiller:
            continue
        names = [f.name for f in fields(other) if getattr(other, f.name) != getattr(distiller, f.name)]
        if not all(key_of(experiment, name) for name in names):
            continue  # an algorithm without such settings: its own check says what is wrong
        texts = [
            f"{key_of(experiment, n)} = {format_value(getattr(other, n))}, not {format_value(getattr(distiller, n))}"
            for n in names
        ]
        note = f"{algorithm.name}: to fit a pool of {rows:,} {_kind(federation.train)}, {'; '.join(texts)}"
        return {key_of(experiment, name): getattr(other, name) for name in names}, note
    return {}, ""


def _learnings(algorithm: Algorithm, federation: Federation) -> Iterator[Any]:
    for part in parts_of(algorithm):
        learning = part.learning(federation) if isinstance(part, LearnsFromPool) else None
        if learning is not None:
            yield learning


def key_of(experiment: Experiment, setting: str) -> str:
    """Return the full key of a distiller's setting; empty if the algorithm has no such setting."""
    function = experiment.algorithm.function()
    names = {parameter.name for parameter in signature.settings_of(function)}
    return (
        f"algorithm.{setting}" if setting in names else f"algorithm.distiller.{setting}" if "distiller" in names else ""
    )


def is_images(examples: Examples) -> bool:
    return isinstance(examples.x, Tensor) and (examples.x.dtype == torch.uint8 or examples.x.dim() == 4)


def _kind(examples: Examples) -> str:
    return "images" if is_images(examples) else "examples" if isinstance(examples.x, Tensor) else "texts"

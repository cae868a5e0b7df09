"""Write the Flower app of an experiment: a folder with a pyproject.toml, two short modules and the experiment."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import tomli_w

from fedfuse.config.experiment import Experiment
from fedfuse.flower.server import Deployment

_MODULE = '''"""The {side} side of this experiment."""

from pathlib import Path

from fedfuse.flower import {side}_app

app = {side}_app(Path(__file__).parent / "experiment.toml")
'''


def write_app(folder: Path, experiment: Experiment, deployment: Deployment) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "experiment.toml").write_text(experiment.toml(), encoding="utf-8")
    for side in ("server", "client"):
        (folder / f"{side}_app.py").write_text(_MODULE.format(side=side), encoding="utf-8")
    project = {
        "project": {
            "name": "fedfuse-experiment",
            "version": "1.0.0",
            "description": f"{experiment.name}: {experiment.algorithm.name}",
            "license": "Apache-2.0",
            "dependencies": ["fedfuse[flower]"],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "fedfuse",
                    "components": {"serverapp": "server_app:app", "clientapp": "client_app:app"},
                    "config": {key: value for key, value in asdict(deployment).items() if value is not None},
                }
            }
        },
    }
    (folder / "pyproject.toml").write_text(tomli_w.dumps(project), encoding="utf-8")

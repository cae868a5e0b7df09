"""fedfuse: federated model fusion by ensemble distillation.

For users: `fuse`, `load`, `Experiment`, `run`, `compare`, `sweep`, `report`, `load_model`. For authors of algorithms:
`Algorithm` and the subpackages `algorithms`, `fusion`, `local`, `models`, `testing`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfuse import algorithms, data, fusion, local, models, testing
    from fedfuse.algorithm import Algorithm
    from fedfuse.config.experiment import Experiment, load
    from fedfuse.errors import FedfuseError
    from fedfuse.in_hand.fuse import fuse
    from fedfuse.in_hand.result import Fused
    from fedfuse.models.file import load_model
    from fedfuse.reports import report
    from fedfuse.runs.compare import compare
    from fedfuse.runs.result import Comparison, Run
    from fedfuse.runs.run import run
    from fedfuse.runs.setup import check
    from fedfuse.sweeps.search import sweep

    __version__: str

__all__ = [
    "Algorithm",
    "Comparison",
    "Experiment",
    "FedfuseError",
    "Fused",
    "Run",
    "__version__",
    "algorithms",
    "check",
    "compare",
    "data",
    "fuse",
    "fusion",
    "load",
    "load_model",
    "local",
    "models",
    "report",
    "run",
    "sweep",
    "testing",
]

# Imported on first use: a worker or a node needs only a few of them, and importing all takes seconds.
_MODULES = {
    "Algorithm": "algorithm",
    "Comparison": "runs.result",
    "Experiment": "config.experiment",
    "FedfuseError": "errors",
    "Fused": "in_hand.result",
    "Run": "runs.result",
    "check": "runs.setup",
    "compare": "runs.compare",
    "fuse": "in_hand.fuse",
    "load": "config.experiment",
    "load_model": "models.file",
    "report": "reports",
    "run": "runs.run",
    "sweep": "sweeps.search",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("fedfuse")
    if name in _MODULES:
        return getattr(import_module(f"fedfuse.{_MODULES[name]}"), name)
    if name in __all__:
        return import_module(f"fedfuse.{name}")
    raise AttributeError(f"module 'fedfuse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

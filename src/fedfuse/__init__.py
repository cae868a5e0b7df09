"""fedfuse: federated model fusion by ensemble distillation."""

from fedfuse.config.experiment import Experiment, load
from fedfuse.fusion import Fused, fuse
from fedfuse.models.file import load_model
from fedfuse.runs.run import Run
from fedfuse.types import FedfuseError

__all__ = ["Experiment", "FedfuseError", "Fused", "Run", "fuse", "load", "load_model"]

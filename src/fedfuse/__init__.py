"""fedfuse: federated model fusion by ensemble distillation."""

from fedfuse.experiment import Experiment, load
from fedfuse.fusion import Fused, fuse
from fedfuse.model_file import load_model
from fedfuse.run import Run
from fedfuse.types import FedfuseError

__all__ = ["Experiment", "FedfuseError", "Fused", "Run", "fuse", "load", "load_model"]

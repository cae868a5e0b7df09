"""Your own algorithm: a function whose keyword arguments are its settings, and which returns an Algorithm.

FedAvg with a trimmed mean. From the project's folder: `fedfuse run examples/own_algorithm.toml`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedfuse import Algorithm, FedfuseError, tree
from fedfuse.context import Context
from fedfuse.fusion import Aggregated, Averaged
from fedfuse.local import CrossEntropy, Proximal, Training
from fedfuse.types import ServerState, Snapshot, Update, model_of


@dataclass(frozen=True)
class TrimmedMean:
    """The mean of the client models, value by value, without the `trim` lowest and highest: outliers do not move it."""

    trim: int = 1

    def start(self, server: ServerState, ctx: Context) -> "RunningTrimmedMean":
        return RunningTrimmedMean(self.trim, server)


class RunningTrimmedMean:
    """It needs all values at once, so unlike a mean it holds every model of the round in memory."""

    def __init__(self, trim: int, server: ServerState) -> None:
        self.trim, self.server = trim, server
        self.models: dict[str, list[Snapshot]] = {}

    def add(self, update: Update) -> None:
        model = model_of(update, "TrimmedMean averages models")
        self.models.setdefault(model.arch, []).append(model)

    def value(self) -> Aggregated:
        return Aggregated({arch: self.mean(arch, models) for arch, models in self.models.items()}, self.server.memory)

    def mean(self, arch: str, models: list[Snapshot]) -> Snapshot:
        if len(models) <= 2 * self.trim:
            raise FedfuseError(f"TrimmedMean(trim={self.trim}): {len(models)} clients of {arch} leave none: lower trim")
        params = tree.map_trees(self.trimmed, *(model.params for model in models))
        return Snapshot(arch, params, tree.map_trees(self.trimmed, *(model.buffers for model in models)))

    def trimmed(self, *values: Tensor) -> Tensor:
        """K tensors of one shape -> their trimmed mean."""
        ordered = torch.stack(values).double().sort(0).values  # (K, ...)
        rest = ordered[self.trim : len(values) - self.trim]
        return (rest[0] + (rest - rest[0]).mean(0)).to(values[0].dtype)  # of equal values exactly that value


def fed_trimmed(*, trim: int = 1, mu: float = 0.0) -> Algorithm:
    """The trimmed mean of the client models; with mu > 0 clients are held near the model they were sent."""
    terms = (CrossEntropy(), Proximal(mu)) if mu else (CrossEntropy(),)
    return Algorithm("fed-trimmed", local=Training(terms), fuse=Averaged(TrimmedMean(trim)))

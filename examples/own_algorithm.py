"""Your own algorithm: a function whose keyword arguments are its settings, and which returns an Algorithm.

FedAvg with a median in place of the mean. From the project's folder: `fedfuse run examples/own_algorithm.toml`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedfuse import FedfuseError, tree
from fedfuse.algorithm import Algorithm
from fedfuse.context import Context
from fedfuse.fusion import Averaged
from fedfuse.local import CrossEntropy, Proximal, Training
from fedfuse.types import Groups, ServerState, Snapshot, Update


@dataclass(frozen=True)
class Median:
    """The median of the client models, value by value: a few models that are far off do not move it.

    It needs all values at once, so unlike a mean it holds every model of the round in memory.
    """

    def __call__(
        self, server: ServerState, updates: Iterable[Update], ctx: Context
    ) -> tuple[Mapping[str, Snapshot], Groups]:
        received: dict[str, list[Snapshot]] = {}
        for update in updates:
            if update.model is None:
                raise FedfuseError(f"client {update.client} sent no model, but Median needs models")
            received.setdefault(update.model.arch, []).append(update.model)
        return {arch: self.of(arch, models) for arch, models in received.items()}, server.memory

    def of(self, arch: str, models: list[Snapshot]) -> Snapshot:
        params = tree.map_trees(middle, *(model.params for model in models))
        buffers = tree.map_trees(middle, *(model.buffers for model in models))
        return Snapshot(arch, params, buffers)


def middle(*values: Tensor) -> Tensor:
    """K tensors of one shape -> their median; of two middle values the mean."""
    ordered = torch.stack(values).double().sort(0).values  # (K, ...)
    return ((ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2).to(values[0].dtype)


def fed_median(*, mu: float = 0.0) -> Algorithm:
    """The median of the client models; with mu > 0 clients are held near the model they were sent."""
    terms = (CrossEntropy(), Proximal(mu)) if mu else (CrossEntropy(),)
    return Algorithm("fed-median", local=Training(terms), fuse=Averaged(Median()))

"""One file per paper. The names here are what a user types; the core knows none of them."""

from collections.abc import Callable, Mapping

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.fedavgm import fedavgm
from fedfuse.algorithms.fedbe import fedbe
from fedfuse.algorithms.feddf import feddf
from fedfuse.algorithms.fedprox import fedprox
from fedfuse.algorithms.one_shot import one_shot
from fedfuse.algorithms.v_distillation import v_distillation

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedavgm": fedavgm,
    "feddf": feddf,
    "fedbe": fedbe,
    "v-distillation": v_distillation,
    "one-shot": one_shot,
}

__all__ = ["ALGORITHMS", "fedavg", "fedavgm", "fedbe", "feddf", "fedprox", "one_shot", "v_distillation"]

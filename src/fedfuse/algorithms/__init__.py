"""One file per paper. The names here are what a user types; the core knows none of them."""

from collections.abc import Callable, Mapping

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.fedavgm import fedavgm
from fedfuse.algorithms.fedprox import fedprox

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedavgm": fedavgm,
}

__all__ = ["ALGORITHMS", "fedavg", "fedavgm", "fedprox"]

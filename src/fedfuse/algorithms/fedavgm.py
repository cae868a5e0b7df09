"""FedAvgM. Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification. 2019. arXiv:1909.06335.

The server takes the way from its model to the clients' mean as a gradient, and adds momentum to it:
v := beta v + (x - mean), x := x - v. beta = 0 is FedAvg.
"""

from typing import Literal

from fedfuse.algorithm import Algorithm
from fedfuse.fusion import Averaged, Momentum, WeightedMean
from fedfuse.local import CrossEntropy, Training


def fedavgm(
    *,
    beta: float = 0.9,
    weights: Literal["examples", "uniform"] = "examples",
    buffers: Literal["mean", "keep", "recalibrate"] = "mean",
) -> Algorithm:
    """FedAvg with momentum at the server."""
    return Algorithm(
        "fedavgm",
        local=Training((CrossEntropy(),)),
        fuse=Averaged(Momentum(beta, WeightedMean(weights, buffers))),
    )

"""FedProx. Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks.
MLSys 2020. arXiv:1812.06127.

FedAvg whose clients also minimise mu/2 ||w - w_t||^2, which holds them near the model they were sent: long
local work on unlike data then drifts less. mu = 0 is FedAvg.
"""

from typing import Literal

from fedfuse.algorithm import Algorithm
from fedfuse.fusion import Averaged, WeightedMean
from fedfuse.local import CrossEntropy, Proximal, Training


def fedprox(
    *,
    mu: float = 0.01,
    weights: Literal["examples", "uniform"] = "examples",
    buffers: Literal["mean", "keep", "recalibrate"] = "mean",
) -> Algorithm:
    """FedAvg with a proximal term that holds clients near the model they were sent."""
    return Algorithm(
        "fedprox",
        local=Training((CrossEntropy(), Proximal(mu))),
        fuse=Averaged(WeightedMean(weights, buffers)),
    )

"""FedAvg. McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017. arXiv:1602.05629.

In each round the server sends its model to a few clients; each trains it on its own data; the server's next
model is the mean of theirs, weighted by their numbers of examples.
"""

from typing import Literal

from fedfuse.algorithm import Algorithm
from fedfuse.fusion import Averaged, WeightedMean
from fedfuse.local import CrossEntropy, Training


def fedavg(
    *,
    weights: Literal["examples", "uniform"] = "examples",
    buffers: Literal["mean", "keep", "recalibrate"] = "mean",
) -> Algorithm:
    """The mean of the client models, weighted by their examples."""
    return Algorithm(
        "fedavg",
        local=Training((CrossEntropy(),)),
        fuse=Averaged(WeightedMean(weights, buffers)),
    )

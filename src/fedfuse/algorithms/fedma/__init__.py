"""FedMA. Wang, Yurochkin, Sun, Papailiopoulos, Khazaeni: Federated Learning with Matched Averaging. ICLR 2020.
arXiv:2002.06440.

The order of the neurons in a layer is arbitrary, so the clients' neurons are matched before they are averaged, layer by
layer from the bottom. Here each round matches one layer, and after the last layer the next cycle begins:
    the clients train this layer and those above on their own data; the layers below are the server's and stay fixed;
    the server matches the neurons of this layer by BBP-MAP (`matching.py`): a global neuron is the mean of those
    that are matched to it, and a neuron that matches none becomes a new one, so layers may grow;
    the output layer is not permuted: it is averaged, each class weighted by the clients' examples of it;
    for the next layer each client continues with its own weights, their inputs in the order of the matched layer.
In a new cycle a client starts from its own neurons of the global model, with its original widths.

The layers above are matched from the same updates, so that the server has a complete model after every round; a client
that was in no cohort before starts from it. Other differences from the released code are in `docs/algorithms/fedma.md`.
"""

from __future__ import annotations

from typing import Literal

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.fedma.client import Stage, TrainAbove
from fedfuse.algorithms.fedma.matching import Matching
from fedfuse.algorithms.fedma.server import ExpectLayers, Matched, OwnNeurons, matchable


@paper
def fedma(
    *,
    layers: Literal["one by one", "all"] = "one by one",
    sigma: float = 1.0,
    sigma0: float = 1.0,
    gamma: float = 7.0,
    sweeps: int = 5,
    growth: float = 1.5,
    estimate: Literal["mean", "posterior"] = "mean",
) -> Algorithm:
    """Matches the neurons of all clients layer by layer, then averages them; layers may grow."""
    stage = Stage(layers)
    return Algorithm(
        "fedma",
        local=TrainAbove(stage),
        fuse=Matched(stage, Matching(sigma, sigma0, gamma, sweeps, growth, estimate)),
        brief=OwnNeurons(stage),
        expect=ExpectLayers(stage),
        check=matchable,
    )

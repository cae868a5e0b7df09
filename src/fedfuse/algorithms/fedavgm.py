"""FedAvgM. Hsu, Qi, Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification. 2019. arXiv:1909.06335.

The server treats the difference between its model and the clients' mean as a gradient, and applies momentum:
v := beta v + (x - mean), x := x - v. beta = 0 is FedAvg.
"""

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.settings import OfAggregate, with_settings
from fedfuse.fusion.admission import Admission, AdmitAll, admission_with
from fedfuse.fusion.aggregate import Aggregate, Averaged, BufferPolicy, Momentum, WeightedMean, Weights
from fedfuse.local import CrossEntropy, Training


@paper
def fedavgm(
    *,
    beta: float = 0.9,
    aggregate: Aggregate = WeightedMean(),
    weights: OfAggregate[Weights] = None,
    buffers: OfAggregate[BufferPolicy] = None,
    admission: Admission = AdmitAll(),
    drop_worst: bool = False,
) -> Algorithm:
    """FedAvg with momentum at the server."""
    return Algorithm(
        "fedavgm",
        local=Training((CrossEntropy(),)),
        fuse=Averaged(
            Momentum(beta, with_settings(aggregate, weights=weights, buffers=buffers)),
            admission_with(admission, drop_worst),
        ),
    )

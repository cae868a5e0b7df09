"""FedProx. Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: Federated Optimization in Heterogeneous Networks.
MLSys 2020. arXiv:1812.06127.

FedAvg whose clients also minimise mu/2 ||w - w_t||^2. This keeps them near the model they were sent, so long local
training on heterogeneous data drifts less. mu = 0 is FedAvg.
"""

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.settings import OfAggregate, with_settings
from fedfuse.fusion.admission import Admission, AdmitAll, admission_with
from fedfuse.fusion.aggregate import Aggregate, Averaged, BufferPolicy, WeightedMean, Weights
from fedfuse.local import CrossEntropy, Proximal, Training


@paper
def fedprox(
    *,
    mu: float = 0.01,
    aggregate: Aggregate = WeightedMean(),
    weights: OfAggregate[Weights] = None,
    buffers: OfAggregate[BufferPolicy] = None,
    admission: Admission = AdmitAll(),
    drop_worst: bool = False,
) -> Algorithm:
    """FedAvg with a proximal term that keeps clients near the model they were sent."""
    return Algorithm(
        "fedprox",
        local=Training((CrossEntropy(), Proximal(mu))),
        fuse=Averaged(
            with_settings(aggregate, weights=weights, buffers=buffers), admission_with(admission, drop_worst)
        ),
    )

"""FedAvg. McMahan, Moore, Ramage, Hampson, Agüera y Arcas: Communication-Efficient Learning of Deep Networks
from Decentralized Data. AISTATS 2017. arXiv:1602.05629.

In each round the server sends its model to a few clients, and each trains it on its own data. The server's next model
is the mean of theirs, weighted by their numbers of examples.
"""

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.settings import OfAggregate, with_settings
from fedfuse.fusion.admission import Admission, AdmitAll, admission_with
from fedfuse.fusion.aggregate import Aggregate, Averaged, BufferPolicy, WeightedMean, Weights
from fedfuse.local import CrossEntropy, Training


@paper
def fedavg(
    *,
    aggregate: Aggregate = WeightedMean(),
    weights: OfAggregate[Weights] = None,
    buffers: OfAggregate[BufferPolicy] = None,
    admission: Admission = AdmitAll(),
    drop_worst: bool = False,
) -> Algorithm:
    """The mean of the client models, weighted by their examples."""
    return Algorithm(
        "fedavg",
        local=Training((CrossEntropy(),)),
        fuse=Averaged(
            with_settings(aggregate, weights=weights, buffers=buffers), admission_with(admission, drop_worst)
        ),
    )

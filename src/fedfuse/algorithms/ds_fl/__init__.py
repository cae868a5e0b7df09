"""DS-FL. Itahara, Nishio, Koda, Morikura, Yamamoto: Distillation-Based Semi-Supervised Federated Learning for
Communication-Efficient Collaborative Training with Non-IID Private Data. IEEE TMC 2021. arXiv:2008.06180.

No weights travel, only predictions on public data that all can see. In each round, each client with its own model:
    learns the global soft labels of the last round on that round's public examples;
    trains on its own data;
    predicts this round's public examples, and sends the probabilities.
The server:
    takes the mean of the clients' probabilities and sharpens it, softmax(mean / T): the new global soft labels
    (entropy reduction aggregation; "sa", simple aggregation, is the mean itself);
    trains its own models on them, from where they were.

So the labels of a round are learnt at the start of the client's next one, as in the code released with SCARLET; who is
not asked does nothing. How ours differs from that code is in `docs/algorithms/ds-fl.md`.
"""

from __future__ import annotations

from typing import Literal

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.ds_fl.client import LearnTrainPredict
from fedfuse.algorithms.ds_fl.entropy_reduction import EntropyReduced
from fedfuse.algorithms.ds_fl.server import EnoughRows, LabelsAveraged, Probabilities, PublicRows, SendLabels
from fedfuse.fusion.distillers import SGD
from fedfuse.fusion.target import MeanProbs, Target


def ds_fl(
    *,
    aggregation: Literal["era", "sa"] = "era",
    temperature: float = 0.1,
    rows: int = 1000,
    lr: float = 0.1,
    epochs: int = 5,
    batch_size: int = 100,
    momentum: float = 0.0,
) -> Algorithm:
    """Clients and server exchange soft labels of public data, sharpened at the server; each keeps its own model.

    `rows` public examples are drawn for each round. `lr`, `epochs`, `batch_size` and `momentum` are those with which
    soft labels are learnt, by clients and server alike.
    """
    public, learn = PublicRows(rows), SGD(lr, epochs, batch_size, momentum)
    target: Target = EntropyReduced(temperature) if aggregation == "era" else MeanProbs()
    return Algorithm(
        "ds-fl",
        local=LearnTrainPredict(public, learn),
        fuse=LabelsAveraged(public, target, learn),
        brief=SendLabels(),
        expect=Probabilities(public),
        check=EnoughRows(public, learn),
    )

"""DS-FL. Itahara, Nishio, Koda, Morikura, Yamamoto: Distillation-Based Semi-Supervised Federated Learning for
Communication-Efficient Collaborative Training with Non-IID Private Data. IEEE TMC 2021. arXiv:2008.06180.

No weights are sent, only predictions on public data that everyone has. In each round, each client, with its own model:
    learns the global soft labels of the last round on that round's public examples;
    trains on its own data;
    predicts this round's public examples, and sends the probabilities.
The server:
    takes the mean of the clients' probabilities and sharpens it, softmax(mean / T): the new global soft labels
    (entropy reduction aggregation; `target = "probs"` is simple aggregation, the mean itself);
    trains its own models on them, from where they were.

So a client learns the labels of a round at the start of its next one, as in the code released with SCARLET. Clients
outside the cohort do nothing. Differences from that code are listed in `docs/algorithms/ds-fl.md`.
"""

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.ds_fl.client import LearnTrainPredict
from fedfuse.algorithms.ds_fl.entropy_reduction import EntropyReduced
from fedfuse.algorithms.ds_fl.server import EnoughRows, ExpectProbabilities, LabelsAveraged, PublicRows, SendLabels
from fedfuse.algorithms.settings import OfDistiller, OfTarget, with_settings
from fedfuse.fusion import SGD, Distiller, Target


@paper
def ds_fl(
    *,
    rows: int = 1000,
    target: Target = EntropyReduced(),
    distiller: Distiller = SGD(lr=0.1, epochs=5, batch_size=100, momentum=0.0),
    reduction: OfTarget[float] = None,
    lr: OfDistiller[float] = None,
    epochs: OfDistiller[int] = None,
    batch_size: OfDistiller[int] = None,
    momentum: OfDistiller[float] = None,
) -> Algorithm:
    """Clients and server exchange soft labels of public data, sharpened at the server; each keeps its own model.

    `rows` public examples are drawn for each round. `reduction` is the paper's T. Both clients and server use the
    distiller to learn soft labels.
    """
    public = PublicRows(rows)
    learn = with_settings(distiller, lr=lr, epochs=epochs, batch_size=batch_size, momentum=momentum)
    return Algorithm(
        "ds-fl",
        local=LearnTrainPredict(public, learn),
        fuse=LabelsAveraged(public, with_settings(target, reduction=reduction), learn),
        brief=SendLabels(),
        expect=ExpectProbabilities(public),
        check=EnoughRows(public, learn),
    )

"""Decentralised fusion by logits, which FedDF proposes and leaves to future work. Lin, Kong, Stich, Jaggi: Ensemble
Distillation for Robust Model Fusion in Federated Learning. NeurIPS 2020. arXiv:2006.07242, section 3: "decentralized
model fusion through synchronizing locally inferred logits e.g. on random public data".

There is no server model. Each client keeps its own model, and in each round:
    learns, on random public examples, softmax(mean of the logits of its neighbours and its own), all of the last round;
    trains on its own data;
    predicts this round's public examples, and sends the result to its neighbours.

The server only relays: it stores the predictions of the last round and computes each client's mean, which the client
could compute itself from its neighbours' messages. `topology` says who is whose neighbour. The algorithm is composed of
DS-FL's parts; what the paper leaves open is listed in `docs/algorithms/decentralised-logits.md`.
"""

from fedfuse.algorithm import Algorithm, NoServerModel, paper
from fedfuse.algorithms.decentralised_logits.client import MeasuredWork
from fedfuse.algorithms.decentralised_logits.relay import MeanOfClients, RelayPredictions, SendNeighbours
from fedfuse.algorithms.decentralised_logits.topology import Ring, Topology
from fedfuse.algorithms.ds_fl.client import LearnTrainPredict
from fedfuse.algorithms.ds_fl.server import EnoughRows, ExpectProbabilities, PublicRows
from fedfuse.algorithms.settings import OfDistiller, with_settings
from fedfuse.fusion import SGD, Distiller, MeanLogits, Target


@paper
def decentralised_logits(
    *,
    topology: Topology = Ring(),
    rows: int = 1000,
    target: Target = MeanLogits(),
    distiller: Distiller = SGD(lr=0.1, epochs=5, batch_size=100, momentum=0.0),
    lr: OfDistiller[float] = None,
    epochs: OfDistiller[int] = None,
    batch_size: OfDistiller[int] = None,
    momentum: OfDistiller[float] = None,
) -> Algorithm:
    """Clients learn from their neighbours' predictions of public data; no server model, no weights are sent.

    `rows` public examples are drawn for each round.
    """
    public = PublicRows(rows)
    learn = with_settings(distiller, lr=lr, epochs=epochs, batch_size=batch_size, momentum=momentum)
    return Algorithm(
        "decentralised-logits",
        local=MeasuredWork(LearnTrainPredict(public, learn)),
        fuse=RelayPredictions(public),
        brief=SendNeighbours(topology, target),
        expect=ExpectProbabilities(public),
        models=NoServerModel(),
        check=EnoughRows(public, learn),
        scores=MeanOfClients(),
    )

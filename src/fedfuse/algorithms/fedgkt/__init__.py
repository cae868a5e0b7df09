"""FedGKT. He, Annavaram, Avestimehr: Group Knowledge Transfer: Federated Learning of Large CNNs at the Edge. NeurIPS
2020. arXiv:2007.14513.

A client has a small net whose first stage extracts features; the server has a large net whose inputs are features. In
each round, each client:
    trains its net on its own data: cross entropy, plus T^2 KL(server || client) to the server's logits of its examples
    from when it last took part (none in its first round);
    sends the features, its logits and the label of each of its examples.
The server:
    trains its net on all features of the round: cross entropy, plus T^2 KL(client || server) to the clients' logits;
    computes its own logits of each of those examples, for the client's next round.

Clients keep their models between the rounds in which they take part, as in Fed-ET's comparison (arXiv:2204.12703,
appendix B). Unlike in the released code, they also send the few tensors of their extractor: with the mean of these, the
server's net is a model that can be evaluated and saved, `client|server` (`models/split.py`; reasons in
`docs/algorithms/fedgkt.md`).
"""

from __future__ import annotations

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.fedgkt.client import ExpectFeatures, TrainAndSendFeatures, TransferLoss, TransferTerm
from fedfuse.algorithms.fedgkt.server import SendLogits, SplitModel, TrainedOnFeatures, one_shape_of_features
from fedfuse.local import Training


@paper
def fedgkt(
    *,
    temperature: float = 3.0,
    alpha: float = 1.0,
    lr: float = 1e-3,
    epochs: int = 20,
    batch_size: int = 256,
    weight_decay: float = 1e-4,
    probe: int = 2000,
) -> Algorithm:
    """Small nets at the clients, a large net at the server that trains on their features; both send logits.

    `alpha` is the weight of the distillation term on both sides. `lr`, `epochs`, `batch_size` and `weight_decay` are
    for the server's Adam; the clients use those of `[local]`.
    """
    loss = TransferLoss(temperature, alpha)
    return Algorithm(
        "fedgkt",
        local=TrainAndSendFeatures(Training((TransferTerm(loss),))),
        fuse=TrainedOnFeatures(loss, lr, epochs, batch_size, weight_decay, probe),
        brief=SendLogits(),
        expect=ExpectFeatures(),
        models=SplitModel(),
        check=one_shape_of_features,
    )

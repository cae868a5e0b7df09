"""Fed-ET. Cho, Manoel, Joshi, Sim, Dimitriadis: Heterogeneous Ensemble Knowledge Transfer for Training Large Models in
Federated Learning. IJCAI 2022. arXiv:2204.12703.

Small models of several architectures at the clients, one large model at the server (`models.server`); all end in the
same head, an MLP with the classifier in it. In each round (Algorithm 1):
    clients, drawn in proportion to their examples, train the server's small model of their architecture;
    the large model's head := the mean of the clients' heads;
    it takes steps of SGD on unlabeled data, to minimise cross entropy with the consensus's class, plus lam times the
    KL from those who disagree with it (Equation 11); clients weigh by the variance of their probabilities;
    each small model := the mean of its clients' models; the large model's head is copied into all small ones.

`over` is what the clients do and how small models are averaged: by default FedAvg with equal weights (Equation 12).
With `samples`, models that are drawn from FedBE's posterior teach too; `distiller` "swa" is FedBE's, "adam" FedDF's.
"""

from dataclasses import replace
from typing import Literal

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.fusion import (
    SGD,
    SWA,
    AdamCosine,
    Clients,
    ConsensusWithDiversity,
    DiagonalGaussian,
    Distilled,
    Distiller,
    LargeServer,
    Samples,
    Union,
    VarianceWeighted,
    aggregate_of,
)


def fed_et(
    *,
    over: Algorithm | None = None,
    lam: float = 0.05,
    diversity: Literal["mass", "plain"] = "mass",
    head: int = 128,
    distiller: Literal["sgd", "swa", "adam"] = "sgd",
    lr: float = 0.005,
    steps: int = 128,
    batch_size: int = 64,
    momentum: float = 0.0,
    epochs: int = 20,
    cycle: int = 25,
    swa_start: int = 250,
    samples: int = 0,
    augment: str = "none",
    probe: int = 2000,
) -> Algorithm:
    """A large model at the server, distilled from small clients of several architectures.

    `steps` are those of SGD and Adam; `epochs`, `cycle` and `swa_start` are SWA's.
    """
    base = over or fedavg(weights="uniform")
    loss = ConsensusWithDiversity(lam, diversity)
    learn: dict[str, Distiller] = {
        "sgd": SGD(lr, batch_size=batch_size, momentum=momentum, steps=steps, augment=augment, loss=loss),
        "swa": SWA(lr, 0.4 * lr, cycle, swa_start, epochs, batch_size, momentum, augment=augment, loss=loss),
        "adam": AdamCosine(lr, steps, batch_size, augment=augment, loss=loss),
    }
    return replace(
        base,
        name="fed-et",
        fuse=Distilled(
            aggregate=aggregate_of(base),
            ensemble=Union(Clients(), Samples(DiagonalGaussian(), samples)) if samples else Clients(),
            target=VarianceWeighted(),
            distiller=learn[distiller],
            students=LargeServer(),
            probe=probe,
        ),
        selection="proportional",
        head=head,
        large_server=True,
    )

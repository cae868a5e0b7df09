"""Fed-ET. Cho, Manoel, Joshi, Sim, Dimitriadis: Heterogeneous Ensemble Knowledge Transfer for Training Large Models in
Federated Learning. IJCAI 2022. arXiv:2204.12703.

Clients have small models of several architectures, the server has one large model (`models.server`); all end in the
same head, an MLP that includes the classifier. In each round (Algorithm 1):
    clients, drawn in proportion to their examples, train the server's small model of their architecture;
    the large model's head := the mean of the clients' heads;
    it takes steps of SGD on unlabeled data, to minimise cross entropy with the consensus's class, plus lam times the
    KL from the clients that disagree with it (Equation 11); clients are weighted by the variance of their
    probabilities; its gradients are clipped, which the paper does not mention: clients' nets have no norm layers, and
    one large but finite head would end the run;
    each small model := the mean of its clients' models; the large model's head is copied into all small ones.

`over` is the algorithm that trains the clients and averages small models: by default FedAvg with equal weights
(Equation 12). The large model learns over many rounds, and each round starts with a head that was not trained on its
features: so the default distiller never returns the start (`keep_start`). It clips gradients, since one client with a
large head could otherwise end a run. With `samples`, models from FedBE's posterior teach too; `distiller` "swa" is
FedBE's, "adam" FedDF's.
"""

from dataclasses import replace
from typing import Literal

from fedfuse.algorithm import Algorithm, LargeModel, paper
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.settings import OfDistiller, with_settings
from fedfuse.fusion import (
    SGD,
    Clients,
    ConsensusWithDiversity,
    DiagonalGaussian,
    Distilled,
    Distiller,
    Ensemble,
    LargeServer,
    Posterior,
    Samples,
    Union,
    VarianceWeighted,
    admission_of,
    aggregate_of,
)
from fedfuse.types import FedfuseError


@paper
def fed_et(
    *,
    over: Algorithm | None = None,
    lam: float = 0.05,
    diversity: Literal["mass", "plain"] = "mass",
    head: int = 128,
    distiller: Distiller = SGD(lr=0.005, steps=128, batch_size=64, momentum=0.0, clip=5.0, keep_start=False),
    samples: int = 0,
    posterior: Posterior | None = None,
    probe: int = 2000,
    lr: OfDistiller[float] = None,
    steps: OfDistiller[int] = None,
    batch_size: OfDistiller[int] = None,
    momentum: OfDistiller[float] = None,
    clip: OfDistiller[float] = None,
    augment: OfDistiller[str] = None,
    keep_start: OfDistiller[bool] = None,
) -> Algorithm:
    """Distils small clients of several architectures into a large model at the server."""
    base = over or fedavg(weights="uniform")
    return replace(
        base,
        name="fed-et",
        fuse=Distilled(
            aggregate=aggregate_of(base),
            admission=admission_of(base),
            ensemble=_ensemble(samples, posterior),
            target=VarianceWeighted(),
            loss=ConsensusWithDiversity(lam, diversity),
            distiller=with_settings(
                distiller, lr=lr, steps=steps, batch_size=batch_size, momentum=momentum, clip=clip, augment=augment,
                keep_start=keep_start,
            ),
            students=LargeServer(),
            probe=probe,
        ),
        models=LargeModel(head),
        selection="proportional",
    )  # fmt: skip


def _ensemble(samples: int, posterior: Posterior | None) -> Ensemble:
    if samples == 0 and posterior is not None:
        raise FedfuseError("samples = 0 draws no model from the posterior: raise samples, or leave posterior out")
    return Union(Clients(), Samples(posterior or DiagonalGaussian(), samples)) if samples else Clients()

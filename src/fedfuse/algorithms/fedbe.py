"""FedBE, first published as FedDistill. Chen, Chao: FedBE: Making Bayesian Model Ensemble Applicable to Federated
Learning. ICLR 2021. arXiv:2009.01974.

In each round (Algorithm 1):
    the clients train the server's model, as in FedAvg;
    fit a distribution over global models to theirs, and sample M models from it (Equations 5 and 7; 11 and 12);
    teachers are the samples, the clients and their average; a pseudo-label of the unlabeled data is the mean of the
    teachers' probabilities (Equation 4), sharpened to p^2 / sum p^2;
    starting from the average, SGD with a cyclical learning rate learns the pseudo-labels; the mean of the models at
    the ends of the cycles (SWA) is the next server model.

The preset `official-code` follows the released code where it differs: the Gaussian is over directions instead of
models, the learning rate is constant, models are collected after step 500, there is weight decay, and the loss is also
divided by the number of classes (`docs/algorithms/fedbe.md`). Settings that are None below come from the preset.
"""

from dataclasses import replace
from typing import Literal

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.settings import OfDistiller, OfPosterior, OfTarget, with_settings
from fedfuse.fusion import (
    SWA,
    Anchors,
    Clients,
    DeltaGaussian,
    DiagonalGaussian,
    Distilled,
    Distiller,
    Ensemble,
    MeanProbs,
    Posterior,
    Samples,
    Target,
    Union,
    admission_of,
    aggregate_of,
)
from fedfuse.types import FedfuseError


@paper
def fedbe(
    *,
    over: Algorithm | None = None,
    preset: Literal["paper", "official-code"] = "paper",
    posterior: Posterior | None = None,
    samples: int = 10,
    anchor: bool = True,
    clients: bool = True,
    target: Target = MeanProbs(sharpen=2.0),
    distiller: Distiller | None = None,
    probe: int = 2000,
    scale: OfPosterior[float] = None,
    alpha: OfPosterior[float] = None,
    sharpen: OfTarget[float] = None,
    lr: OfDistiller[float] = None,
    lr_low: OfDistiller[float] = None,
    cycle: OfDistiller[int] = None,
    swa_start: OfDistiller[int] = None,
    epochs: OfDistiller[int] = None,
    batch_size: OfDistiller[int] = None,
    momentum: OfDistiller[float] = None,
    augment: OfDistiller[str] = None,
) -> Algorithm:
    """Averages the clients, then distils posterior samples, clients and average into the average.

    By default, `posterior` and `distiller` are those of the preset.
    """
    base = over or fedavg()
    if samples == 0 and not (posterior is None and scale is None and alpha is None):
        raise FedfuseError("samples = 0 draws no model from the posterior: raise samples, or leave its settings out")
    posterior, distiller = posterior or POSTERIORS[preset], distiller or DISTILLERS[preset]
    draws = Samples(with_settings(posterior, scale=scale, alpha=alpha), samples)
    ensemble: list[Ensemble] = [*([Clients()] if clients else []), *([Anchors()] if anchor else []), draws]
    return replace(
        base,
        name="fedbe",
        fuse=Distilled(
            aggregate=aggregate_of(base),
            admission=admission_of(base),
            ensemble=Union(*ensemble),
            target=with_settings(target, sharpen=sharpen),
            distiller=with_settings(
                distiller, lr=lr, lr_low=lr_low, cycle=cycle, swa_start=swa_start, epochs=epochs,
                batch_size=batch_size, momentum=momentum, augment=augment,
            ),
            probe=probe,
        ),
    )  # fmt: skip


POSTERIORS: dict[str, Posterior] = {"paper": DiagonalGaussian(), "official-code": DeltaGaussian()}
DISTILLERS: dict[str, Distiller] = {
    "paper": SWA(augment="crop:2+flip"),
    "official-code": SWA(swa_start=500, weight_decay=1e-5, schedule="constant", per_class=True, augment="crop:2+flip"),
}

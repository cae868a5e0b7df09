"""FedBE, first published as FedDistill. Chen, Chao: FedBE: Making Bayesian Model Ensemble Applicable to Federated
Learning. ICLR 2021. arXiv:2009.01974.

In each round (Algorithm 1):
    the clients train the server's model, as in FedAvg;
    fit a distribution over global models to theirs, and sample M models from it (Equations 5 and 7; 11 and 12);
    teachers are the samples, the clients and their average; a pseudo-label of the unlabeled data is the mean of the
    teachers' probabilities (Equation 4), sharpened to p^2 / sum p^2;
    from the average on, SGD with a cyclical rate learns the pseudo-labels, and the mean of the models at the ends of
    its cycles (SWA) is the next server model.

The preset `official-code` is the released code where it differs: directions instead of models have the Gaussian, the
rate is constant, models are collected after step 500, weights decay, and the loss is also divided by the number of
classes (`docs/algorithms/fedbe.md`). What is None below is the preset's.
"""

from dataclasses import replace
from typing import Literal

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.fusion import (
    SGD,
    SWA,
    AdamCosine,
    Anchors,
    Clients,
    DeltaGaussian,
    DiagonalGaussian,
    DirichletMixture,
    Distilled,
    Distiller,
    Ensemble,
    MeanLogits,
    MeanProbs,
    Posterior,
    Samples,
    Union,
    aggregate_of,
)


def fedbe(
    *,
    over: Algorithm | None = None,
    preset: Literal["paper", "official-code"] = "paper",
    posterior: Literal["gaussian", "dirichlet", "delta_gaussian"] | None = None,
    samples: int = 10,
    scale: float | None = None,
    alpha: float = 1.0,
    anchor: bool = True,
    clients: bool = True,
    target: Literal["probs", "logits"] = "probs",
    sharpen: float = 2.0,
    distiller: Literal["swa", "sgd", "adam"] = "swa",
    lr: float = 1e-3,
    lr_low: float | None = None,
    cycle: int = 25,
    swa_start: int | None = None,
    epochs: int = 20,
    steps: int = 10_000,
    batch_size: int = 128,
    momentum: float = 0.9,
    augment: str = "crop:2+flip",
    probe: int = 2000,
) -> Algorithm:
    """The clients' average, then distilled from samples of a posterior over models, the clients and the average.

    `scale` multiplies the Gaussian's deviations, `alpha` is the Dirichlet's; `lr_low`, `cycle` and `swa_start` are
    SWA's, `steps` is Adam's (FedDF's distiller), `epochs` that of the others.
    """
    base = over or fedavg()
    code = preset == "official-code"
    decay = 1e-5 if code else 0.0
    low = lr_low if lr_low is not None else lr if code else 0.4 * lr
    late = swa_start if swa_start is not None else 500 if code else 250
    learn: dict[str, Distiller] = {
        "swa": SWA(lr, low, cycle, late, epochs, batch_size, momentum, decay, per_class=code, augment=augment),
        "sgd": SGD(lr, epochs, batch_size, momentum, decay, per_class=code, augment=augment),
        "adam": AdamCosine(lr, steps, batch_size, augment=augment),
    }
    drawn: dict[str, Posterior] = {
        "gaussian": DiagonalGaussian(1.0 if scale is None else scale),
        "dirichlet": DirichletMixture(alpha),
        "delta_gaussian": DeltaGaussian(0.1 if scale is None else scale),
    }
    parts: list[Ensemble] = [Samples(drawn[posterior or ("delta_gaussian" if code else "gaussian")], samples)]
    return replace(
        base,
        name="fedbe",
        fuse=Distilled(
            aggregate=aggregate_of(base),
            ensemble=Union(*([Clients()] if clients else []), *([Anchors()] if anchor else []), *parts),
            target=MeanLogits() if target == "logits" else MeanProbs(sharpen),
            distiller=learn[distiller],
            probe=probe,
        ),
    )

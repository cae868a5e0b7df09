"""FedDF. Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning. NeurIPS 2020.
arXiv:2006.07242.

In each round (Algorithms 1 and 3; 3 has several architectures, each with its own server model):
    the clients train the server's model of their architecture, as in FedAvg;
    for each architecture: the student := the mean of its clients' models, weighted by their examples, and then, step
    by step on batches of unlabeled data, moves towards the ensemble of all clients of all architectures:
        minimise KL(softmax(mean of the client logits) || softmax(student logits));
    the student that is best on the server's validation data is the next server model.

`over` is what it is laid over: FedAvg, or FedProx, FedAvgM. The preset `official-code` is the released code where it
differs: teachers and student see the same augmented pool, and drop-worst also drops outliers
(`docs/algorithms/feddf.md`).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.fusion import (
    SGD,
    AdamCosine,
    Clients,
    Distilled,
    Distiller,
    DropWorst,
    MeanLogits,
    MeanLosses,
    MeanProbs,
    PerArchitecture,
    Target,
    VarianceWeighted,
    aggregate_of,
)

# Fed-ET's variance-weighted consensus is no target of the paper: a composition of ours.
TARGETS: Mapping[str, Callable[..., Target]] = {
    "logits": MeanLogits,
    "probs": MeanProbs,
    "losses": MeanLosses,
    "variance": VarianceWeighted,
}


def feddf(
    *,
    over: Algorithm | None = None,
    preset: Literal["paper", "official-code"] = "paper",
    target: Literal["logits", "probs", "losses", "variance"] = "logits",
    temperature: float = 1.0,
    start: Literal["average", "previous"] = "average",
    distiller: Literal["adam", "sgd"] = "adam",
    lr: float = 1e-3,
    steps: int = 10_000,
    batch_size: int = 128,
    clip: float = 5.0,
    patience: int = 1000,
    every: int = 100,
    augment: str = "none",
    drop_worst: bool = False,
    probe: int = 2000,
) -> Algorithm:
    """The clients' average, then distilled from the mean of their logits on unlabeled data."""
    base = over or fedavg()
    code = preset == "official-code"
    learn: Distiller = AdamCosine(lr, steps, batch_size, clip, patience, every, augment)
    if distiller == "sgd":  # Table 7
        learn = SGD(lr, batch_size=batch_size, schedule="cosine", steps=steps, clip=clip, augment=augment)
    return replace(
        base,
        name="feddf",
        fuse=Distilled(
            aggregate=aggregate_of(base),
            ensemble=Clients(),
            target=TARGETS[target](temperature=temperature),
            distiller=learn,
            students=PerArchitecture(start),
            vetting=DropWorst(deviations=1.5 if code else None) if drop_worst else None,
            views=1 if code else 0,
            probe=probe,
        ),
    )

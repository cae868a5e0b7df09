"""FedDF. Lin, Kong, Stich, Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning. NeurIPS 2020.
arXiv:2006.07242.

In each round (Algorithms 1 and 3; 3 has several architectures, each with its own server model):
    the clients train the server's model of their architecture, as in FedAvg;
    for each architecture: the student := the mean of its clients' models, weighted by their examples; then it learns,
    step by step on batches of unlabeled data, from the ensemble of all clients of all architectures:
        minimise KL(softmax(mean of the client logits) || softmax(student logits));
    the student that is best on the server's validation data is the next server model.

`over` is the algorithm that trains and averages the clients: FedAvg, FedProx or FedAvgM. The preset `official-code`
follows the released code where it differs: teachers and student use the same augmented pool, of `views` copies, and
drop-worst also drops outliers (`docs/algorithms/feddf.md`). In a file, `distiller = "sgd"` is that of Table 7.
"""

from dataclasses import replace
from typing import Annotated, Literal

from fedfuse.algorithm import Algorithm, NamedParts, paper
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.settings import OfDistiller, OfTarget, with_settings
from fedfuse.fusion import (
    SGD,
    AdamCosine,
    Admission,
    AdmitAll,
    Clients,
    Distilled,
    Distiller,
    DropWorst,
    MeanLogits,
    PerArchitecture,
    Target,
    admission_of,
    aggregate_of,
)
from fedfuse.fusion.admission import admission_with

VIEWS = 4  # of the preset official-code: the released code draws a fresh view for every batch

# Table 7: the same schedule, steps and early stopping as Adam; the paper tunes the rate, but states neither it nor a
# momentum, so the rate is that of its clients, who have no momentum.
SGD_OF_TABLE_7 = SGD(
    lr=0.1, steps=10_000, batch_size=128, momentum=0.0, schedule="cosine", clip=5.0, patience=1000, every=100
)


@paper
def feddf(
    *,
    over: Algorithm | None = None,
    preset: Literal["paper", "official-code"] = "paper",
    target: Target = MeanLogits(),
    distiller: Annotated[Distiller, NamedParts({"sgd": SGD_OF_TABLE_7}, {"epochs": "steps"})] = AdamCosine(),
    start: Literal["average", "previous"] = "average",
    admission: Admission | None = None,
    drop_worst: bool = False,
    views: int | None = None,
    probe: int = 2000,
    temperature: OfTarget[float] = None,
    lr: OfDistiller[float] = None,
    steps: OfDistiller[int] = None,
    batch_size: OfDistiller[int] = None,
    clip: OfDistiller[float] = None,
    patience: OfDistiller[int] = None,
    every: OfDistiller[int] = None,
    augment: OfDistiller[str] = None,
    keep_start: OfDistiller[bool] = None,
) -> Algorithm:
    """Averages the clients, then distils the mean of their logits on unlabeled data into the average.

    `views` is the number of augmented copies of the pool, by default that of the preset; `admission` is by default that
    of `over`.
    """
    base = over or fedavg()
    code = preset == "official-code"
    return replace(
        base,
        name="feddf",
        fuse=Distilled(
            aggregate=aggregate_of(base),
            ensemble=Clients(),
            target=with_settings(target, temperature=temperature),
            distiller=with_settings(
                distiller, lr=lr, steps=steps, batch_size=batch_size, clip=clip, patience=patience, every=every,
                augment=augment, keep_start=keep_start,
            ),
            students=PerArchitecture(start),
            admission=_admission(admission, base, drop_worst, code),
            views=views if views is not None else VIEWS if code else 0,
            probe=probe,
        ),
    )  # fmt: skip


def _admission(admission: Admission | None, base: Algorithm, drop_worst: bool, code: bool) -> Admission:
    if drop_worst and code and admission is None:
        return DropWorst(deviations=1.5)
    return admission_with(admission or (AdmitAll() if drop_worst else admission_of(base)), drop_worst)

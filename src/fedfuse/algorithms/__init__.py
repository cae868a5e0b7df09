"""The algorithms, one file or folder per paper, by the names that users type. The core knows none of these names."""

from collections.abc import Callable, Mapping

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.decentralised_logits import decentralised_logits
from fedfuse.algorithms.ds_fl import ds_fl
from fedfuse.algorithms.fed_et import fed_et
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.fedavgm import fedavgm
from fedfuse.algorithms.fedbe import fedbe
from fedfuse.algorithms.feddf import feddf
from fedfuse.algorithms.fedgkt import fedgkt
from fedfuse.algorithms.fedma import fedma
from fedfuse.algorithms.fedprox import fedprox
from fedfuse.algorithms.moon import moon
from fedfuse.algorithms.one_shot import one_shot
from fedfuse.algorithms.scaffold import scaffold
from fedfuse.algorithms.v_distillation import v_distillation

ALGORITHMS: Mapping[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "fedavgm": fedavgm,
    "scaffold": scaffold,
    "moon": moon,
    "feddf": feddf,
    "fedbe": fedbe,
    "v-distillation": v_distillation,
    "one-shot": one_shot,
    "fedma": fedma,
    "fed-et": fed_et,
    "ds-fl": ds_fl,
    "decentralised-logits": decentralised_logits,
    "fedgkt": fedgkt,
}

__all__ = [
    "ALGORITHMS",
    "decentralised_logits",
    "ds_fl",
    "fed_et",
    "fedavg",
    "fedavgm",
    "fedbe",
    "feddf",
    "fedgkt",
    "fedma",
    "fedprox",
    "moon",
    "one_shot",
    "scaffold",
    "v_distillation",
]

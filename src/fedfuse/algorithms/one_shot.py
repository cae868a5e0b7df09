"""One-shot federated learning. Guha, Talwalkar, Smith: One-Shot Federated Learning. 2019. arXiv:1902.11175; and the
baseline 1-Ensemble of Chen, Chao: FedBE. ICLR 2021. arXiv:2009.01974, section 5.1.

A single round: the clients train for long (FedBE: 200 epochs), and their models predict as an ensemble, which is
measured on the whole test set (`ensemble` in the round's facts). The resulting model is distilled from the ensemble,
starting from the clients' average, as in v-Distillation.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.settings import OfDistiller, OfTarget
from fedfuse.algorithms.v_distillation import v_distillation
from fedfuse.context import Context
from fedfuse.fusion import SGD, Distiller, MeanProbs, Target
from fedfuse.types import FedfuseError

WHOLE = 10**9  # more test examples than there are


@paper
def one_shot(
    *,
    over: Algorithm | None = None,
    target: Target = MeanProbs(sharpen=2.0),
    distiller: Distiller = SGD(epochs=20, augment="crop:2+flip"),
    sharpen: OfTarget[float] = None,
    lr: OfDistiller[float] = None,
    epochs: OfDistiller[int] = None,
    batch_size: OfDistiller[int] = None,
    momentum: OfDistiller[float] = None,
    augment: OfDistiller[str] = None,
) -> Algorithm:
    """Trains clients for one long round, measures their ensemble, and distils it into one model."""
    distilled = v_distillation(
        over=over, target=target, distiller=distiller, sharpen=sharpen, lr=lr, epochs=epochs, batch_size=batch_size,
        momentum=momentum, augment=augment, probe=WHOLE,
    )  # fmt: skip
    return replace(distilled, name="one-shot", rounds=1, check=OneRound(distilled.check))


@dataclass(frozen=True)
class OneRound:
    """Refuses more than one round before any client works, and whatever its base refuses."""

    base: Callable[[Context], None]

    def __call__(self, ctx: Context) -> None:
        if ctx.rounds != 1:
            raise FedfuseError(f"one-shot has one round, but rounds = {ctx.rounds}: set run.rounds = 1")
        self.base(ctx)

"""v-Distillation, the vanilla distillation that FedBE is compared with. Chen, Chao: FedBE. ICLR 2021. arXiv:2009.01974,
section 5.1.

FedBE with the client models as its only teachers and plain SGD with momentum instead of SWA: starting from the clients'
average, the student learns the sharpened mean of their probabilities for 20 epochs. The paper does not give the
learning rate; the default is that of the released code.
"""

from dataclasses import replace

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.settings import OfDistiller, OfTarget, with_settings
from fedfuse.fusion import SGD, Clients, Distilled, Distiller, MeanProbs, Target, admission_of, aggregate_of


@paper
def v_distillation(
    *,
    over: Algorithm | None = None,
    target: Target = MeanProbs(sharpen=2.0),
    distiller: Distiller = SGD(epochs=20, augment="crop:2+flip"),
    probe: int = 2000,
    sharpen: OfTarget[float] = None,
    lr: OfDistiller[float] = None,
    epochs: OfDistiller[int] = None,
    batch_size: OfDistiller[int] = None,
    momentum: OfDistiller[float] = None,
    augment: OfDistiller[str] = None,
) -> Algorithm:
    """Averages the clients, then distils the mean of their probabilities into the average with SGD."""
    base = over or fedavg()
    return replace(
        base,
        name="v-distillation",
        fuse=Distilled(
            aggregate=aggregate_of(base),
            admission=admission_of(base),
            ensemble=Clients(),
            target=with_settings(target, sharpen=sharpen),
            distiller=with_settings(
                distiller, lr=lr, epochs=epochs, batch_size=batch_size, momentum=momentum, augment=augment
            ),
            probe=probe,
        ),
    )

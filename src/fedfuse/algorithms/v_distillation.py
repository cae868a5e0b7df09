"""v-Distillation, the vanilla distillation that FedBE is compared with. Chen, Chao: FedBE. ICLR 2021. arXiv:2009.01974,
section 5.1.

FedBE with the client models as its only teachers and plain SGD with momentum instead of SWA: the mean of their
probabilities, sharpened, is learnt for 20 epochs from their average on. The paper does not give the rate; ours is
that of the released code.
"""

from dataclasses import replace

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.fusion import SGD, Clients, Distilled, MeanProbs, aggregate_of


def v_distillation(
    *,
    over: Algorithm | None = None,
    sharpen: float = 2.0,
    lr: float = 1e-3,
    epochs: int = 20,
    batch_size: int = 128,
    momentum: float = 0.9,
    augment: str = "crop:2+flip",
    probe: int = 2000,
) -> Algorithm:
    """The clients' average, then distilled from the mean of their probabilities with SGD."""
    base = over or fedavg()
    return replace(
        base,
        name="v-distillation",
        fuse=Distilled(
            aggregate=aggregate_of(base),
            ensemble=Clients(),
            target=MeanProbs(sharpen),
            distiller=SGD(lr, epochs, batch_size, momentum, augment=augment),
            probe=probe,
        ),
    )

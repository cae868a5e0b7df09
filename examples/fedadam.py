"""FedAdam. Reddi et al.: Adaptive Federated Optimization. ICLR 2021. arXiv:2003.00295.

An algorithm of one's own whose server remembers: the clients' mean step is the gradient of an Adam at the server, whose
moments are kept from round to round. From the project's folder:
`fedfuse compare digits -a fedavg -a 'examples.fedadam:fedadam(lr=0.01)'`.
"""

from dataclasses import dataclass, field, replace

from fedfuse import Algorithm, tree
from fedfuse.algorithm import paper
from fedfuse.context import Context
from fedfuse.fusion import Aggregate, Aggregated, Averaged, RunningAggregate, WeightedMean
from fedfuse.local import CrossEntropy, Training
from fedfuse.types import ServerState, Update


@dataclass(frozen=True)
class Adam:
    """m := b1 m + (1 - b1) d, v := b2 v + (1 - b2) d^2, x := x + lr m / (sqrt(v) + tau), where d is the mean - x."""

    lr: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3
    mean: Aggregate = field(default_factory=WeightedMean)

    def start(self, server: ServerState, ctx: Context) -> "RunningAdam":
        return RunningAdam(self, self.mean.start(server, ctx), server)


class RunningAdam:
    """One round: the mean of the updates, then one step of Adam for each architecture."""

    def __init__(self, adam: Adam, mean: RunningAggregate, server: ServerState) -> None:
        self.adam, self.mean, self.server = adam, mean, server

    def add(self, update: Update) -> None:
        self.mean.add(update)

    def value(self) -> Aggregated:
        means, memory = self.mean.value()
        models, moments, adam = {}, {}, self.adam
        for arch, mean in means.items():
            now = self.server.models[arch].params
            zeros = tree.zeros_like(now)
            m = memory.get(f"adam-m/{arch}") or zeros
            v = memory.get(f"adam-v/{arch}") or tree.map_trees(lambda zero: zero + adam.tau**2, zeros)
            step = tree.subtract(mean.params, now)
            m = tree.map_trees(lambda m, d: adam.beta1 * m + (1 - adam.beta1) * d, m, step)
            v = tree.map_trees(lambda v, d: adam.beta2 * v + (1 - adam.beta2) * d**2, v, step)
            params = tree.map_trees(lambda x, m, v: x + adam.lr * m / (v.sqrt() + adam.tau), now, m, v)
            models[arch] = replace(mean, params=params)  # buffers, such as batch-norm statistics, follow the mean
            moments |= {f"adam-m/{arch}": m, f"adam-v/{arch}": v}
        return Aggregated(models, {**memory, **moments})  # the memory is kept by the checkpoint


@paper
def fedadam(*, lr: float = 0.01, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3) -> Algorithm:
    """Adam at the server, on the mean step of the clients."""
    return Algorithm("fedadam", local=Training((CrossEntropy(),)), fuse=Averaged(Adam(lr, beta1, beta2, tau)))

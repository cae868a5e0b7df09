"""SCAFFOLD. Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning. ICML 2020. arXiv:1910.06378.

In each round (Algorithm 1, option II):
    the server sends its model x and its control variate c to a few clients S of all N;
    each client takes K steps y := y - eta (gradient - c_i + c), starting from y = x, with its own control variate c_i;
    it then sets c_i+ := c_i - c + (x - y) / (K eta), the mean of its gradients;
    the server adds to x global_lr times the mean of y - x, and to c |S|/N times the mean of c_i+ - c_i.

So clients with heterogeneous data follow the gradient over all data, and longer local training does not make them drift
apart. c_i stays with its client; one that drop-worst leaves out keeps its previous c_i, so that c stays their mean.
With several architectures, each has its own c, and N counts its clients (`docs/algorithms/scaffold.md`).
"""

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.scaffold.client import ControlChange, ControlVariate
from fedfuse.algorithms.scaffold.server import Controlled, expect_control_change, send_control
from fedfuse.context import Context
from fedfuse.fusion.admission import Admission, AdmitAll, admission_with
from fedfuse.fusion.aggregate import Averaged, BufferPolicy, WeightedMean, Weights
from fedfuse.local import CrossEntropy, Training
from fedfuse.types import FedfuseError


@paper
def scaffold(
    *,
    global_lr: float = 1.0,
    weights: Weights = "uniform",
    buffers: BufferPolicy = "mean",
    admission: Admission = AdmitAll(),
    drop_worst: bool = False,
) -> Algorithm:
    """FedAvg whose clients correct their gradients by the difference between theirs and the global gradient."""
    return Algorithm(
        "scaffold",
        local=Training((CrossEntropy(), ControlVariate()), reports=(ControlChange(),)),
        fuse=Averaged(
            Controlled(WeightedMean(weights, buffers), weights, global_lr), admission_with(admission, drop_worst)
        ),
        brief=send_control,
        expect=expect_control_change,
        check=steps_are_gradients,
    )


def steps_are_gradients(ctx: Context) -> None:
    """Refuse an optimizer whose steps are not sums of gradients: control variates are computed from the steps."""
    if ctx.local.optimizer != "sgd":
        raise FedfuseError(
            f"scaffold computes mean gradients from a client's steps, and those of {ctx.local.optimizer} are not sums "
            'of gradients: set local.optimizer = "sgd" (momentum is allowed)'
        )

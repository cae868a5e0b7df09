"""SCAFFOLD. Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: SCAFFOLD: Stochastic Controlled Averaging for Federated
Learning. ICML 2020. arXiv:1910.06378.

In each round (Algorithm 1, option II):
    the server sends its model x and its control variate c to a few clients S of all N;
    each client takes K steps y := y - eta (gradient - c_i + c), from y = x on, with its own control variate c_i;
    it then sets c_i+ := c_i - c + (x - y) / (K eta), the mean of the gradients it has seen;
    the server adds to x global_lr times the mean of y - x, and to c |S|/N times the mean of c_i+ - c_i.

So clients with unlike data follow the gradient of all, and more local work does not pull them apart. c_i stays with its
client. With several architectures each has its own c, and N counts its clients (`docs/algorithms/scaffold.md`).
"""

from typing import Literal

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.scaffold.server import Controlled, control_of
from fedfuse.context import Context
from fedfuse.fusion import Averaged, WeightedMean
from fedfuse.local import CONTROL, ControlChange, ControlVariate, CrossEntropy, Training
from fedfuse.types import Extras, FedfuseError, Like, ServerState, Task


def send_control(server: ServerState, client: int, ctx: Context) -> Task:
    """Each client is sent the server's model and control variate of its own architecture."""
    arch = ctx.archs[client]
    return Task(client, ctx.round, server.models[arch], {CONTROL: control_of(server, arch)})


def a_control_change(server: ServerState, client: int, ctx: Context) -> Extras:
    """Beside its model a client sends the change of its control variate, which has the shapes of the parameters."""
    return {CONTROL: Like.each(server.models[ctx.archs[client]].params)}


def steps_are_gradients(ctx: Context) -> None:
    """Refuse an optimizer whose steps are not sums of gradients: the control variates are read off the steps."""
    if ctx.local.optimizer != "sgd":
        raise FedfuseError(
            f"scaffold reads a client's mean gradient off its steps, and those of {ctx.local.optimizer} are not sums of"
            ' gradients: set local.optimizer = "sgd" (with momentum, if you like)'
        )


def scaffold(
    *,
    global_lr: float = 1.0,
    weights: Literal["examples", "uniform"] = "uniform",
    buffers: Literal["mean", "keep", "recalibrate"] = "mean",
) -> Algorithm:
    """FedAvg whose clients correct their gradients by how theirs differ from everyone's."""
    return Algorithm(
        "scaffold",
        local=Training((CrossEntropy(), ControlVariate()), reports=(ControlChange(),)),
        fuse=Averaged(Controlled(WeightedMean(weights, buffers), weights, global_lr)),
        brief=send_control,
        expect=a_control_change,
        check=steps_are_gradients,
    )

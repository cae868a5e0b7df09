"""SCAFFOLD on quadratics a/2 (w - b)^2, whose every step can be done by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.scaffold import scaffold
from fedfuse.algorithms.scaffold.client import CONTROL, ControlVariate, gradients_followed, path_length
from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.engines import InProcess
from fedfuse.local import Local, LocalSettings, Training
from fedfuse.round import run_round
from fedfuse.testing import all_bits, bits
from fedfuse.types import FedfuseError, Groups, ServerState, Snapshot, Task
from fedfuse.vet import Vetting
from tests.doubles import DROPPING, NORMED, context, initial

POINT = f"{__name__}:point"


class Point(nn.Module):
    """One parameter w, which has no use for its input."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.w.expand(len(x), 1)


def point(classes: int, shape: tuple[int, ...]) -> nn.Module:
    return Point()


@dataclass(frozen=True)
class Quadratic:
    """a/2 (w - b)^2: a batch's examples are all (a, b)."""

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, local: Local) -> Tensor:
        assert isinstance(net, Point)
        return x[0, 0] / 2 * (net.w - x[0, 1]) ** 2


@dataclass(frozen=True)
class Slope:
    """a w: the same gradient everywhere."""

    def __call__(self, net: nn.Module, x: Tensor, y: Tensor, local: Local) -> Tensor:
        assert isinstance(net, Point)
        return x[0, 0] * net.w


def quadratics(*clients: tuple[float, float, int], lr: float = 0.5, epochs: int = 1, **local: object) -> Context:
    """Clients (a, b, K): of K examples each, which are K steps of one example in an epoch."""
    rows = torch.tensor([(a, b) for a, b, steps in clients for _ in range(steps)])
    parts = torch.arange(len(rows)).split([steps for _, _, steps in clients])
    train = Examples(rows, torch.zeros(len(rows), dtype=torch.long), 1, torch.zeros(2), torch.ones(2))
    data = Federation(train, tuple(parts), train, train, None, ("one",))
    settings = LocalSettings(epochs=epochs, batch_size=1, lr=lr, **local)  # type: ignore[arg-type]
    return Context(0, 1, settings, data, (POINT,) * len(clients), Nets(1, (2,)), round=1)


def on_quadratics(algorithm: Algorithm) -> Algorithm:
    """The algorithm with a/2 (w - b)^2 in the place of the cross entropy."""
    assert isinstance(algorithm.local, Training)
    return replace(algorithm, local=replace(algorithm.local, terms=(Quadratic(), *algorithm.local.terms[1:])))


def at(w: float) -> Snapshot:
    return Snapshot(POINT, {"w": torch.tensor(w)})


def limit(algorithm: Algorithm, ctx: Context, cohorts: Iterable[list[int]], start: float = 0.0) -> float:
    """w after a round of each cohort."""
    server = ServerState(0, {POINT: at(start)})
    memory: dict[int, Groups] = {}
    for cohort in cohorts:
        updates = [algorithm.local(algorithm.brief(server, k, ctx), memory.get(k, {}), ctx) for k in cohort]
        memory |= {update.client: update.memory for update in updates}
        server, _ = algorithm.fuse(server, updates, ctx)
    return server.models[POINT].params["w"].item()


def test_the_gradient_of_the_term_is_the_difference_of_the_control_variates() -> None:
    net = nn.Linear(2, 1)
    names = dict(net.named_parameters())
    control = {"weight": torch.tensor([[3.0, 5.0]]), "bias": torch.tensor([1.0])}
    own = {"weight": torch.tensor([[1.0, 1.0]]), "bias": torch.tensor([2.0])}
    local = Local([], {CONTROL: control}, {CONTROL: own})
    value = ControlVariate()(net, torch.zeros(1, 2), torch.zeros(1), local)
    value.backward()
    assert names["weight"].grad.tolist() == [[2.0, 4.0]]
    assert names["bias"].grad.tolist() == [-1.0]
    expected = 2 * net.weight[0, 0] + 4 * net.weight[0, 1] - net.bias[0]
    assert value.item() == pytest.approx(expected.item())


def test_option_ii_by_hand() -> None:
    """a = 1, b = 4, eta = 1/2, K = 2, from x = 0, with c = 1 and c_i = -1, so c - c_i = 2."""
    ctx = quadratics((1.0, 4.0, 2))
    task = Task(0, 1, at(0.0), {CONTROL: {"w": torch.tensor(1.0)}})
    update = on_quadratics(scaffold()).local(task, {CONTROL: {"w": torch.tensor(-1.0)}}, ctx)
    # Step 1: gradient 0 - 4 = -4, corrected -2: y = 1. Step 2: 1 - 4 = -3, corrected -1: y = 1.5.
    assert update.model is not None
    assert update.model.params["w"].item() == 1.5
    # c_i+ = -1 - 1 + (0 - 1.5) / (2 x 0.5) = -3.5, which is the mean of the gradients -4 and -3.
    assert update.memory[CONTROL]["w"].item() == -3.5
    assert update.extra[CONTROL]["w"].item() == -2.5  # from -1 on


def test_steps_with_momentum_add_up_to_more_gradients() -> None:
    # 1 + (1 + 1/2) + (1 + 1/2 + 1/4).
    assert gradients_followed(3, 0.5) == 4.25
    assert [gradients_followed(steps, 0.0) for steps in (1, 2, 7)] == [1, 2, 7]
    assert gradients_followed(100, 0.9) == pytest.approx(sum((1 - 0.9**j) / (1 - 0.9) for j in range(1, 101)))


def test_with_a_schedule_the_mean_gradient_is_weighted_by_the_rates() -> None:
    """As by hand above, with rates 1/2 and 1/4."""
    ctx = quadratics((1.0, 4.0, 2), schedule="linear")
    task = Task(0, 1, at(0.0), {CONTROL: {"w": torch.tensor(1.0)}})
    done = on_quadratics(scaffold()).local(task, {CONTROL: {"w": torch.tensor(-1.0)}}, ctx)
    # Step 1: -4, corrected -2: y = 1. Step 2: -3, corrected -1: y = 1.25.
    assert done.model is not None
    assert done.model.params["w"].item() == 1.25
    # c_i+ = -1 - 1 - 1.25 / (1/2 + 1/4), which is (-4 / 2 - 3 / 4) / (3/4).
    assert done.memory[CONTROL]["w"].item() == pytest.approx(-11 / 3)


def test_path_length_by_hand() -> None:
    plain, heavy = (LocalSettings(epochs=1, schedule="linear", momentum=beta) for beta in (0.0, 0.5))
    # Rates 3, 2, 1; with momentum 1/2 the velocities hold 1, 1 + 1/2 and 1 + 1/2 + 1/4 gradients.
    assert path_length(3.0, 3, plain) == pytest.approx(6)
    assert path_length(3.0, 3, heavy) == pytest.approx(3 * 1 + 2 * 1.5 + 1 * 1.75)
    assert path_length(0.1, 7, LocalSettings(epochs=1)) == 0.1 * gradients_followed(7, 0.0)


@pytest.mark.parametrize("schedule", [{}, {"schedule": "cosine", "warmup": 0.3}, {"schedule": "linear"}])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_a_constant_gradient_is_its_own_control_variate(momentum: float, schedule: dict[str, object]) -> None:
    ctx = quadratics((3.0, 0.0, 5), momentum=momentum, epochs=2, **schedule)
    task = Task(0, 1, at(1.0), {CONTROL: {"w": torch.tensor(0.25)}})
    local = Training((Slope(), ControlVariate()), reports=scaffold().local.reports)  # type: ignore[attr-defined]
    update = local(task, {CONTROL: {"w": torch.tensor(-7.0)}}, ctx)
    assert update.metrics["steps"] == 10
    assert update.memory[CONTROL]["w"].item() == pytest.approx(3.0, rel=1e-5)


# Two clients that pull to 0 and to 3, with curvatures 1 and 1/2, and take 2 and 6 steps of eta = 1/4.
UNEQUAL = ((1.0, 0.0, 2), (0.5, 3.0, 6))


def test_fedavg_stops_at_a_point_that_is_biased() -> None:
    # A client ends at b + r (x - b), r = (1 - eta a)^K: 0.75^2 = 0.5625 and 0.875^6 = 0.4488. Where their mean is x:
    # x = sum (1 - r) b / sum (1 - r) = 0.5512 x 3 / (0.4375 + 0.5512) = 1.6725.
    quick, slow = 1 - 0.75**2, 1 - 0.875**6
    biased = limit(on_quadratics(fedavg(weights="uniform")), quadratics(*UNEQUAL, lr=0.25), [[0, 1]] * 25)
    assert biased == pytest.approx(slow * 3 / (quick + slow), rel=1e-5)
    assert biased == pytest.approx(1.6725, rel=1e-4)


@pytest.mark.parametrize("momentum", [0.0, 0.3])
def test_scaffold_reaches_the_optimum_of_all(momentum: float) -> None:
    # The mean of 1/2 w^2 and 1/4 (w - 3)^2 is least where w + (w - 3) / 2 = 0: w = 1.
    ctx = quadratics(*UNEQUAL, lr=0.25, momentum=momentum)
    assert limit(on_quadratics(scaffold()), ctx, [[0, 1]] * 30) == pytest.approx(1.0, rel=1e-4)


def test_so_it_does_when_clients_take_turns() -> None:
    ctx = quadratics(*UNEQUAL, lr=0.25)
    assert limit(on_quadratics(scaffold()), ctx, [[0], [1]] * 20) == pytest.approx(1.0, rel=1e-4)


def test_with_a_smaller_step_of_the_server() -> None:
    ctx = quadratics(*UNEQUAL, lr=0.25)
    assert limit(on_quadratics(scaffold(global_lr=0.5)), ctx, [[0, 1]] * 50) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("cohorts", [[[0, 1]] * 30, [[0], [1]] * 20])
def test_weights_by_examples_reach_the_optimum_that_is_weighted_so(cohorts: list[list[int]]) -> None:
    # 2 x 1/2 w^2 + 6 x 1/4 (w - 3)^2 is least where 2 w + 3 (w - 3) = 0: w = 1.8.
    ctx = quadratics(*UNEQUAL, lr=0.25)
    assert limit(on_quadratics(scaffold(weights="examples")), ctx, cohorts) == pytest.approx(1.8, rel=1e-4)


def test_a_milestone_of_the_rate_is_accounted_for() -> None:
    """c_i divides by the rate of its own round: at a tenth of it the same gradient is read off the steps."""
    ctx = quadratics((3.0, 0.0, 4))
    ctx = replace(ctx, rounds=10, local=ctx.local.model_copy(update={"milestones": (0.5,)}))
    zero = {CONTROL: {"w": torch.tensor(0.0)}}
    local = Training((Slope(), ControlVariate()), reports=scaffold().local.reports)  # type: ignore[attr-defined]
    for number in (1, 9):
        update = local(Task(0, number, at(1.0), zero), {}, ctx.at(number))
        assert update.memory[CONTROL]["w"].item() == pytest.approx(3.0, rel=1e-5)


# On nets.


@pytest.mark.parametrize("arch", ["mlp:8", NORMED, DROPPING])
def test_the_first_round_is_fedavgs(arch: str) -> None:
    """All control variates are 0 in it."""
    models = []
    for algorithm in (scaffold(), fedavg(weights="uniform")):
        ctx = context((arch,) * 4, epochs=2, momentum=0.5)
        server, _ = run_round(algorithm, initial(ctx), InProcess(), [0, 2, 3], Vetting(), ctx)
        models.append(all_bits(server.models))
    assert models[0] == models[1]


@pytest.mark.parametrize(("weights", "shares"), [("uniform", [1, 1, 1, 1]), ("examples", [7, 23, 37, 53])])
def test_the_servers_control_variate_is_the_mean_of_all_clients(weights: str, shares: list[int]) -> None:
    """Whoever took part, in each architecture: clients 0 and 2 have one, 1 and 3 the other."""
    ctx = context(("mlp:8", NORMED) * 2)
    assert [len(part) for part in ctx.data.parts] == [7, 23, 37, 53]
    server, engine = initial(ctx), InProcess()
    algorithm = scaffold(weights=weights)  # type: ignore[arg-type]
    for number, cohort in enumerate(([0, 1, 3], [2], [0, 2, 3], [1]), 1):
        server, record = run_round(algorithm, server, engine, cohort, Vetting(), ctx.at(number))
        assert record.rejected == {}
    for arch, pair in (("mlp:8", (0, 2)), (NORMED, (1, 3))):
        control = server.memory[f"control/{arch}"]
        assert control.keys() == server.models[arch].params.keys()  # buffers have none
        for name, tensor in control.items():
            held = [engine.memory()[client][CONTROL][name] * shares[client] for client in pair]
            torch.testing.assert_close(tensor, (held[0] + held[1]) / sum(shares[client] for client in pair))
        assert any(bool(tensor.any()) for tensor in control.values())


def test_an_architecture_without_a_client_keeps_its_control_variate() -> None:
    ctx = context(("mlp:8", NORMED) * 2)
    server, engine = initial(ctx), InProcess()
    server, _ = run_round(scaffold(), server, engine, [0, 1], Vetting(), ctx)
    after, _ = run_round(scaffold(), server, engine, [0], Vetting(), ctx.at(2))
    control, before = after.memory[f"control/{NORMED}"], server.memory[f"control/{NORMED}"]
    assert bits(Snapshot(NORMED, control)) == bits(Snapshot(NORMED, before))


def test_adam_is_refused() -> None:
    with pytest.raises(FedfuseError, match=r'steps, and those of adam .* set local\.optimizer = "sgd"'):
        scaffold().check(context(optimizer="adam"))
    scaffold().check(context(momentum=0.9))


def test_a_rate_of_the_server_that_is_not_positive_is_refused() -> None:
    with pytest.raises(FedfuseError, match="global_lr must be positive"):
        scaffold(global_lr=0.0)

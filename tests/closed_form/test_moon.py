"""MOON's contrast by hand: features near the received model's, away from the client's previous ones."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fedfuse.algorithm import Algorithm
from fedfuse.algorithms.fedavg import fedavg
from fedfuse.algorithms.moon import moon
from fedfuse.algorithms.moon.client import ModelContrast
from fedfuse.context import Nets
from fedfuse.engines import InProcess
from fedfuse.local import CrossEntropy, Local, Training
from fedfuse.models.classifier import Classifier, trunk_and_head
from fedfuse.round import run_round
from fedfuse.testing import all_bits, bits
from fedfuse.types import FedfuseError, Groups, Snapshot, Task
from fedfuse.vet import Vetting
from tests.doubles import LINEAR, NORMED, context, initial

SCALED = f"{__name__}:scaled"
X, Y = torch.tensor([[1.0, 1.0]]), torch.tensor([0])


class Scale(nn.Module):
    """Features are the inputs, each times its own weight."""

    def __init__(self) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.by


def scaled(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A head of zeros: the cross entropy is log 2 and moves no feature."""
    head = nn.Linear(2, 2)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return Classifier(Scale(), head, 2)


def with_features(first: float, second: float) -> Snapshot:
    """The model that makes the features (first, second) of X."""
    model = Snapshot.of(SCALED, scaled(2, (2,)))
    return replace(model, params={**model.params, "trunk.by": torch.tensor([float(first), float(second)])})


def remembered(model: Snapshot) -> Groups:
    return {"previous/params": model.params, "previous/buffers": model.buffers}


def loss_at(now: Snapshot, received: Snapshot, memory: Groups, mu: float, temperature: float) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient by the features' weights."""
    net = now.load_into(scaled(2, (2,)))
    local = Local([], {}, memory, received, Nets(2, (2,)))
    loss = ModelContrast(mu, temperature)(net, X, Y, local)
    loss.backward()
    by = dict(net.named_parameters())["trunk.by"]
    assert by.grad is not None
    return loss.detach(), by.grad


def test_the_contrast_by_hand() -> None:
    # z = (1, 0), received (3, 4), previous (0, 2): cosines 3/5 and 0. With tau = 0.5 they count 1.2 and 0.
    now, received, previous = with_features(1, 0), with_features(3, 4), with_features(0, 2)
    loss, _ = loss_at(now, received, remembered(previous), mu=2.0, temperature=0.5)
    contrast = -math.log(math.exp(1.2) / (math.exp(1.2) + 1))
    assert loss.item() == pytest.approx(math.log(2) + 2 * contrast)
    assert contrast == pytest.approx(0.26328, rel=1e-4)


def test_its_gradient_turns_features_to_the_received_models() -> None:
    # d cos(z, e) / dz at z = (1, 0) is (0, e_2) for a unit e: (0, 4/5) and (0, 1). l_con's derivatives by the two
    # cosines are -(1 - p) / tau and (1 - p) / tau, with p = 1 / (1 + e^-1.2): by z_2 it is (1 - p) / tau (1 - 4/5).
    now, received, previous = with_features(1, 0), with_features(3, 4), with_features(0, 2)
    _, gradient = loss_at(now, received, remembered(previous), mu=2.0, temperature=0.5)
    rest = 1 - 1 / (1 + math.exp(-1.2))
    assert gradient.tolist() == pytest.approx([0.0, 2 * rest / 0.5 * (1 - 0.8)], abs=1e-6)
    # Away from a previous model on the one side, to a received one on the other: down the gradient z_2 grows.
    _, gradient = loss_at(now, with_features(0, 1), remembered(with_features(0, -1)), mu=1.0, temperature=0.5)
    assert gradient[1] < 0


def test_in_a_clients_first_round_it_is_a_constant() -> None:
    now, received = with_features(1, 0), with_features(3, 4)
    loss, gradient = loss_at(now, received, {}, mu=5.0, temperature=0.5)
    assert loss.item() == pytest.approx(math.log(2) + 5 * math.log(2))
    assert gradient.tolist() == [0.0, 0.0]
    # As the formula has it, with the received model in the previous one's place.
    loss, gradient = loss_at(now, received, remembered(received), mu=5.0, temperature=0.5)
    assert loss.item() == pytest.approx(6 * math.log(2))
    assert gradient.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)


def test_features_of_zeros_are_no_division_by_zero() -> None:
    loss, gradient = loss_at(with_features(0, 0), with_features(3, 4), remembered(with_features(0, 2)), 1.0, 0.5)
    assert math.isfinite(loss.item())
    assert bool(torch.isfinite(gradient).all())


def rounds(algorithm: Algorithm, arch: str) -> tuple[list[object], InProcess]:
    """The models and scores after each of three rounds, with another cohort in each, and what clients remember."""
    ctx = context((arch,) * 4, epochs=2, momentum=0.5)
    server, engine, seen = initial(ctx), InProcess(), []
    for number, cohort in enumerate(([0, 2, 3], [1, 2], [0, 1, 3]), 1):
        server, record = run_round(algorithm, server, engine, cohort, Vetting(), ctx.at(number))
        seen.append(
            (all_bits(server.models), record.test_accuracy, record.test_loss, record.params_up, record.params_down)
        )
    return seen, engine


def dropping(classes: int, shape: tuple[int, ...]) -> nn.Module:
    """Dropout in the trunk: a frozen net that drew as well would change what the trained one draws."""
    trunk = nn.Sequential(nn.Linear(shape[0], 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5))
    return Classifier(trunk, nn.Linear(8, classes), 8)


@pytest.mark.parametrize("arch", ["mlp:8", "mlp:8:bn", f"{__name__}:dropping"])
def test_without_mu_it_is_fedavg_bit_for_bit(arch: str) -> None:
    assert rounds(moon(mu=0.0), arch)[0] == rounds(fedavg(), arch)[0]


def test_with_mu_it_is_not_from_a_clients_second_round_on() -> None:
    with_mu, without = rounds(moon(), "mlp:8")[0], rounds(fedavg(), "mlp:8")[0]
    assert with_mu[0] == without[0]
    assert with_mu[1] != without[1]  # client 2 is back


def test_a_client_remembers_its_own_last_model() -> None:
    ctx = context(("mlp:8:bn",) * 2)
    server, algorithm, memory = initial(ctx), moon(), {}
    for number in (1, 2):
        result = algorithm.local(algorithm.brief(server, 0, ctx), memory, ctx.at(number))
        assert result.model is not None
        assert result.extra == {}  # and it stays there
        memory = result.memory
        previous = Snapshot("mlp:8:bn", memory["previous/params"], memory["previous/buffers"])
        assert bits(previous) == bits(result.model)
        server = replace(server, models={"mlp:8:bn": result.model})


def test_the_previous_model_is_the_one_it_is_contrasted_with() -> None:
    """The same round from another memory ends elsewhere; from the received model's own it ends as the first did."""
    ctx = context(("mlp:8",))
    model = initial(ctx).models["mlp:8"]
    other = replace(model, params={name: -2 * t for name, t in model.params.items()})
    ends = [moon().local(Task(0, 1, model), memory, ctx).model for memory in ({}, remembered(model), remembered(other))]
    first, same, elsewhere = (end.params["head.weight"] for end in ends if end is not None)
    torch.testing.assert_close(first, same, rtol=1e-5, atol=1e-6)
    assert (first - elsewhere).abs().max() > 1e-4


def test_batch_norm_counts_each_batch_once_and_frozen_nets_count_none() -> None:
    ctx = context(("mlp:8:bn",), epochs=2)
    model = initial(ctx).models["mlp:8:bn"]
    result = moon().local(Task(0, 1, model), remembered(model), ctx)
    assert result.model is not None
    counts = [b.item() for name, b in result.model.buffers.items() if name.endswith("num_batches_tracked")]
    assert counts == [result.metrics["steps"]]
    for use in ("received", "previous"):
        frozen = ctx.nets.scratch("mlp:8:bn", use)
        assert bits(Snapshot.of("mlp:8:bn", frozen)) == bits(model)
        assert all(p.grad is None for p in frozen.parameters())


def test_frozen_nets_are_loaded_once_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = context(("mlp:8",), epochs=3)
    model = initial(ctx).models["mlp:8"]
    loaded: list[str] = []
    load = Nets.load
    monkeypatch.setattr(Nets, "load", lambda nets, m, use="work": (loaded.append(use), load(nets, m, use))[1])
    moon().local(Task(0, 1, model), remembered(model), ctx)
    assert loaded == ["work", "received", "previous"]


def test_a_net_without_features_is_refused() -> None:
    with pytest.raises(
        FedfuseError, match=r"moon cannot train tests\.doubles:linear: .* a Linear .*models\.Classifier"
    ):
        moon().check(context(("mlp:8", LINEAR)))
    moon().check(context(("mlp:8", "mlp:6:bn", NORMED)))


def test_the_features_of_a_sequential_are_what_its_last_layer_reads() -> None:
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    net = context((NORMED,)).nets.scratch(NORMED).eval()
    trunk, head = trunk_and_head(net)
    assert trunk(x).shape == (5, 5)
    assert torch.equal(head(trunk(x)), net(x))
    with pytest.raises(FedfuseError, match="ends in a linear layer"):
        trunk_and_head(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))


@pytest.mark.parametrize(("mu", "temperature", "says"), [(-1.0, 0.5, "mu must not"), (1.0, 0.0, "must be positive")])
def test_settings_that_make_no_sense_are_refused(mu: float, temperature: float, says: str) -> None:
    with pytest.raises(FedfuseError, match=says):
        moon(mu=mu, temperature=temperature)


def test_training_without_reports_sends_and_keeps_nothing_more() -> None:
    ctx = context()
    result = Training((CrossEntropy(),))(Task(0, 1, initial(ctx).models["mlp:8"]), {"own": {}}, ctx)
    assert (result.extra, result.memory) == ({}, {})

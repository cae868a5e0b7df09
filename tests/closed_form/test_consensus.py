"""Fed-ET's Equations 2 to 11, on numbers that can be redone on paper."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedfuse.fusion import ConsensusWithDiversity, Labelling, SoftLabels, VarianceWeighted
from fedfuse.fusion.table import TensorPool
from fedfuse.fusion.target import Diversity
from fedfuse.types import FedfuseError


def logits(*teachers: list[list[float]]) -> torch.Tensor:
    """Probabilities (M, N, C) -> logits that have them."""
    return torch.tensor(teachers, dtype=torch.float64).log()


def test_confident_teachers_weigh_more() -> None:
    # Of two classes p has the variance (p - 1/2)^2: 0.16 for 0.9, 0.01 for 0.4. So 0.9 weighs 16/17, 0.4 weighs 1/17.
    value = VarianceWeighted()(logits([[0.9, 0.1]], [[0.4, 0.6]]))
    first = (16 * 0.9 + 0.4) / 17
    torch.testing.assert_close(value.consensus, torch.tensor([[first, 1 - first]]))
    assert value.labels.tolist() == [0]
    # The second teacher disagrees: its weight of Equation 8, normalised over both, is the mass.
    torch.testing.assert_close(value.mass, torch.tensor([1 / 17]))
    torch.testing.assert_close(value.diversity, torch.tensor([[0.4, 0.6]]))


def test_the_variance_is_the_populations() -> None:
    # (0.7, 0.2, 0.1) has the mean 1/3 and the variance (0.7^2 + 0.2^2 + 0.1^2)/3 - 1/9; (0.5, 0.5, 0) likewise.
    one, two = (0.54 / 3 - 1 / 9), (0.5 / 3 - 1 / 9)
    value = VarianceWeighted()(logits([[0.7, 0.2, 0.1]], [[0.5, 0.5, 1e-12]]))
    expected = (one * 0.7 + two * 0.5) / (one + two)
    assert float(value.consensus[0, 0]) == pytest.approx(expected)


def test_where_all_agree_the_diversity_is_exactly_zero() -> None:
    value = VarianceWeighted()(logits([[0.9, 0.1], [0.2, 0.8]], [[0.6, 0.4], [0.9, 0.1]]))
    assert value.mass[0] == 0
    assert value.diversity[0].tolist() == [0, 0]
    assert value.mass[1] > 0


def test_where_nobody_has_an_idea_all_count_alike() -> None:
    value = VarianceWeighted()(torch.zeros(3, 1, 4))
    assert value.consensus.tolist() == [[0.25] * 4]
    assert bool(torch.isfinite(value.diversity).all())


def test_weights_multiply_the_variances() -> None:
    twice = VarianceWeighted()(logits([[0.9, 0.1]], [[0.4, 0.6]], [[0.4, 0.6]]))
    weighted = VarianceWeighted()(logits([[0.9, 0.1]], [[0.4, 0.6]]), torch.tensor([1.0, 2.0]))
    for a, b in zip(twice, weighted, strict=True):
        torch.testing.assert_close(a, b)
    silent = VarianceWeighted()(logits([[0.9, 0.1]], [[0.4, 0.6]]), torch.tensor([1.0, 0.0]))
    assert silent.mass.tolist() == [0]
    with pytest.raises(FedfuseError, match="weights were given for 2 teachers"):
        VarianceWeighted()(torch.zeros(2, 1, 3), torch.ones(3))


@given(st.integers(0, 2**31), st.integers(1, 6), st.integers(2, 5))
def test_consensus_and_diversity_are_distributions(seed: int, teachers: int, classes: int) -> None:
    value = VarianceWeighted()(3 * torch.randn(teachers, 7, classes, generator=torch.Generator().manual_seed(seed)))
    torch.testing.assert_close(value.consensus.sum(1), torch.ones(7))
    disputed = value.mass > 0
    torch.testing.assert_close(value.diversity.sum(1), disputed.float())
    assert bool((value.mass <= 1 + 1e-6).all())


def test_all_may_dissent_from_what_they_say_together() -> None:
    """Two equally sure teachers favour the first and the last of three classes, and together the middle one."""
    value = VarianceWeighted()(logits([[0.5, 0.4, 0.1]], [[0.1, 0.4, 0.5]]))
    torch.testing.assert_close(value.consensus, torch.tensor([[0.3, 0.4, 0.3]]))
    assert value.labels.tolist() == [1]
    assert value.mass.tolist() == pytest.approx([1.0])
    torch.testing.assert_close(value.diversity, value.consensus)


def test_the_stream_agrees_with_the_stack() -> None:
    """To half precision, in which the table is kept."""
    draw = torch.Generator().manual_seed(0)
    nets = [torch.nn.Linear(5, 4) for _ in range(3)]
    for net in nets:
        torch.nn.init.normal_(net.weight, generator=draw)
    x = torch.randn(40, 5, generator=draw)
    labelling = Labelling(VarianceWeighted(), TensorPool(x), torch.arange(40))
    for number, net in enumerate(nets):
        labelling.add(labelling.logits(net, str(number)), str(number))
    labels = labelling.value()
    with torch.no_grad():
        stacked = VarianceWeighted()(torch.stack([net(x) for net in nets]))
    torch.testing.assert_close(labels.probs, stacked.consensus, atol=2e-3, rtol=0)
    assert labels.diversity is not None
    torch.testing.assert_close(labels.diversity.mass, stacked.mass, atol=2e-3, rtol=0)


def soft(value: object) -> SoftLabels:
    consensus, _, diversity, mass = value  # type: ignore[misc]
    rows = torch.arange(len(consensus))
    return SoftLabels(rows, consensus, torch.zeros(len(consensus)), diversity=Diversity(diversity, mass))


def loss(labels: SoftLabels, student: torch.Tensor) -> torch.Tensor:
    """As a distiller has it: the cross entropy above the floor."""
    return F.cross_entropy(student, labels.probs) - labels.floor.mean()


@pytest.mark.parametrize("lam", [0.0, 0.05, 0.5])
def test_the_loss_is_equation_10(lam: float) -> None:
    value = VarianceWeighted()(logits([[0.9, 0.1], [0.2, 0.8]], [[0.4, 0.6], [0.3, 0.7]]))
    student = torch.tensor([[0.3, -0.2], [0.1, 0.4]], requires_grad=True)
    own = torch.log_softmax(student, 1)
    # Row 0: class 0, and the second teacher (0.4, 0.6) disagrees with the weight 1/17. Row 1: class 1, all agree.
    kl = 0.4 * (math.log(0.4) - own[0, 0]) + 0.6 * (math.log(0.6) - own[0, 1])
    expected = (-own[0, 0] - own[1, 1] + lam / 17 * kl) / 2
    got = loss(ConsensusWithDiversity(lam)(soft(value)), student)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, student)[0] for each in (got, expected)))


def test_its_gradient_is_that_of_the_papers_unnormalised_divergence() -> None:
    value = VarianceWeighted()(logits([[0.9, 0.1]], [[0.4, 0.6]]))
    student = torch.tensor([[0.3, -0.2]], requires_grad=True)
    literal = F.kl_div(torch.log_softmax(student, 1), value.mass[:, None] * value.diversity, reduction="sum")
    ours = loss(ConsensusWithDiversity(1.0)(soft(value)), student) - F.cross_entropy(student, value.labels)
    torch.testing.assert_close(*(torch.autograd.grad(each, student)[0] for each in (ours, literal)))


def test_plain_weight_counts_every_disputed_input_in_full() -> None:
    value = VarianceWeighted()(logits([[0.9, 0.1], [0.2, 0.8]], [[0.4, 0.6], [0.3, 0.7]]))
    labels = ConsensusWithDiversity(0.5, "plain")(soft(value))
    torch.testing.assert_close(labels.probs, torch.tensor([[1 + 0.5 * 0.4, 0.5 * 0.6], [0.0, 1.0]]))


def test_it_needs_a_target_that_knows_who_disagrees() -> None:
    labels = SoftLabels(torch.arange(1), torch.ones(1, 2) / 2, torch.zeros(1))
    with pytest.raises(FedfuseError, match="VarianceWeighted"):
        ConsensusWithDiversity()(labels)
    with pytest.raises(FedfuseError, match="lam must not be negative"):
        ConsensusWithDiversity(-0.1)

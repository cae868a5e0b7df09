"""Distillers: their arithmetic by hand, what they keep, and what they refuse before they begin."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse import rng
from fedfuse.fusion import SGD, SWA, AdamCosine, SoftLabels
from fedfuse.fusion.distillers import Distiller
from fedfuse.fusion.table import TensorPool
from fedfuse.fusion.target import entropy
from fedfuse.types import FedfuseError
from tests.fusion.cases import Constant, context, mlp

X = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
POOL = TensorPool(X)


def labels(teacher: nn.Module | None = None, temperature: float = 1.0, rows: int = 64) -> SoftLabels:
    with torch.no_grad():
        probs = torch.softmax((teacher or mlp(5)).eval()(X[:rows]), 1)
    return SoftLabels(torch.arange(rows), probs, entropy(probs), temperature)


def draw(what: str) -> torch.Generator:
    return rng.generator(0, what)


def flat(net: nn.Module) -> Tensor:
    return torch.cat([t.detach().flatten().double() for t in net.state_dict().values()])


@pytest.mark.parametrize(
    "distiller",
    [AdamCosine(lr=0.05, steps=150, batch_size=32), SGD(lr=0.5, epochs=75, batch_size=32),
     SWA(lr=0.5, lr_low=0.2, cycle=5, swa_start=50, epochs=75, batch_size=32)],
    ids=lambda d: type(d).__name__,
)  # fmt: skip
def test_the_student_learns(distiller: Distiller) -> None:
    net, soft = mlp(1), labels()
    distillation = distiller(net, POOL, soft, None, draw)
    assert distillation.steps == len(distillation.losses) == 150
    assert distillation.losses[-1] < 0.1 * distillation.losses[0]
    kl = F.kl_div(torch.log_softmax(net.eval()(X), 1), soft.probs, reduction="batchmean")
    assert kl < 0.1 * distillation.losses[0]


def test_one_step_of_sgd_by_hand() -> None:
    # Logits (0, 0) against labels (3/4, 1/4): the gradient is softmax - label = (-1/4, 1/4).
    net = Constant(0.0, 0.0)
    probs = torch.tensor([[0.75, 0.25]]).expand(8, 2)
    distillation = SGD(lr=0.8, steps=1, batch_size=8)(
        net, TensorPool(torch.zeros(8, 1)), SoftLabels(torch.arange(8), probs, entropy(probs)), None, draw
    )
    torch.testing.assert_close(net.logits.detach(), torch.tensor([0.2, -0.2]))
    # KL = sum p log(p / 1/2) = log 2 - H(p)
    torch.testing.assert_close(distillation.losses, torch.tensor([math.log(2) - float(entropy(probs)[0])]))


def test_temperature_softens_the_student_and_scales_the_loss() -> None:
    # At temperature 2 the gradient is T^2 * (softmax - label) / T = 2 (-1/4, 1/4).
    net = Constant(0.0, 0.0)
    probs = torch.tensor([[0.75, 0.25]]).expand(8, 2)
    soft = SoftLabels(torch.arange(8), probs, entropy(probs), temperature=2.0)
    distillation = SGD(lr=0.8, steps=1, batch_size=8)(net, TensorPool(torch.zeros(8, 1)), soft, None, draw)
    torch.testing.assert_close(net.logits.detach(), torch.tensor([0.4, -0.4]))
    torch.testing.assert_close(distillation.losses, 4 * torch.tensor([math.log(2) - float(entropy(probs)[0])]))


def test_per_class_divides_by_the_classes() -> None:
    net = Constant(0.0, 0.0)
    probs = torch.tensor([[0.75, 0.25]]).expand(8, 2)
    soft = SoftLabels(torch.arange(8), probs, entropy(probs))
    SGD(lr=0.8, steps=1, batch_size=8, per_class=True)(net, TensorPool(torch.zeros(8, 1)), soft, None, draw)
    torch.testing.assert_close(net.logits.detach(), torch.tensor([0.1, -0.1]))


def test_the_first_step_of_adam_is_the_rate_and_the_last_is_near_zero() -> None:
    net = Constant(0.0, 0.0)
    probs = torch.tensor([[0.75, 0.25]]).expand(8, 2)
    soft = SoftLabels(torch.arange(8), probs, entropy(probs))
    AdamCosine(lr=0.01, steps=1, batch_size=8)(net, TensorPool(torch.zeros(8, 1)), soft, None, draw)
    torch.testing.assert_close(net.logits.detach(), torch.tensor([0.01, -0.01]), rtol=1e-4, atol=0)


def oracle(net: nn.Module, steps: int, lr: float, soft: SoftLabels) -> None:
    """Bare PyTorch, with its own scheduler."""
    net.train()
    optimizer = torch.optim.Adam(net.parameters(), lr=lr, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    order, taken = draw("order"), 0
    while taken < steps:
        for index in torch.randperm(64, generator=order).split(16):
            if taken == steps:
                break
            optimizer.zero_grad()
            F.cross_entropy(net(X[index]), soft.probs[index]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            taken += 1


def test_adam_cosine_is_a_bare_loop() -> None:
    ours, theirs, soft = mlp(1), mlp(1), labels()
    AdamCosine(lr=0.05, steps=30, batch_size=16)(ours, POOL, soft, None, draw)
    oracle(theirs, 30, 0.05, soft)
    torch.testing.assert_close(flat(ours), flat(theirs))


def test_fused_optimizers_respect_channels_last() -> None:
    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Flatten(), nn.Linear(4 * 16, 3))

    images = torch.randn(16, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    probs = torch.softmax(torch.randn(16, 3, generator=torch.Generator().manual_seed(1)), 1)
    soft = SoftLabels(torch.arange(16), probs, entropy(probs))
    plain, last = net(), net().to(memory_format=torch.channels_last)
    for student, x in ((plain, images), (last, images.to(memory_format=torch.channels_last))):
        AdamCosine(lr=0.01, steps=10, batch_size=8)(student, TensorPool(x), soft, None, draw)
    torch.testing.assert_close(flat(plain), flat(last), atol=1e-4, rtol=1e-4)


class Script:
    """Validation accuracies as written; remembers the students it saw."""

    def __init__(self, *accuracies: float) -> None:
        self.accuracies = list(accuracies)
        self.seen: list[Tensor] = []

    def __call__(self, net: nn.Module) -> float:
        self.seen.append(flat(net).clone())
        return self.accuracies[len(self.seen) - 1]


def test_early_stopping_restores_the_best() -> None:
    net, script = mlp(1, norm=True), Script(0.05, 0.1, 0.5, 0.3, 0.5, 0.2, 0.9)
    distillation = AdamCosine(lr=0.05, steps=100, batch_size=16, patience=30, every=10)(
        net, POOL, labels(), script, draw
    )
    assert distillation.validation == ((0, 0.05), (10, 0.1), (20, 0.5), (30, 0.3), (40, 0.5), (50, 0.2))
    assert (distillation.steps, distillation.reason) == (50, "no better on validation for 30 steps")
    assert torch.equal(flat(net), script.seen[2])  # of equals the first, with its batch-norm statistics


def test_sgd_stops_and_restores_as_adam_does() -> None:
    net, script = mlp(1, norm=True), Script(0.05, 0.1, 0.5, 0.3, 0.5, 0.2, 0.9)
    stopping = SGD(lr=0.05, steps=100, batch_size=16, patience=30, every=10)
    distillation = stopping(net, POOL, labels(), script, draw)
    assert [step for step, _ in distillation.validation] == [0, 10, 20, 30, 40, 50]
    assert (distillation.steps, distillation.reason) == (50, "no better on validation for 30 steps")
    assert torch.equal(flat(net), script.seen[2])
    with pytest.raises(FedfuseError, match="give every"):
        SGD(patience=30)


def test_sgd_validates_only_its_last_step_by_default() -> None:
    distillation = SGD(lr=0.05, steps=20, batch_size=16)(mlp(1), POOL, labels(), Script(0.1, 0.2), draw)
    assert distillation.validation == ((0, 0.1), (20, 0.2))


def test_patience_counts_from_the_start() -> None:
    net, script = mlp(1, norm=True), Script(0.65, 0.5, 0.6, 0.4, 0.9)
    before = flat(net).clone()
    distillation = AdamCosine(lr=0.05, steps=100, batch_size=16, patience=30, every=10)(
        net, POOL, labels(), script, draw
    )
    assert distillation.steps == 30
    assert torch.equal(flat(net), before)
    assert "the start is kept: its validation accuracy is 0.6500, the student's 0.6000" in distillation.reason


def test_an_accuracy_of_zero_is_an_accuracy() -> None:
    net, script = mlp(1), Script(0.0, 0.0, 0.0, 0.0)
    distillation = AdamCosine(lr=0.05, steps=100, batch_size=16, patience=30, every=10, keep_start=False)(
        net, POOL, labels(), script, draw
    )
    assert distillation.steps == 40
    assert torch.equal(flat(net), script.seen[0])


def test_the_last_step_is_validated_too() -> None:
    net, script = mlp(1), Script(0.0, 0.1, 0.2, 0.3)
    distillation = AdamCosine(steps=25, batch_size=16, patience=100, every=10)(net, POOL, labels(), script, draw)
    assert [step for step, _ in distillation.validation] == [0, 10, 20, 25]
    assert distillation.reason == "all steps taken"
    assert torch.equal(flat(net), script.seen[3])


def test_without_validation_all_steps_are_taken() -> None:
    distillation = AdamCosine(steps=25, batch_size=16, patience=1, every=1)(mlp(1), POOL, labels(), None, draw)
    assert (distillation.steps, distillation.validation) == (25, ())


def test_swa_rates_fall_within_a_cycle() -> None:
    swa = SWA(lr=1e-3, lr_low=4e-4, cycle=25)
    assert swa.rate(25) == swa.rate(50) == pytest.approx(4e-4)
    assert swa.rate(1) == swa.rate(26) == pytest.approx(1e-3 - 6e-4 / 25)
    assert [step for step in range(1, 400) if swa.collects(step)] == [275, 300, 325, 350, 375]


def test_swa_averages_what_it_collects_and_recomputes_batch_norm() -> None:
    soft, swa = labels(), SWA(lr=0.1, lr_low=0.05, cycle=3, swa_start=4, epochs=3, batch_size=16)
    assert [step for step in range(1, swa.plan(64) + 1) if swa.collects(step)] == [6, 9, 12]
    collected = []
    for end in (6, 9, 12):  # the same walk, broken off there
        net = mlp(1, norm=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        order, taken = draw("order"), 0
        net.train()
        while taken < end:
            for index in torch.randperm(64, generator=order).split(16):
                if taken == end:
                    break
                optimizer.param_groups[0]["lr"] = swa.rate(taken + 1)
                optimizer.zero_grad()
                F.cross_entropy(net(X[index]), soft.probs[index]).backward()
                optimizer.step()
                taken += 1
        collected.append(dict(net.named_parameters()))
    student = mlp(1, norm=True)
    distillation = swa(student, POOL, soft, None, draw)
    assert distillation.reason == "all steps taken, 3 models averaged"
    for name, p in student.named_parameters():
        torch.testing.assert_close(p, torch.stack([c[name] for c in collected]).mean(0))
    hidden = student[0](X)
    batches = [hidden[i : i + 16] for i in range(0, 64, 16)]
    torch.testing.assert_close(student[1].running_mean, torch.stack([b.mean(0) for b in batches]).mean(0))
    torch.testing.assert_close(student[1].running_var, torch.stack([b.var(0) for b in batches]).mean(0))


def test_augmentation_is_seen_by_the_student_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, tuple[int, ...]]] = []

    def augmentation(name: str, shape: tuple[int, ...]):
        asked.append((name, shape))
        return lambda x, rng: x * 0

    monkeypatch.setattr("fedfuse.fusion.descent.augmentation", augmentation)
    seen: list[Tensor] = []
    net = mlp(1)
    net.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    SGD(steps=2, batch_size=16, augment="mirror")(net, POOL, labels(), None, draw)
    assert asked == [("mirror", (4,))]
    assert all(bool((x == 0).all()) for x in seen)


def test_dropout_draws_from_the_given_generator_and_leaves_the_global_one() -> None:
    def run() -> Tensor:
        net = nn.Sequential(mlp(1), nn.Dropout(0.5))
        SGD(steps=3, batch_size=16)(net, POOL, labels(), None, draw)
        return flat(net)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = run()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(run(), first)


def test_frozen_parameters_stay() -> None:
    net = mlp(1)
    net[0].requires_grad_(False)
    weight = net[0].weight.clone()
    AdamCosine(steps=3, batch_size=16)(net, POOL, labels(), None, draw)
    assert torch.equal(net[0].weight, weight)
    with pytest.raises(FedfuseError, match="no parameter to train"):
        AdamCosine(steps=3, batch_size=16)(mlp(1).requires_grad_(False), POOL, labels(), None, draw)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AdamCosine(batch_size=65).plan(64), "64 examples, less than one batch of 65"),
        (lambda: SGD(batch_size=65).plan(64), "less than one batch"),
        (lambda: SWA(batch_size=65).plan(64), "less than one batch"),
        (lambda: SWA().plan(1700), "first model at step 275, but 20 epochs over a pool of 1700"),
        (lambda: AdamCosine(lr=0), "lr=0"),
        (lambda: AdamCosine(clip=-1), "clip=-1"),
        (lambda: SWA(swa_start=-1), "swa_start=-1"),
        (lambda: SGD(epochs=0), "epochs=0"),
    ],
)
def test_what_cannot_work_is_refused_before_training(make, words) -> None:
    with pytest.raises(FedfuseError, match=words):
        make()
    assert SWA().plan(128 * 14) == 280


def test_a_loss_that_is_not_finite_names_its_step() -> None:
    net = mlp(1)
    with pytest.raises(FedfuseError, match=r"step \d+ is not finite"):
        SGD(lr=1e30, steps=200, batch_size=16)(net, POOL, labels(), None, draw)


def test_only_the_given_rows_are_touched() -> None:
    touched: set[int] = set()

    class Watched:
        def __len__(self) -> int:
            return 64

        def batch(self, index: Tensor) -> Tensor:
            touched.update(index.tolist())
            return X[index]

    soft = labels()
    some = SoftLabels(torch.tensor([3, 9, 40, 41]), soft.probs[[3, 9, 40, 41]], soft.floor[[3, 9, 40, 41]])
    AdamCosine(steps=5, batch_size=2)(mlp(1), Watched(), some, None, draw)
    assert touched == {3, 9, 40, 41}


SHORT = [
    AdamCosine(lr=0.05, steps=6, batch_size=32, every=2),
    SGD(lr=0.5, epochs=3, batch_size=32),
    SWA(lr=0.5, cycle=2, swa_start=0, epochs=3, batch_size=32),
]


class Accuracies:
    """Says these accuracies, one after the other."""

    def __init__(self, *values: float) -> None:
        self._values = iter(values)

    def __call__(self, net: nn.Module) -> float:
        return next(self._values)


@pytest.mark.parametrize("distiller", SHORT, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("start", [0.7, 0.61])
def test_a_start_that_no_student_beats_on_validation_is_returned(distiller: Distiller, start: float) -> None:
    net = mlp(1, norm=True)
    before = flat(net)
    result = distiller(net, POOL, labels(), Accuracies(start, 0.6, 0.5, 0.55), draw)
    assert torch.equal(flat(net), before)
    assert result.steps == 6
    kept = f"; the start is kept: its validation accuracy is {start:.4f}, the student's 0.6000"
    assert result.reason.endswith(kept)


@pytest.mark.parametrize("distiller", SHORT, ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("start", [0.4, 0.5])
def test_a_start_that_is_not_better_changes_nothing(distiller: Distiller, start: float) -> None:
    plain, kept = mlp(1, norm=True), mlp(1, norm=True)
    never = replace(distiller, keep_start=False)  # type: ignore[type-var]
    one = never(plain, POOL, labels(), Accuracies(0.5, 0.5, 0.5), draw)
    other = distiller(kept, POOL, labels(), Accuracies(start, 0.5, 0.5, 0.5), draw)
    assert torch.equal(flat(plain), flat(kept))
    assert torch.equal(one.losses, other.losses)
    assert one.reason == other.reason


@pytest.mark.parametrize("distiller", SHORT, ids=lambda d: type(d).__name__)
def test_a_start_is_not_returned_if_it_is_no_candidate(distiller: Distiller) -> None:
    net, never = mlp(1, norm=True), replace(distiller, keep_start=False)  # type: ignore[type-var]
    before = flat(net)
    result = never(net, POOL, labels(), Accuracies(0.6, 0.5, 0.55), draw)
    assert not torch.equal(flat(net), before)
    assert 0 not in dict(result.validation)


@pytest.mark.parametrize("distiller", SHORT, ids=lambda d: type(d).__name__)
def test_keeping_the_start_needs_validation_data(distiller: Distiller) -> None:
    keeping = replace(distiller, keep_start=True)  # type: ignore[type-var]
    with pytest.raises(FedfuseError, match=r"set data\.validation, or leave keep_start out"):
        keeping(mlp(1), POOL, labels(), None, draw)
    with pytest.raises(FedfuseError, match=r"set data\.validation"):
        keeping.check(context(validation=0))
    keeping.check(context())
    distiller.check(context(validation=0))  # type: ignore[attr-defined]  # the default needs none

"""What a client does in a round: its batches, its epochs, its rate, and one step of it by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfuse.context import Context, Nets
from fedfuse.data.examples import Examples
from fedfuse.data.federation import Federation
from fedfuse.local import CrossEntropy, Proximal, Training
from fedfuse.local.training import batches, cuts, drawn_epochs, number_of_steps
from fedfuse.local_settings import LocalSettings
from fedfuse.types import FedfuseError, Task
from tests.doubles import DROPPING, LINEAR, NORMED, context, initial


def two_points(**local: object) -> Context:
    """x = (1, 0) of class 0 and x = (0, 1) of class 1, one client, a linear net of zeros."""
    data = Examples(torch.eye(2), torch.tensor([0, 1]), 2, torch.zeros(2), torch.ones(2))
    whole = Federation(data, (torch.arange(2),), data, data, None, ("a", "b"))
    settings = LocalSettings(**{"epochs": 1, "lr": 0.5, **local})  # type: ignore[arg-type]
    return Context(0, 1, settings, whole, (LINEAR,), Nets(2, (2,)), round=1)


def weights_after(ctx: Context, training: Training) -> list[list[float]]:
    model = initial(ctx).models[LINEAR]
    answer = training(Task(0, 1, model), {}, ctx)
    assert answer.model is not None
    return answer.model.params["weight"].tolist()


def test_one_step_of_sgd_is_the_one_by_hand() -> None:
    # At zero weights both classes have probability 1/2. The gradient of the mean cross entropy with respect to
    # W is the mean of (p - onehot(y)) x^T: [[-1/4, 1/4], [1/4, -1/4]]. With rate 0.5, W = [[1/8, -1/8], [-1/8, 1/8]].
    assert weights_after(two_points(), Training()) == [[0.125, -0.125], [-0.125, 0.125]]


def test_weight_decay_and_momentum_are_those_of_sgd() -> None:
    # Two steps (two epochs of one batch) with momentum 1/2. The second gradient at W_1: logits of x_1 are
    # (1/8, -1/8), so p = sigmoid(1/4) of being right, and the gradient is half of (p - 1) in the same pattern.
    right = torch.sigmoid(torch.tensor(0.25)).item()
    first, second = -0.25, (right - 1) / 2
    expected = -0.5 * first - 0.5 * (second + 0.5 * first)
    after = weights_after(two_points(epochs=2, momentum=0.5), Training())
    assert after[0] == pytest.approx([expected, -expected])


def test_the_proximal_term_pulls_the_second_step_back() -> None:
    # As above without momentum; the term adds mu (W - 0) = mu / 8 to the second gradient.
    right = torch.sigmoid(torch.tensor(0.25)).item()
    expected = 0.125 - 0.5 * ((right - 1) / 2 + 0.8 * 0.125)
    after = weights_after(two_points(epochs=2), Training((CrossEntropy(), Proximal(0.8))))
    assert after[0] == pytest.approx([expected, -expected])


def test_the_gradient_is_clipped_to_its_norm() -> None:
    # The gradient of W has four entries of 1/4, that of b is 0: norm 1/2. Clipped to 1/4 the step halves.
    assert weights_after(two_points(clip=0.25), Training())[0] == pytest.approx([0.0625, -0.0625], rel=1e-4)


def test_adam_steps_by_its_rate_whatever_the_gradient() -> None:
    # After one step of Adam, m / sqrt(v) = +-1 after bias correction.
    assert weights_after(two_points(optimizer="adam"), Training())[0] == pytest.approx([0.5, -0.5], rel=1e-5)


def test_the_answer_carries_examples_steps_and_mean_loss() -> None:
    ctx = two_points()
    answer = Training()(Task(0, 1, initial(ctx).models[LINEAR]), {}, ctx)
    assert answer.num_examples == 2
    assert answer.metrics == {"loss": pytest.approx(torch.log(torch.tensor(2.0)).item()), "steps": 1}


def test_a_task_without_a_model_is_an_error_that_names_the_client() -> None:
    with pytest.raises(FedfuseError, match="client 0 was sent no model"):
        Training()(Task(0, 1, None), {}, two_points())


def test_dropout_is_drawn_anew_for_each_round_and_client_and_the_same_again() -> None:
    # All rows are the same row, so the order of a client's batches makes no difference: only the layer draws.
    ctx = context((DROPPING,) * 2, epochs=None, steps=3)
    same = replace(ctx.data.train, x=ctx.data.train.x[:1].expand(120, -1), y=torch.zeros(120, dtype=torch.long))
    ctx = replace(ctx, data=replace(ctx.data, train=same, parts=(torch.arange(20),) * 2))
    model = initial(ctx).models[DROPPING]

    def trained(client: int, round: int) -> list[float]:
        answer = Training()(Task(client, round, model), {}, ctx.at(round)).model
        assert answer is not None
        return answer.params["0.weight"].flatten().tolist()

    assert trained(0, 1) == trained(0, 1)
    assert trained(0, 1) != trained(0, 2)
    assert trained(0, 1) != trained(1, 1)


@pytest.mark.parametrize(
    ("examples", "batch_size", "sizes"),
    [
        (6, 2, [2, 2, 2]),
        (7, 3, [3, 4]),  # a last batch of one joins: batch norm needs two
        (8, 3, [3, 3, 2]),
        (5, 64, [5]),
        (1, 64, [1]),  # there is no batch for it to join
        (2, 2, [2]),
        (3, 1, [1, 1, 1]),  # who asks for batches of one gets them
    ],
)
def test_an_epoch_is_cut_as_on_paper(examples: int, batch_size: int, sizes: list[int]) -> None:
    assert [stop - start for start, stop in cuts(examples, batch_size)] == sizes


@given(st.integers(1, 300), st.integers(2, 50))
def test_cuts_cover_each_example_once_and_leave_no_batch_of_one(examples: int, batch_size: int) -> None:
    made = cuts(examples, batch_size)
    assert [i for start, stop in made for i in range(start, stop)] == list(range(examples))
    assert all(1 < stop - start <= batch_size + 1 for start, stop in made) or examples == 1


def test_batch_norm_trains_with_a_remainder_of_one() -> None:
    ctx = context((NORMED,) * 4, batch_size=5)
    ctx = replace(ctx, data=replace(ctx.data, parts=(torch.arange(6),) * 4))
    assert Training()(Task(0, 1, initial(ctx).models[NORMED]), {}, ctx).metrics["steps"] == 1


@pytest.mark.parametrize(("epochs", "steps", "taken"), [(3, None, 9), (None, 7, 7), (None, 2, 2)])
def test_work_is_measured_in_epochs_or_in_steps(epochs: int | None, steps: int | None, taken: int) -> None:
    settings = LocalSettings(epochs=epochs, steps=steps, batch_size=4)
    made = list(batches(torch.arange(10, 22), settings, epochs, torch.Generator().manual_seed(0)))
    assert [len(rows) for rows in made] == [4] * taken
    # An epoch has every row once, each epoch in a new order.
    for start in range(0, taken - 2, 3):
        assert sorted(torch.cat(made[start : start + 3]).tolist()) == list(range(10, 22))
    if taken >= 6:
        assert torch.cat(made[:3]).tolist() != torch.cat(made[3:6]).tolist()


def test_stragglers_draw_their_epochs_uniformly_from_one_to_all() -> None:
    ctx = context(epochs=4, stragglers=True)
    drawn = Counter(drawn_epochs(client, ctx.at(round)) for round in range(1, 101) for client in range(20))
    assert set(drawn) == {1, 2, 3, 4}
    # 2,000 draws: 500 of each expected, with a deviation of 19.4. Four deviations either way.
    assert all(abs(count - 500) < 78 for count in drawn.values())


def test_a_straggler_draws_anew_each_round_and_the_same_when_asked_again() -> None:
    ctx = context(epochs=50, stragglers=True)
    over_rounds = [drawn_epochs(0, ctx.at(round)) for round in range(1, 9)]
    assert len(set(over_rounds)) > 1
    assert over_rounds == [drawn_epochs(0, ctx.at(round)) for round in range(1, 9)]
    assert over_rounds != [drawn_epochs(1, ctx.at(round)) for round in range(1, 9)]


def test_without_stragglers_all_do_all_epochs() -> None:
    assert drawn_epochs(3, context(epochs=4)) == 4
    assert drawn_epochs(3, context(epochs=None, steps=9)) is None


def test_the_rate_falls_after_each_milestone() -> None:
    # 10 rounds, milestones at 0.3 and 0.6: rounds 1-3 at 0.8, 4-6 at 0.08, 7-10 at 0.008.
    local = LocalSettings(epochs=1, lr=0.8, milestones=(0.3, 0.6), gamma=0.1)
    rates = [local.rate(round, 10) for round in range(1, 11)]
    assert rates == pytest.approx([0.8] * 3 + [0.08] * 3 + [0.008] * 4)


@pytest.mark.parametrize("milestone", [0.29, 0.57, 0.58])
def test_a_milestone_is_not_moved_by_how_floats_are_written(milestone: float) -> None:
    # 0.29 x 100 is 28.999999999999996: round 29 would fall a round early.
    local = LocalSettings(epochs=1, lr=1.0, milestones=(milestone,), gamma=0.5)
    last = round(100 * milestone)
    assert (local.rate(last, 100), local.rate(last + 1, 100)) == (1.0, 0.5)


def test_the_rate_of_the_round_is_the_one_trained_with() -> None:
    # The step by hand is half of lr; after the milestone the rate is a tenth.
    ctx = replace(two_points(milestones=(0.5,)), rounds=2)
    assert weights_after(ctx, Training())[0][0] == 0.125
    model = initial(ctx).models[LINEAR]
    second = Training()(Task(0, 2, model), {}, ctx.at(2)).model
    assert second is not None
    assert second.params["weight"][0, 0].item() == pytest.approx(0.0125)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "either epochs or steps"),
        ({"epochs": 1, "steps": 1}, "either epochs or steps"),
        ({"steps": 1, "stragglers": True}, "stragglers draw their epochs"),
        ({"epochs": 1, "milestones": (1.5,)}, "between 0 and 1"),
        ({"epochs": 1, "momentum": 1.0}, "less than 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        LocalSettings(**settings)  # type: ignore[arg-type]


def factors(steps: int, **settings: object) -> list[float]:
    local = LocalSettings(**{"epochs": 1, **settings})  # type: ignore[arg-type]
    return [local.factor(step, steps) for step in range(steps)]


def test_the_rate_of_every_step_of_a_round() -> None:
    assert factors(4) == [1, 1, 1, 1]
    assert factors(4, schedule="linear") == [1, 0.75, 0.5, 0.25]
    assert factors(4, schedule="cosine") == pytest.approx([1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2])
    assert factors(4, schedule="exponential", decay=0.5) == [1, 0.5, 0.25, 0.125]
    assert factors(4, warmup=0.5) == [0.5, 1, 1, 1]
    assert factors(6, warmup=1 / 3, schedule="linear") == [0.5, 1, 1, 0.75, 0.5, 0.25]
    assert factors(4, warmup=0.5, schedule="exponential", decay=0.5) == [0.5, 1, 1, 0.5]
    assert factors(2, warmup=1) == [0.5, 1]
    assert factors(1, warmup=0.2, schedule="linear") == [1]  # the only step of a client with little data
    assert factors(100, warmup=0.07)[5:8] == pytest.approx([6 / 7, 1, 1])


def test_a_schedule_scales_each_step_of_training() -> None:
    # As with momentum above: the first step at the full rate, the second, of two, at half of it.
    right = torch.sigmoid(torch.tensor(0.25)).item()
    expected = 0.125 - 0.25 * (right - 1) / 2
    after = weights_after(two_points(epochs=2, schedule="linear"), Training())
    assert after[0] == pytest.approx([expected, -expected])
    # A step of Adam is about its rate: here half of it, then all.
    warm = two_points(steps=2, epochs=None, optimizer="adam", warmup=1)
    assert weights_after(warm, Training())[0][0] == pytest.approx(0.25 + 0.5, rel=0.1)


def test_stragglers_decay_over_their_own_steps() -> None:
    ctx = context(epochs=4, stragglers=True, schedule="linear", batch_size=8)
    for client, part in enumerate(ctx.data.parts):
        epochs = drawn_epochs(client, ctx)
        assert epochs is not None
        answer = Training()(Task(client, 1, initial(ctx).models["mlp:8"]), {}, ctx)
        steps = number_of_steps(len(part), ctx.local, epochs)
        assert answer.metrics["steps"] == steps == epochs * len(cuts(len(part), 8))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"schedule": "exponential"}, "and decay, such as 0.99, need each other"),
        ({"decay": 0.9}, "need each other"),
        ({"schedule": "linear", "decay": 0.9}, "need each other"),
        ({"schedule": "cosine", "warmup": 1}, "leaves no step"),
        ({"epochs": None, "steps": 1, "warmup": 0.5}, "one step has one learning rate"),
        ({"epochs": None, "steps": 1, "schedule": "linear"}, "one step has one learning rate"),
        ({"warmup": 1.5}, "less than or equal to 1"),
        ({"schedule": "step"}, "linear"),
    ],
)
def test_schedules_that_would_be_ignored_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LocalSettings(**{"epochs": 1, **settings})  # type: ignore[arg-type]


def test_the_papers_local_optimizers_can_be_stated() -> None:
    LocalSettings(epochs=10, optimizer="adam", lr=1e-5)  # FedDF's DistilBERT on AG News
    LocalSettings(steps=15, batch_size=5, lr=3e-4)  # Fed-ET's Tiny-BERT on Sent140
    LocalSettings(epochs=20, batch_size=40, lr=0.01, schedule="exponential", decay=0.99)  # FedBE's Figure 5

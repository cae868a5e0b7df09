"""`fuse`: any models into one, and nothing of what was given is changed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from fedfuse import fuse
from fedfuse.fusion import SGD, AdamCosine, MeanProbs
from fedfuse.types import FedfuseError
from tests.fusion.cases import CLASSES, Constant, blobs, mlp

POOL = blobs(256, 4).x
QUICK = AdamCosine(lr=0.02, steps=60, batch_size=32, every=20)


def expert(seed: int, width: int) -> nn.Module:
    """Trained on two of the three classes."""
    data = blobs(150, seed)
    rows = data.y != seed % CLASSES
    net = mlp(seed, width=width)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(data.x[rows]), data.y[rows]).backward()
        optimizer.step()
    return net


@pytest.fixture(scope="module")
def teachers() -> list[nn.Module]:
    return [expert(0, 8), expert(1, 12), expert(2, 16)]


def accuracy(net: nn.Module) -> float:
    test = blobs(300, 9)
    return float((net(test.x).argmax(1) == test.y).float().mean())


def state(net: nn.Module) -> list[Tensor]:
    return [t.clone() for t in net.state_dict().values()]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_three_architectures_become_one_better_model(teachers: list[nn.Module]) -> None:
    fused = fuse(teachers, mlp(7), POOL, distiller=AdamCosine(lr=0.02, steps=300, batch_size=32))
    assert fused.steps == len(fused.losses) == 300
    assert accuracy(fused.model) > max(accuracy(t) for t in teachers) + 0.05


def test_nothing_that_was_given_is_changed(teachers: list[nn.Module]) -> None:
    student = mlp(7, norm=True)
    student[1].eval()
    modes = [m.training for m in student.modules()]
    teachers[0].eval()
    before = [state(t) for t in [*teachers, student]]
    pool, generator = POOL.clone(), torch.get_rng_state()
    student(POOL).sum().backward()  # gradients that the caller has
    gradient = student[0].weight.grad.clone()
    before[-1] = state(student)
    fused = fuse(teachers, student, pool, distiller=QUICK)
    assert all(equal(state(net), b) for net, b in zip([*teachers, student], before, strict=True))
    assert torch.equal(student[0].weight.grad, gradient)
    assert torch.equal(pool, POOL)
    assert torch.equal(torch.get_rng_state(), generator)
    assert [m.training for m in student.modules()] == [m.training for m in fused.model.modules()] == modes
    assert [t.training for t in teachers] == [False, True, True]
    assert all(p.grad is None for p in fused.model.parameters())
    assert not equal(state(fused.model), state(student))


def test_pools_of_all_kinds_are_the_same(teachers: list[nn.Module]) -> None:
    y = torch.zeros(len(POOL))
    pools = [
        POOL,
        TensorDataset(POOL),
        TensorDataset(POOL, y),
        POOL.split(50),
        DataLoader(TensorDataset(POOL, y), batch_size=60),
        (batch for batch in POOL.split(7)),
    ]
    results = [state(fuse(teachers, mlp(7), pool, distiller=QUICK).model) for pool in pools]
    assert all(equal(results[0], other) for other in results[1:])


def test_the_same_seed_gives_the_same_model(teachers: list[nn.Module]) -> None:
    first, again, other = (state(fuse(teachers, mlp(7), POOL, distiller=QUICK, seed=s).model) for s in (1, 1, 2))
    assert equal(first, again)
    assert not equal(first, other)


def test_a_lazy_stream_of_teachers_has_one_in_memory_at_a_time() -> None:
    made: list[weakref.ref[nn.Module]] = []
    most = 0

    def stream() -> Iterator[nn.Module]:
        nonlocal most
        for seed in range(6):
            gc.collect()
            most = max(most, sum(ref() is not None for ref in made))
            net = mlp(seed)
            made.append(weakref.ref(net))
            yield net
            del net

    fuse(stream(), mlp(7), POOL, distiller=QUICK)
    assert len(made) == 6
    assert most <= 1  # the one before, which the loop still holds


def test_each_teacher_runs_once_over_the_reachable_rows() -> None:
    rows: list[int] = []
    teacher = mlp(1)
    teacher.register_forward_hook(lambda module, args, out: rows.append(len(args[0])))
    fuse([teacher], mlp(2), POOL, distiller=SGD(steps=3, batch_size=32))
    assert sum(rows) == 96


def test_weights_choose_among_teachers() -> None:
    strong, weak = Constant(2.0, 0.0), Constant(0.0, 2.0)
    pool, student = torch.zeros(32, 1), Constant(0.0, 0.0)
    quick = SGD(lr=0.5, epochs=200, batch_size=32)
    alone = fuse([strong, weak], student, pool, weights=[1, 0], target=MeanProbs(), distiller=quick).model
    torch.testing.assert_close(torch.softmax(alone.logits, 0), torch.softmax(strong.logits, 0), atol=1e-3, rtol=0)
    both = fuse([strong, weak], student, pool, distiller=quick).model
    torch.testing.assert_close(torch.softmax(both.logits, 0), torch.tensor([0.5, 0.5]))


def test_validation_stops_and_is_reported(teachers: list[nn.Module]) -> None:
    check = blobs(50, 11)
    fused = fuse(
        teachers, mlp(7), POOL, validation=(check.x, check.y),
        distiller=AdamCosine(lr=0.02, steps=400, batch_size=32, every=20, patience=60),
    )  # fmt: skip
    best = max(accuracy for _, accuracy in fused.validation)
    assert float((fused.model(check.x).argmax(1) == check.y).double().mean()) == pytest.approx(best)


def test_within_no_grad_it_still_learns(teachers: list[nn.Module]) -> None:
    with torch.no_grad():
        fused = fuse(teachers, mlp(7), POOL, distiller=QUICK)
    assert fused.losses[-1] < fused.losses[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"teachers": []}, "no teacher"),
        ({"teachers": [mlp(0), mlp(1, classes=5)]}, "teacher 2 gives logits for 5 classes, the student for 3"),
        ({"teachers": [mlp(0), Constant(float("inf"), 0.0, 0.0)]}, "teacher 2 gives outputs that are not finite"),
        ({"weights": [1.0, -2.0]}, "weight -2"),
        ({"weights": [1.0]}, "1 weights"),
        ({"weights": [1.0, 1.0, 1.0]}, "3 weights were given for 2 teachers"),
        ({"weights": [0.0, 0.0]}, "above 0"),
        ({"student": mlp(0, classes=4)}, "teacher 1 gives logits for 3 classes, the student for 4"),
        ({"pool": POOL[:20]}, "20 examples, less than one batch of 32"),
        ({"pool": []}, "empty"),
        ({"pool": (POOL * 10).to(torch.uint8)}, "bytes"),
        ({"pool": POOL / 0}, "not finite"),
        ({"validation": (POOL, torch.zeros(3))}, r"256 inputs and \(3,\)"),
    ],
)
def test_errors_say_what_is_wrong(arguments, words) -> None:
    given = {"teachers": [mlp(0), mlp(1)], "student": mlp(2), "pool": POOL, "distiller": QUICK} | arguments
    with pytest.raises(FedfuseError, match=words):
        fuse(given.pop("teachers"), given.pop("student"), given.pop("pool"), **given)

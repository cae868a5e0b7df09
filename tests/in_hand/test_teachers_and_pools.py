"""What `fuse` takes: models and data as people have them, classes by name, and teachers that know only some."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from fedfuse import FedfuseError, fuse
from fedfuse.compute.batches import forward, rows_of, trim_padding
from fedfuse.fusion import SGD, SWA, AdamCosine, MeanLogits, MeanProbs, MedianLogits
from fedfuse.in_hand.classes import CompletedTarget, places
from fedfuse.in_hand.pools import as_pool
from fedfuse.in_hand.teachers import Teacher
from fedfuse.testing import bits
from fedfuse.types import Snapshot

QUICK = AdamCosine(steps=20, batch_size=32)
SLOW = AdamCosine(steps=300, batch_size=64, lr=0.02, every=50)
DRAW = torch.Generator().manual_seed(0)
Y = torch.arange(240) % 3
X = 2 * torch.eye(3, 4)[Y] + torch.randn(240, 4, generator=DRAW)


def mlp(seed: int, classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, classes))


def trained(seed: int = 0) -> nn.Module:
    net = mlp(seed)
    adam = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(60):
        adam.zero_grad()
        nn.functional.cross_entropy(net(X), Y).backward()
        adam.step()
    return net.eval()


def same(one: nn.Module, other: nn.Module) -> bool:
    return bits(Snapshot.of("net", one)) == bits(Snapshot.of("net", other))


# Pools.


class Rows(Dataset[Any]):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> Any:
        return self.items[i]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        yield from torch.split(X, 50)


def hf_dataset() -> Any:
    import datasets

    return datasets.Dataset.from_dict({"x": X.tolist(), "label": Y.tolist()}).with_format("torch")


class ByName(nn.Module):
    """A net that takes its input by name, as transformers' models do, and returns an object with logits."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Any:
        return {"logits": self.net(x)}


POOLS = {
    "array": lambda: X.numpy(),
    "dataset": lambda: TensorDataset(X, Y),
    "dataset of inputs": lambda: Rows(list(X)),
    "loader": lambda: DataLoader(TensorDataset(X, Y), batch_size=50),
    "stream": Stream,
    "list of batches": lambda: list(torch.split(X, 70)),
    "generator": lambda: iter(torch.split(X, 70)),
}
MAPPINGS = {
    "mapping": lambda: {"x": X},
    "mapping with labels": lambda: {"x": X.numpy(), "labels": Y},
    "dataset of mappings": lambda: Rows([{"x": x, "label": 0} for x in X]),
    "loader of mappings": lambda: DataLoader(Rows([{"x": x, "label": 0} for x in X]), batch_size=50),
    "hugging face dataset": hf_dataset,
}


@pytest.mark.parametrize("kind", POOLS)
def test_every_kind_of_pool_gives_the_same_bits(kind: str) -> None:
    teacher = trained()
    expected = fuse([teacher], mlp(1), X, distiller=QUICK).model
    assert same(fuse([teacher], mlp(1), POOLS[kind](), distiller=QUICK).model, expected)


@pytest.mark.parametrize("kind", MAPPINGS)
def test_so_does_every_kind_of_mapping(kind: str) -> None:
    teacher = ByName(trained())
    expected = fuse([teacher.net], mlp(1), X, distiller=QUICK).model
    fused = fuse([teacher], ByName(mlp(1)), MAPPINGS[kind](), distiller=QUICK).model
    assert same(fused.net, expected)  # type: ignore[arg-type]


def test_a_pool_past_the_bound_is_in_a_file_and_the_same() -> None:
    small, large = as_pool(iter(torch.split(X, 30))), as_pool(iter(torch.split(X, 30)), bound=1000)
    assert torch.equal(large.batch(torch.arange(240)), X)  # type: ignore[arg-type]
    assert torch.equal(small.batch(torch.arange(240)), X)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ("my data", "the pool is a str: give tensors, arrays"),
        (5, "the pool is a int: give tensors"),
        ([], "the pool is empty"),
        (torch.empty(0, 4), "the pool is empty"),
        ({"labels": Y}, "the pool has only labels: add the inputs"),
        ({"x": X, "mask": X[:3]}, "different lengths"),
        ({"text": ["a", "b"]}, "encode text with a tokenizer"),
        (Rows([{"text": "a"}] * 40), "encode text with a tokenizer"),
        (Rows([torch.zeros(n % 3 + 1) for n in range(40)]), "differ in shape"),
        (Rows([{"x": X[0]}, {"z": X[0]}] * 20), "differ in shape or keys"),
        (X.to(torch.uint8), "holds bytes"),
        ({"x": X / 0}, "the pool's x holds values that are not finite"),
        (np.array(["a"] * 50), "encode text"),
        ({"train": Rows([X[0]])}, "the pool has the parts train: choose one of them"),
        (torch.randn(60, 7), r"the student fails on the pool \(RuntimeError: .* give inputs of the shape"),
        (X.long(), "the student fails on the pool"),
    ],
)
def test_a_pool_that_cannot_be_used_is_one_sentence(pool: Any, message: str) -> None:
    with pytest.raises(FedfuseError, match=message) as refused:
        fuse([trained()], mlp(1), pool, distiller=QUICK)
    assert "\n" not in str(refused.value)


# Teachers.


def test_modules_estimators_and_functions_teach_together_or_alone() -> None:
    net, forest = trained(), LogisticRegression().fit(X.numpy(), Y.numpy())
    fused = fuse([net, forest, lambda x: net(x)], mlp(1), X, distiller=SLOW, validation=(X, Y))
    assert [q.name for q in fused.qualities()] == ["teacher 1", "teacher 2", "teacher 3", "ensemble", "student"]
    best = forest.score(X.numpy(), Y.numpy())
    assert all(q.accuracy is not None and q.accuracy > best - 0.05 for q in fused.qualities())
    for alone in (net, forest, net.forward):
        assert fuse(alone, mlp(1), X, distiller=QUICK).steps == 20


@pytest.mark.parametrize(
    ("teacher", "message"),
    [
        ("resnet", "teacher 1 is a str: give a torch.nn.Module"),
        (5, "teacher 1 is a int"),
        (LogisticRegression(), "is not fitted: call its fit first"),
        (RidgeClassifier().fit(X.numpy(), Y.numpy()), "has no predict_proba"),
        (lambda x: None, "teacher 1 returned a NoneType: a function returns logits"),
        (lambda x: 1 / 0, r"teacher 1 fails on the pool \(ZeroDivisionError: division by zero\): give"),
        (LogisticRegression().fit(X[:, :2].numpy(), Y.numpy()), "teacher 1 fails on the pool"),
    ],
)
def test_a_teacher_that_cannot_teach_is_one_sentence(teacher: Any, message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        fuse([teacher], mlp(1), X, distiller=QUICK)


@pytest.mark.parametrize(
    ("student", "said"),
    [
        ("resnet8", "the student is a str: give a torch.nn.Module"),
        (LogisticRegression(), "the student is a LogisticRegression"),
        (torch.nn.Linear(4, 3).bfloat16(), r"in half precision, .* call its float\(\) first"),
    ],
)
def test_a_student_that_cannot_learn_is_one_sentence(student: Any, said: str) -> None:
    with pytest.raises(FedfuseError, match=said):
        fuse([trained()], student, X, distiller=QUICK)


def test_doubles_and_half_precision_are_converted() -> None:
    """numpy's floats are double; a teacher in bfloat16 gets inputs in its own precision."""
    plain = fuse([trained()], mlp(1), X, distiller=QUICK)
    double = fuse([trained()], mlp(1), X.double().numpy(), distiller=QUICK)
    assert torch.equal(plain.losses, double.losses)
    low = fuse([trained().bfloat16()], mlp(1), X, distiller=QUICK, validation=(X.double(), Y))
    assert torch.allclose(low.losses, plain.losses, atol=0.05)
    assert fuse([trained().double()], mlp(1).double(), X, distiller=QUICK).losses.dtype == torch.float32


def test_validation_may_be_a_loader_or_a_stream_and_its_labels_are_checked() -> None:
    pairs = TensorDataset(X, Y)
    expected = fuse([trained()], mlp(1), X, distiller=QUICK, validation=(X, Y)).student
    for validation in (pairs, DataLoader(pairs, batch_size=7), Stream([{"x": x, "label": int(y)} for x, y in pairs])):
        assert fuse([trained()], mlp(1), X, distiller=QUICK, validation=validation).student == expected
    with pytest.raises(FedfuseError, match="validation has the label 7, and the student 3 classes: number them from 0"):
        fuse([trained()], mlp(1), X, distiller=QUICK, validation=(X, Y + 5))
    with pytest.raises(FedfuseError, match="validation has no labels"):
        fuse([trained()], mlp(1), X, distiller=QUICK, validation=DataLoader(X, batch_size=7))


class Stream(IterableDataset[Any]):
    """A dataset that gives its examples one after the other."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


def test_texts_of_any_length_are_padded_with_the_students_token() -> None:
    """Rows without padding, or batches that are padded each to its own longest, are the same pool."""
    lengths = [3, 1, 7, 2, 5, 9, 4, 4]
    rows = [{"input_ids": [5] * n, "attention_mask": [1] * n, "label": 0} for n in lengths]
    batches = [as_pool(Rows(rows[i : i + 2]), padding=8).x for i in range(0, 8, 2)]
    whole = [as_pool(pool, padding=8) for pool in (Rows(rows), Stream(rows), batches)]
    for pool in whole:
        x = pool.batch(torch.arange(8))
        assert isinstance(x, dict)
        assert x["attention_mask"].sum(1).tolist() == lengths
        assert x["input_ids"].shape == (8, 9)
        assert x["input_ids"][1].tolist() == [5] + 8 * [8]
    with pytest.raises(FedfuseError, match="or give texts an attention_mask"):
        as_pool([torch.ones(2, 3), torch.ones(2, 4)])


def tiny_bert(labels: dict[int, str] | None = None, seed: int = 0) -> Any:
    import transformers

    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, num_labels=3, **({"id2label": labels} if labels else {}),
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config).eval()


def sentences(rows: int = 96) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 13, (rows,), generator=draw)
    mask = (torch.arange(12) < lengths[:, None]).long()
    return {"input_ids": torch.randint(1, 50, (rows, 12), generator=draw) * mask, "attention_mask": mask}


def test_transformers_models_are_fused_on_mappings_with_names_matched() -> None:
    names = {0: "world", 1: "sports", 2: "science"}
    shuffled = {0: "science", 1: "world", 2: "sports"}
    one, two = tiny_bert(names), tiny_bert(names)
    two.config.id2label = shuffled
    with torch.no_grad():  # the same function with its outputs in another order
        order = [2, 0, 1]
        two.classifier.weight.copy_(one.classifier.weight[order])
        two.classifier.bias.copy_(one.classifier.bias[order])
    student = tiny_bert(names, seed=5)
    both = fuse([one, two], student, sentences(), distiller=QUICK)
    alone = fuse(one, student, sentences(), distiller=QUICK)
    assert both.labels == ("world", "sports", "science")
    assert [q.agreement for q in both.teachers] == [1.0, 1.0]
    for name, tensor in both.model.state_dict().items():
        assert torch.allclose(tensor, alone.model.state_dict()[name], atol=1e-4), name


def test_padding_is_cut_and_similar_lengths_are_run_together() -> None:
    data, seen = sentences(), list[int]()
    net = tiny_bert()
    hook = net.bert.embeddings.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    from fedfuse.predict import predict

    logits = predict(net, as_pool(data), torch.arange(96), batch_size=16, lanes=1)
    hook.remove()
    assert seen == sorted(seen)
    assert seen[0] < 12
    with torch.no_grad():
        assert torch.allclose(logits, net(**data).logits, atol=1e-5)


def test_trimming_without_a_mask_changes_nothing() -> None:
    assert trim_padding({"x": X})["x"] is X
    left = {"input_ids": torch.ones(2, 4), "attention_mask": torch.tensor([[0, 1, 1, 1], [0, 0, 1, 1]])}
    assert trim_padding(left)["input_ids"].shape == (2, 4)
    assert forward(nn.Identity(), rows_of(X, torch.arange(3))).shape == (3, 4)


# Classes.


def only(*known: int) -> LogisticRegression:
    rows = torch.isin(Y, torch.tensor(known))
    return LogisticRegression().fit(X[rows].numpy(), Y[rows].numpy())


def test_teachers_of_two_classes_each_teach_all_three() -> None:
    fused = fuse([only(0, 1), only(1, 2), only(0, 2)], mlp(1), X, distiller=SLOW, validation=(X, Y))
    assert fused.ensemble is not None
    assert fused.student is not None
    everything = only(0, 1, 2).score(X.numpy(), Y.numpy())
    assert all((q.accuracy or 1) <= 2 / 3 for q in fused.teachers)
    assert (fused.ensemble.accuracy or 0) > everything - 0.05
    assert (fused.student.accuracy or 0) > everything - 0.05
    # Nets with an output for each class, of which some were never trained.
    assert fuse([trained(0), trained(1)], mlp(1), X, knows=[[0, 1], [1, 2]], distiller=QUICK).steps == 20


def test_a_class_is_the_mean_of_those_who_know_it() -> None:
    """Two teachers, three classes: the first knows 0 and 1, the second all."""
    first, second = torch.tensor([[3.0, 1.0]]), torch.tensor([[0.0, 0.0, 3.0]])
    running = CompletedTarget(MeanLogits(), 1, 3)
    running.add(first, 1.0, torch.tensor([0, 1]))
    running.add(second, 1.0)
    # Centred: (1, -1, -) and (-1, -1, 2). Means over those who know: (0, -1, 2).
    assert torch.allclose(running.value().probs, torch.softmax(torch.tensor([[0.0, -1.0, 2.0]]), 1))


@pytest.mark.parametrize("target", [MeanLogits(), MeanProbs(), MedianLogits()], ids=lambda t: type(t).__name__)
def test_a_teacher_without_opinion_changes_no_mean(target: Any) -> None:
    """One that knows a single class says nothing about it: its logit has no origin."""
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(3))
    alone, joined = CompletedTarget(target, 5, 3), CompletedTarget(target, 5, 3)
    alone.add(logits, 1.0)
    joined.add(logits, 1.0)
    joined.add(torch.zeros(5, 3), 1.0, torch.tensor([0, -1, -1]))
    value = joined.value().probs
    assert torch.isfinite(value).all()
    assert value.shape == alone.value().probs.shape


def test_the_teachers_own_names_say_which_output_is_which() -> None:
    teacher, labels = Teacher("t", nn.Identity(), ("sports", "world", "science")), ("world", "sports", "science")
    for known, expected in (
        (None, [1, 0, 2]),
        (labels, [1, 0, 2]),
        (("sports", "science"), [1, -1, 2]),
        (np.array([1, 2]), [1, -1, 2]),
        ([0], [-1, 0, -1]),
    ):
        outputs = places(teacher, 3, 3, labels, known)
        assert outputs is not None
        assert outputs.tolist() == expected, known


def test_the_ensemble_is_judged_by_its_target() -> None:
    """Two right teachers and a wrong one of a large scale: the mean of logits is wrong, of probabilities right."""
    right = 4.0 * torch.eye(3)[Y]
    teachers = [
        lambda x: right[: len(x)],
        lambda x: right[: len(x)],
        lambda x: 50.0 * torch.eye(3)[(Y + 1) % 3][: len(x)],
    ]
    student = nn.Linear(4, 3)
    for target, share in ((MeanLogits(), 0.0), (MeanProbs(), 1.0)):
        whole = AdamCosine(steps=2, batch_size=240)
        fused = fuse(teachers, student, X, target=target, distiller=whole, validation=(X[:120], Y[:120]))
        assert fused.ensemble is not None
        assert fused.ensemble.accuracy == share


def test_text_beside_its_ids_is_left_out() -> None:
    pool = as_pool(Rows([{"input_ids": torch.arange(3), "text": "words", "label": 1}] * 5))
    assert torch.equal(pool.batch(torch.arange(5)), torch.arange(3).repeat(5, 1))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"knows": ["cat", None]}, "give a list of classes"),
        ({"knows": [{0, 1}, None]}, "give a list of classes"),
        ({"knows": [[True, 0], None]}, "has True, which is no class"),
        ({"labels": ["a", "b"]}, "3 logits for 2 labels"),
        ({"labels": ["a", "a", "b"]}, "a name twice"),
        ({"knows": [[0, 1]]}, "1 knows were given for more teachers"),
        ({"knows": [[0, 5], None]}, "has 5, which is no class of the student"),
        ({"knows": [[0, 0], None]}, "state each of its classes once"),
        ({"knows": [["cat"], None]}, "has 'cat', which is no class"),
        ({"knows": [[0, 1], [0, 1]]}, "no teacher knows class 2"),
    ],
)
def test_classes_that_do_not_fit_are_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        fuse([trained(0), trained(1)], mlp(2), X, distiller=QUICK, **settings)


def test_a_name_that_the_student_lacks_is_refused() -> None:
    with pytest.raises(FedfuseError, match="knows a class 'cat', and the student's are world"):
        fuse(
            tiny_bert({0: "world", 1: "sports", 2: "cat"}), tiny_bert({0: "world", 1: "sports", 2: "science"}),
            sentences(), distiller=QUICK,
        )  # fmt: skip


# What comes out.


def test_the_result_says_how_good_everyone_is(tmp_path: Path) -> None:
    teachers = [trained(0), trained(1)]
    before = copy.deepcopy(teachers)
    fused = fuse(teachers, mlp(2), X[:120], distiller=SLOW, validation=(X[120:], Y[120:]))
    assert [q.name for q in fused.qualities()][-3:] == ["average of weights", "ensemble", "student"]
    right = [(net(X[120:]).argmax(1) == Y[120:]).double().mean().item() for net in (*teachers, fused.model)]
    assert [fused.teachers[0].accuracy, fused.teachers[1].accuracy, fused.student.accuracy] == right  # type: ignore[union-attr]
    assert all(same(a, b) for a, b in zip(teachers, before, strict=True))
    page = fused.report(tmp_path / "page.html").read_text()
    assert "average of weights" in page
    assert f"{100 * right[2]:.2f} %" in page
    without = fuse(teachers, mlp(2), X, distiller=QUICK)
    assert without.average is None
    assert without.student is not None
    assert without.student.accuracy is None
    assert 0 < (without.student.agreement or 0) <= 1


def test_an_average_of_different_architectures_is_not_made() -> None:
    other = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    assert fuse([trained(0), other], mlp(2), X, distiller=QUICK, validation=(X, Y)).average is None


def test_progress_is_shown_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    fuse([trained()], mlp(1), X, distiller=QUICK, progress=False)
    assert capsys.readouterr().err == ""
    fuse([trained()], mlp(1), X, distiller=QUICK, progress=True)
    assert "distilling" in capsys.readouterr().err


# Devices.


def test_a_device_that_there_is_not_is_one_sentence() -> None:
    for name in ("cuda:7", "nonsense"):
        with pytest.raises(FedfuseError, match=f"device '{name}' cannot be used .* choose one of auto, cpu"):
            fuse([trained()], mlp(1), X, distiller=QUICK, device=name)


def test_auto_is_the_cpu_where_there_is_nothing_else() -> None:
    expected = fuse([trained()], mlp(1), X, distiller=QUICK).model
    assert same(fuse([trained()], mlp(1), X, distiller=QUICK, device="cpu").model, expected)


@pytest.mark.parametrize("distiller", [QUICK, SGD(steps=5, batch_size=32), SWA(epochs=4, cycle=2, swa_start=1)])
def test_the_arguments_stay_as_they_are(distiller: Any) -> None:
    teacher, student = trained(), mlp(1)
    before = copy.deepcopy((teacher, student))
    fuse([teacher], student, X, distiller=distiller)
    assert same(teacher, before[0])
    assert same(student, before[1])

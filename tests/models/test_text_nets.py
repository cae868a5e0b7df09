"""What every net for texts owes its users, and what a mean and an LSTM compute."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.compute.batches import forward, set_precision
from fedfuse.models import TEXT_NETS, Classifier, build, check
from fedfuse.models.classifier import Trunk, trunk_and_head
from fedfuse.models.split import halves
from fedfuse.models.text import LastState, MeanOfEmbeddings, masked_mean
from fedfuse.types import FedfuseError, Snapshot, saved_buffers

LENGTH, WORDS = 9, 30
SHAPE = (LENGTH, WORDS)
SMALL = [name for name in TEXT_NETS if name not in ("distilbert", "bert-mini")]  # these are bert-tiny, but slower
NETS = [*SMALL, "bag:8", "lstm+head16", "bert-tiny+head16"]


@pytest.fixture(autouse=True)
def _needs_transformers(request: pytest.FixtureRequest) -> None:
    if "bert" in request.node.name:
        pytest.importorskip("transformers")


def made(name: str, seed: int = 0) -> Classifier:
    torch.manual_seed(seed)
    net = build(name, classes=3, shape=SHAPE)
    assert isinstance(net, Classifier)
    return net


def batch(rows: int = 4, *, length: int = LENGTH) -> dict[str, Tensor]:
    """Texts of 2 to 6 words, padded at the right to `length`."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(1, WORDS, (rows, LENGTH), generator=draw)
    mask = (torch.arange(LENGTH) < (torch.arange(rows) % 5 + 2)[:, None]).long()
    return {"input_ids": (ids * mask)[:, :length], "attention_mask": mask[:, :length]}


@pytest.mark.parametrize("name", NETS)
def test_gradients_reach_every_parameter(name: str) -> None:
    net = made(name)
    logits = forward(net, batch())
    assert logits.shape == (4, 3)
    F.cross_entropy(logits, torch.tensor([0, 1, 2, 0])).backward()
    for parameter, p in net.named_parameters():
        assert p.grad is not None, parameter
        assert p.grad.isfinite().all(), parameter
        assert p.grad.abs().sum() > 0, parameter


@pytest.mark.parametrize("name", NETS)
def test_features_feed_the_head_and_padding_changes_nothing(name: str) -> None:
    net = made(name).double().eval()
    long, short = batch(), batch(length=6)
    with torch.no_grad():
        features = net.features(long)
        assert features.shape == (4, net.width)
        assert torch.equal(net.head(features), forward(net, long))
        torch.testing.assert_close(forward(net, short), forward(net, long))
        other = {**long, "input_ids": torch.where(long["attention_mask"] == 0, 7, long["input_ids"])}
        torch.testing.assert_close(forward(net, other), forward(net, long))
        alone = {key: tensor[1:2] for key, tensor in long.items()}
        torch.testing.assert_close(forward(net, alone), forward(net, long)[1:2])
        with_segments = {**long, "token_type_ids": torch.zeros_like(long["input_ids"])}
        torch.testing.assert_close(forward(net, with_segments), forward(net, long))


@pytest.mark.parametrize("name", NETS)
def test_its_parts_are_the_net(name: str) -> None:
    net, x = made(name).eval(), batch()
    with torch.no_grad():
        trunk, head = trunk_and_head(net)
        assert torch.equal(head(trunk(x)), forward(net, x))
        stage, rest = halves(name, net)
        assert isinstance(stage, Trunk)
        assert torch.equal(rest(stage(**x)), forward(net, x))


@pytest.mark.parametrize("name", NETS)
def test_its_state_is_what_is_learned(name: str) -> None:
    """BERT's tables of positions are constants: they are neither sent nor received."""
    net, x = made(name).eval(), batch()
    snapshot = Snapshot.of(name, net)
    assert {*snapshot.params, *snapshot.buffers} == set(net.state_dict())
    assert not snapshot.buffers
    other = snapshot.load_into(made(name, seed=1)).eval()
    with torch.no_grad():
        assert torch.equal(forward(other, x), forward(net, x))


def test_buffers_that_are_saved_are_state() -> None:
    net = nn.BatchNorm1d(3)
    net.register_buffer("constant", torch.ones(2), persistent=False)
    assert set(saved_buffers(net)) == {"running_mean", "running_var", "num_batches_tracked"}


@pytest.mark.parametrize("name", NETS)
def test_initial_weights_come_from_the_global_generator(name: str) -> None:
    one, again, other = (torch.cat([p.detach().flatten() for p in made(name, s).parameters()]) for s in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("name", NETS)
def test_it_computes_in_bfloat16_by_autocast(name: str) -> None:
    net, x = made(name).eval(), batch()
    with torch.no_grad():
        exact = forward(net, x)
        set_precision(net, torch.bfloat16)
        rounded = forward(net, x)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, rtol=0.1, atol=0.1)


def test_the_mean_is_over_the_words_only() -> None:
    trunk = MeanOfEmbeddings(4, 2)
    trunk.embedding.weight.data = torch.tensor([[9.0, 9.0], [1.0, 2.0], [3.0, 6.0], [5.0, 4.0]])
    ids, mask = torch.tensor([[1, 2, 0], [3, 0, 0], [0, 0, 0]]), torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert trunk(ids, mask).tolist() == [[2.0, 4.0], [5.0, 4.0], [0.0, 0.0]]
    assert masked_mean(torch.ones(1, 2, 3), None).tolist() == [[1.0, 1.0, 1.0]]


def test_the_lstm_gives_the_state_after_the_last_word() -> None:
    torch.manual_seed(0)
    trunk, x = LastState(WORDS, 3, 5, 2), batch()
    with torch.no_grad():
        for row, length in enumerate(x["attention_mask"].sum(1).tolist()):
            words = trunk.embedding(x["input_ids"][row : row + 1, :length])
            _, (last, _) = trunk.lstm(words)
            torch.testing.assert_close(trunk(**x)[row], last[1, 0])


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("bag", (3, 8, 8), r"bag reads texts of shape \(longest length, size of the vocabulary\).*choose mlp:64-32"),
        ("lstm", (9,), "lstm reads texts of shape"),
        ("bag:0", SHAPE, "only bag has an option"),
        ("bag:8-8", SHAPE, "only bag has an option"),
        ("lstm:8", SHAPE, "lstm:8: only bag has an option"),
        ("lstn", SHAPE, "Did you mean 'lstm'"),
        ("bert-tiny", (513, 30), "bert-tiny reads at most 512 tokens, but the texts have up to 513"),
    ],
)
def test_a_wrong_name_or_shape_names_the_remedy(name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        check(name, 3, shape)


def test_kinds_of_inputs_are_told_apart_before_anything_is_built() -> None:
    texts = {key: tensor[:2] for key, tensor in batch().items()}
    for name in ("mlp:8", "resnet8", "resnet8:gn+head16", "cnn|mlp:8"):
        with pytest.raises(FedfuseError, match="takes images or features, but the data has input_ids"):
            check(name, 3, (LENGTH, 10**9), {"2 texts": texts})
    for name in ("bag", "lstm+head16", "bag|mlp:8"):
        with pytest.raises(FedfuseError, match="reads texts, but the data has images or features"):
            check(name, 3, SHAPE, {"zeros": torch.zeros(2, *SHAPE)})
        check(name, 3, SHAPE, {"2 texts": texts})
        check(name, 3, SHAPE)


def test_transformers_is_optional_for_bag_and_lstm_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    check("bag", 3, SHAPE)
    check("lstm", 3, SHAPE)
    with pytest.raises(FedfuseError, match=r"bert-tiny needs transformers: `pip install fedfuse\[hf\]`"):
        check("bert-tiny", 3, SHAPE)

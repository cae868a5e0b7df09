"""One-bit nets: forward and gradients by hand, names as of the plain net, and every net of the zoo."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.compute.optimizers import SGD
from fedfuse.models import ZOO, build
from fedfuse.models.one_bit import Gradient, OneBit, binarise, binarised, binary_weights
from fedfuse.types import FedfuseError, Snapshot

WEIGHT = torch.tensor([[0.5, -1.5, 0.0, 2.0], [-0.1, 0.1, -0.3, 0.3]])  # alpha: 1 and 0.2
G = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
SHAPE = (3, 8, 8)


def test_the_forward_pass_by_hand() -> None:
    expected = torch.tensor([[1.0, -1.0, 1.0, 1.0], [-0.2, 0.2, -0.2, 0.2]])
    torch.testing.assert_close(binarised(WEIGHT), expected)
    torch.testing.assert_close(binarised(WEIGHT.view(2, 2, 1, 2)), expected.view(2, 2, 1, 2))


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [
        ("identity", G),
        # |-1.5| and |2| are above 1.
        ("clipped", torch.tensor([[1.0, 0.0, 3.0, 0.0], [5.0, 6.0, 7.0, 8.0]])),
        # times 1/4 + alpha inside [-1, 1], 1/4 outside
        ("xnor", torch.tensor([[1.25, 0.5, 3.75, 1.0], [2.25, 2.7, 3.15, 3.6]])),
    ],
)
def test_the_gradients_by_hand(gradient: Gradient, expected: Tensor) -> None:
    weight = WEIGHT.clone().requires_grad_()
    (binarised(weight, gradient) * G).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, expected)


def test_a_step_moves_the_full_precision_weight_and_not_its_sign() -> None:
    net = nn.Sequential(nn.Linear(2, 1, bias=False))
    nn.init.constant_(net[0].weight, 0.25)
    binarise("net", net, OneBit(keep="none"))
    x = torch.tensor([[1.0, 3.0]])
    assert net(x).item() == 1.0  # 0.25 (1 + 3)
    net(x).sum().backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
    torch.testing.assert_close(net[0].weight, torch.tensor([[0.15, -0.05]]))
    torch.testing.assert_close(net(x), torch.tensor([[0.1 * (1 - 3)]]))  # the mean of 0.15 and 0.05


@pytest.mark.parametrize("name", ZOO)
def test_every_net_of_the_zoo_has_a_one_bit_form_with_the_same_parameters(name: str) -> None:
    torch.manual_seed(0)
    plain = build(name, classes=5, shape=SHAPE)
    torch.manual_seed(0)
    net = build(f"{name}:1bit", classes=5, shape=SHAPE)
    assert Snapshot.of("a", plain).params.keys() == Snapshot.of("a", net).params.keys()
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), net.parameters(), strict=True))
    binary = binary_weights(plain)
    for parameter, p in plain.named_parameters():
        if parameter in binary:
            p.data = binarised(p.data)
    x = torch.randn(4, *SHAPE)
    torch.testing.assert_close(net.eval()(x), plain.eval()(x), rtol=1e-3, atol=1e-3)
    F.cross_entropy(net.train()(x), torch.arange(4)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


@pytest.mark.parametrize(
    ("keep", "expected"), [("ends", [1]), ("first", [1, 2]), ("last", [0, 1]), ("none", [0, 1, 2])]
)
def test_which_layers_stay_in_full_precision(keep: str, expected: list[int]) -> None:
    layers = ["trunk.1.weight", "trunk.4.weight", "head.weight"]
    net = build("mlp:6-5", classes=3, shape=(4,))
    assert binary_weights(net, keep) == [layers[i] for i in expected]  # type: ignore[arg-type]
    x = torch.randn(2, 4)
    one_bit = build(f"mlp:6-5:1bit:keep={keep}", classes=3, shape=(4,))
    one_bit.load_state_dict(net.state_dict())
    for i in expected:
        net.get_parameter(layers[i]).data = binarised(net.get_parameter(layers[i]).data)
    torch.testing.assert_close(one_bit(x), net(x))


def test_a_one_bit_net_learns() -> None:
    torch.manual_seed(0)
    net = build("mlp:32-32:bn:1bit", classes=3, shape=(4,))
    y = torch.arange(90) % 3
    x = 2 * torch.eye(3, 4)[y] + torch.randn(90, 4)
    descent = SGD(net.parameters(), 0.1)
    losses = []
    for _ in range(40):
        loss = F.cross_entropy(net(x), y)
        descent.zero_grad()
        loss.backward()
        descent.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_embeddings_and_recurrent_layers_are_not_binarised() -> None:
    net = nn.ModuleDict(
        {"words": nn.Embedding(9, 4), "lstm": nn.LSTM(4, 4), "a": nn.Linear(4, 4), "b": nn.Linear(4, 4)}
    )
    assert binary_weights(net, "none") == ["a.weight", "b.weight"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mlp:6:1bit", "needs a convolution or dense layer besides those that stay in full precision"),
        ("mlp:6-5:1bit:keep=middle", "'keep=middle' is not an option of one-bit nets: give keep=ends|first|last|none"),
        ("mlp:6-5:1bit:keep=none:keep=none", "each once"),
        ("mlp:6-5:int8", "int8 is how a client uploads its model"),
    ],
)
def test_a_name_that_is_no_one_bit_net_is_refused(name: str, said: str) -> None:
    with pytest.raises(FedfuseError) as error:
        build(name, classes=3, shape=(4,))
    assert said in str(error.value)


def test_a_shared_head_comes_before_the_precision() -> None:
    net = build("mlp:6-5+head8:1bit", classes=3, shape=(4,))
    assert binary_weights(build("mlp:6-5+head8", classes=3, shape=(4,)))[-1].startswith("head.")
    assert net(torch.zeros(2, 4)).shape == (2, 3)

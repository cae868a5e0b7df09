"""A net in two parts: the halves are the whole, the stage is where it is said to be, the joined name is a net."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedfuse import models
from fedfuse.models import ZOO
from fedfuse.models.split import Split, feature_shape, halves, joined, parts
from fedfuse.types import FedfuseError
from tests.doubles import DROPPING, LINEAR, NORMED

IMAGE = (3, 16, 16)


@pytest.mark.parametrize("arch", ZOO)
def test_the_halves_of_every_net_are_the_net(arch: str) -> None:
    net = models.build(arch, classes=10, shape=IMAGE).eval()
    stage, rest = halves(arch, net)
    x = torch.randn(2, *IMAGE)
    with torch.no_grad():
        torch.testing.assert_close(rest(stage(x)), net(x))
    shared = {id(p) for p in net.parameters()}
    assert {id(p) for p in [*stage.parameters(), *rest.parameters()]} == shared


@pytest.mark.parametrize(
    ("arch", "shape"),
    [
        ("resnet8", (16, 16, 16)),  # FedGKT's: convolution, norm, rectifier
        ("resnet18", (64, 16, 16)),
        ("vgg9", (32, 16, 16)),
        ("cnn", (32, 6, 6)),  # with its pool
        ("mlp:64-32", (64,)),
        ("mlp:64-32:bn", (64,)),
        ("mlp:64", (64,)),
    ],
)
def test_the_first_stage_ends_before_the_next_weights(arch: str, shape: tuple[int, ...]) -> None:
    stage, _ = halves(arch, models.build(arch, classes=10, shape=IMAGE))
    assert feature_shape(stage, IMAGE) == shape


def test_a_norm_belongs_to_its_layer() -> None:
    stage, _ = halves("mlp:8-4:bn", models.build("mlp:8-4:bn", classes=3, shape=(4,)))
    assert [type(layer) for layer in stage] == [nn.Flatten, nn.Linear, nn.BatchNorm1d, nn.ReLU]


@pytest.mark.parametrize(("arch", "width"), [(NORMED, 5), (DROPPING, 8)])
def test_a_plain_sequence_can_be_halved(arch: str, width: int) -> None:
    stage, rest = halves(arch, net := models.build(arch, classes=3, shape=(4,)).eval())
    assert feature_shape(stage, (4,)) == (width,)
    x = torch.randn(2, 4)
    assert torch.equal(rest(stage(x)), net(x))


@pytest.mark.parametrize(
    ("net", "message"), [(nn.Linear(4, 3), "a Linear"), (nn.Sequential(nn.Linear(4, 3)), "only its last")]
)
def test_a_net_without_features_is_refused(net: nn.Module, message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        halves(LINEAR, net)


@pytest.mark.parametrize("arch", ["mlp:8|mlp:16", "resnet8|resnet20", "resnet8:gn|vgg9", "mlp:8|mlp:4+head5"])
def test_a_joined_name_is_a_net(arch: str) -> None:
    models.check(arch, classes=10, shape=IMAGE)
    net = models.build(arch, classes=10, shape=IMAGE)
    assert isinstance(net, Split)
    assert {name.split(".")[0] for name, _ in net.named_parameters()} == {"extractor", "server"}


def test_the_server_is_built_for_the_features() -> None:
    net = models.build("mlp:8|mlp:16", classes=3, shape=(4,))
    assert isinstance(net, Split)
    assert {name: tuple(p.shape) for name, p in net.named_parameters()} == {
        "extractor.1.weight": (8, 4),
        "extractor.1.bias": (8,),
        "server.trunk.1.weight": (16, 8),
        "server.trunk.1.bias": (16,),
        "server.head.weight": (3, 16),
        "server.head.bias": (3,),
    }
    assert all(module.training for module in net.modules())


def test_names_come_apart_as_they_were_joined() -> None:
    assert parts(joined("mlp:8", "resnet8:gn")) == ("mlp:8", "resnet8:gn")
    assert parts("resnet8:gn") is None


def test_a_server_that_cannot_take_the_features_is_told_their_shape() -> None:
    with pytest.raises(FedfuseError, match=r"features that mlp:8 sends have the shape \(8,\): resnet8 needs images"):
        models.build("mlp:8|resnet8", classes=3, shape=(4,))

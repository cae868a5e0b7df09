"""Nets of different architectures that end in one head."""

import pytest
import torch

from fedfuse import models
from fedfuse.models.shared_head import head_of, split, with_head
from fedfuse.types import FedfuseError, Snapshot


def test_names() -> None:
    assert with_head("resnet8:gn", 128) == "resnet8:gn+head128"
    assert with_head("resnet8", None) == "resnet8"
    assert with_head("resnet8+head64", 128) == "resnet8+head64"  # what is asked for by name stays
    assert split("mlp:64-32+head128") == ("mlp:64-32", 128)
    assert split("mlp:64-32") == ("mlp:64-32", None)


@pytest.mark.parametrize("name", ["mlp:16", "resnet8", "cnn", "vgg9", "mobilenetv2", "lenet:bn"])
def test_every_head_is_alike(name: str) -> None:
    net = models.build(f"{name}+head32", classes=7, shape=(3, 32, 32))
    head = head_of(Snapshot.of(name, net).params)
    # 32 - 32 - 7: two linear layers with their biases.
    assert {n: tuple(t.shape) for n, t in head.items()} == {
        "head.0.weight": (32, 32),
        "head.0.bias": (32,),
        "head.2.weight": (7, 32),
        "head.2.bias": (7,),
    }
    assert isinstance(net, models.Classifier)
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert net.eval().features(x).shape == (2, 32)
    assert net(x).shape == (2, 7)


def test_a_net_without_a_trunk_is_refused() -> None:
    with pytest.raises(FedfuseError, match=r"needs a fedfuse\.models\.Classifier, but this net is a "):
        models.build("tests.doubles:normed+head8", classes=3, shape=(4,))


def test_a_net_with_a_head_is_built_from_its_file_again() -> None:
    models.check("cnn+head128", classes=10, shape=(3, 32, 32))
    with pytest.raises(FedfuseError, match="unknown architecture 'cnm'"):
        models.check("cnm+head128", classes=10, shape=(3, 32, 32))

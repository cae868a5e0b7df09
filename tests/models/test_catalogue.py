import pytest
import torch

from fedfuse.models import ZOO, build, check
from fedfuse.types import FedfuseError


@pytest.mark.parametrize("name", ZOO)
def test_every_entry_is_a_name_with_a_description(name: str) -> None:
    check(name, 3, (1, 8, 8))
    assert ZOO[name].description.endswith(f"; norm: {ZOO[name].norm}")


def test_the_default_norm_is_the_one_declared() -> None:
    for name, architecture in ZOO.items():
        with torch.device("meta"):  # names alone: no weights are drawn
            keys = build(name, classes=3, shape=(1, 8, 8)).state_dict().keys()
            assert keys == build(f"{name}:{architecture.norm}", classes=3, shape=(1, 8, 8)).state_dict().keys()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet9", "Did you mean 'resnet8'.*mlp:64-32.*package.module:factory"),
        ("shuflenetv2:gn", "Did you mean 'shufflenetv2:gn'"),
        ("transformer", "unknown architecture 'transformer'"),
        ("", "unknown architecture ''"),
        ("hf:", "unknown architecture 'hf:'"),
        ("resnet8:ln", "norm 'ln': choose one of bn, gn, none"),
        ("resnet8:bn:gn", "norm 'bn:gn'"),
        ("resnet8:", "norm ''"),
        ("mlp", "mlp has no hidden widths.*mlp:64-32"),
        ("mlp:", "no hidden widths"),
        ("mlp:64-", "no hidden widths"),
        ("mlp:64-0", "no hidden widths"),
        ("mlp:-64", "no hidden widths"),
        ("mlp:bn", "no hidden widths"),
        ("mlp:64:ln", "norm 'ln'"),
        ("resnet8:gn0", "norm 'gn0'.*gn4 has 4 groups"),
        ("resnet8:gn5", "gn5: a layer of 16 channels cannot be divided into 5 equal groups"),
        ("resnet8:gn32", "gn32: a layer of 16 channels"),
        ("mlp:64-30:gn4", "gn4: a layer of 30 channels"),
        ("resnt8:gn4", "Did you mean 'resnet8:gn4'"),
        ("convnet:2", "convnet:2 has 2 convolutions: give 3 to 64, as in convnet:5"),
        ("convnet:99999999999999999999", "give 3 to 64"),
        ("convnet:5:ln", "norm 'ln'"),
    ],
)
def test_a_wrong_name_names_the_remedy(name: str, message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        check(name, 10, (3, 32, 32))


@pytest.mark.parametrize("shape", [(20,), (3, 7, 8), (3, 8, 7), (3, 8)])
def test_an_image_net_refuses_other_inputs(shape: tuple[int, ...]) -> None:
    with pytest.raises(FedfuseError, match=r"resnet8 needs images \(C, H, W\) of at least 8x8"):
        build("resnet8", classes=2, shape=shape)


@pytest.mark.parametrize(("classes", "shape"), [(0, (3, 8, 8)), (2, ()), (2, (0, 8, 8))])
def test_impossible_sizes_are_refused(classes: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(FedfuseError, match="mlp:4 cannot have"):
        build("mlp:4", classes=classes, shape=shape)


@pytest.mark.parametrize("name", ["resnet8", "resnet9", "mlp:64-32:gn"])
def test_check_leaves_the_global_generator_alone(name: str) -> None:
    before = torch.get_rng_state()
    try:
        check(name, 10, (3, 8, 8))
    except FedfuseError:
        assert name == "resnet9"
    assert torch.equal(before, torch.get_rng_state())

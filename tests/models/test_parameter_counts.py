"""Parameters on CIFAR-10 and on BERT's vocabulary, against the literature or sums that a reader can redo."""

import pytest
import torch
from torch import nn

from fedfuse.models import Classifier, build

CIFAR10 = (3, 32, 32)


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Convolutions 896 + 18,496 + 36,928, dense 65,600 + 650.
        ("convnet", 122_570),
        # FedBE's Figure 2, as in its code: each added convolution has 64 x 64 x 9 + 64 = 36,928.
        ("convnet:3", 122_570),
        ("convnet:5", 122_570 + 2 * 36_928),
        ("convnet:9", 122_570 + 6 * 36_928),
        # Convolutions 2,432 + 76,896, dense 288,120 + 12,100 + 8,484 + 4,250 + 510. Fed-ET's Table 6: 0.4 M.
        ("cnn", 392_792),
        # Convolutions 456 + 2,416, dense 48,120 + 10,164 + 850.
        ("lenet", 62_006),
        # Stem 464, stages 4,672 + 13,952 + 55,552, head 650: option A, as He et al. on CIFAR.
        ("resnet8", 75_290),
        # He et al.'s Table 6: 0.27 M, 0.46 M, 0.66 M, 0.85 M. Each step of 12 layers adds 194,432.
        ("resnet20", 269_722),
        ("resnet32", 464_154),
        ("resnet44", 658_586),
        ("resnet56", 853_018),
        # Stem 1,856, stages 73,984 + 230,144 + 919,040 + 3,673,088, head 5,130.
        ("resnet10", 4_903_242),
        # ImageNet's 11,689,512, less its head (513,000) and stem (9,408), plus 5,130 and a 3x3 stem (1,728).
        ("resnet18", 11_173_962),
        # FedMA's VGG-9: convolutions 1,126,080, dense 2,097,664 + 262,656 + 5,130.
        ("vgg9", 3_491_530),
        # ImageNet's convolutions 20,024,384, dense 2 x 262,656 + 5,130.
        ("vgg19", 20_554_826),
        # ImageNet's 3,504,872 and 2,278,604, their heads for 10 classes instead of 1000.
        ("mobilenetv2", 3_504_872 - 1_281_000 + 12_810),
        ("shufflenetv2", 2_278_604 - 1_025_000 + 10_250),
        ("mlp:64-32", 3072 * 64 + 64 + 64 * 32 + 32 + 32 * 10 + 10),
    ],
)
def test_parameters_on_cifar10(name: str, expected: int) -> None:
    assert count(build(name, classes=10, shape=CIFAR10)) == expected


@pytest.mark.parametrize(("name", "millions"), [("vgg19:none", 20.9), ("resnet18:none", 11.5), ("resnet10:none", 5.2)])
def test_fed_et_sizes_follow_with_a_head_of_512_512_128(name: str, millions: float) -> None:
    """Table 6 of Fed-ET counts its representation layers; with these, three of its four sizes follow, to its digit.

    Its "Res8 (5.2 M)" is therefore one block for each of torchvision's four stages: our resnet10.
    """
    net = build(name, classes=10, shape=CIFAR10)
    assert isinstance(net, Classifier)
    representation = (512 * 512 + 512) + (512 * 128 + 128) + (128 * 10 + 10)
    assert round((count(net.trunk) + representation) / 1e6, 1) == millions


def test_a_convnet_of_three_convolutions_is_the_convnet() -> None:
    names = [set(build(name, classes=10, shape=CIFAR10).state_dict()) for name in ("convnet", "convnet:3", "convnet:4")]
    assert names[0] == names[1] != names[2]


def test_lenet_on_mnist_is_lenet5() -> None:
    """28x28 digits keep the maps of LeNet-5: 61,706 parameters, convolutions 156 + 2,416."""
    assert count(build("lenet", classes=10, shape=(1, 28, 28))) == 156 + 2_416 + 48_120 + 10_164 + 850


def test_a_norm_replaces_the_biases_of_the_convolutions() -> None:
    bn, gn, none = (count(build(f"resnet8:{norm}", classes=10, shape=CIFAR10)) for norm in ("bn", "gn", "none"))
    assert bn == gn
    assert bn - none == 16 * 3 + 32 * 2 + 64 * 2  # scale and shift instead of one bias: one more for each channel


BERT_VOCABULARY = (128, 30_522)  # texts of up to 128 of BERT's tokens


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Embeddings, and a linear layer.
        ("bag", 30_522 * 64 + 64 * 2 + 2),
        ("bag:8", 30_522 * 8 + 8 * 2 + 2),
        # Embeddings; each of 4 gates has weights for input and state, and two biases.
        ("lstm", 30_522 * 128 + 4 * 256 * (128 + 256 + 2) + 4 * 256 * (256 + 256 + 2) + 256 * 2 + 2),
        # Turc et al.'s google/bert_uncased_L-2_H-128_A-2 and L-4_H-256_A-4: 4,385,920 and 11,170,560; a linear layer.
        ("bert-tiny", 4_385_920 + 128 * 2 + 2),
        ("bert-mini", 11_170_560 + 256 * 2 + 2),
        # Sanh et al.: 66 M. The encoder has 66,362,880; then a dense layer of 768 and a linear one.
        ("distilbert", 66_362_880 + 768 * 768 + 768 + 768 * 2 + 2),
    ],
)
def test_parameters_on_texts(name: str, expected: int) -> None:
    if name not in ("bag", "bag:8", "lstm"):
        pytest.importorskip("transformers")
    with torch.device("meta"):
        assert count(build(name, classes=2, shape=BERT_VOCABULARY)) == expected


@pytest.mark.parametrize(("name", "width", "millions"), [("bert-tiny", 128, 4.5), ("bert-mini", 256, 11.3)])
def test_fed_et_sizes_of_texts_follow_with_a_head_of_256_128(name: str, width: int, millions: float) -> None:
    """Table 6 of Fed-ET: Tiny-BERT 4.5 M, Mini-BERT 11.3 M. It does not state what its LSTM (2.5 M) embeds."""
    pytest.importorskip("transformers")
    with torch.device("meta"):
        net = build(name, classes=2, shape=BERT_VOCABULARY)
    assert isinstance(net, Classifier)
    representation = (width * 256 + 256) + (256 * 128 + 128) + (128 * 2 + 2)
    assert round((count(net.trunk) + representation) / 1e6, 1) == millions

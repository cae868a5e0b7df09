"""What every net of the zoo owes its users, with every norm."""

import copy
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedfuse.models import ZOO, Classifier, build
from fedfuse.models.mobile import interleave
from fedfuse.models.resnet import Subsample

NORMS = ("bn", "gn", "none")
HEAVY = {"vgg19", "resnet10", "resnet18"}  # seconds at 32x32 on one core
DIGITS, CIFAR10, TINY_IMAGENET = (1, 8, 8), (3, 32, 32), (3, 64, 64)
CASES = [(f"{name}:{norm}", CIFAR10) for name in ZOO if name not in HEAVY for norm in NORMS]
CASES += [(name, TINY_IMAGENET) for name in ("convnet", "cnn", "resnet8", "vgg9", "mobilenetv2", "shufflenetv2")]
CASES += [(name, (2, 8, 13)) for name in ZOO]
CASES += [(name, shape) for name in ("convnet:9", "convnet:5:bn") for shape in (DIGITS, CIFAR10)]


def made(name: str, shape: tuple[int, ...]) -> Classifier:
    torch.manual_seed(0)
    net = build(name, classes=5, shape=shape)
    assert isinstance(net, Classifier)
    return net


def batch(shape: tuple[int, ...], size: int = 4) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return torch.randn(size, *shape, generator=rng), torch.arange(size) % 5


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[f"{name}:{norm}" for name in ZOO for norm in NORMS])
def initial(request: pytest.FixtureRequest) -> Classifier:
    """A net for digits, built once for the tests that take it: to draw initial weights takes longer than most of them.

    A test that changes it takes a copy.
    """
    return made(request.param, DIGITS)


def test_forward_and_backward_reach_every_parameter_on_digits(initial: Classifier) -> None:
    reach_every_parameter(copy.deepcopy(initial), DIGITS)


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_forward_and_backward_reach_every_parameter(name: str, shape: tuple[int, ...]) -> None:
    reach_every_parameter(made(name, shape), shape)


def reach_every_parameter(net: Classifier, shape: tuple[int, ...]) -> None:
    x, y = batch(shape)
    logits = net(x)
    assert logits.shape == (4, 5)
    F.cross_entropy(logits, y).backward()
    for parameter, p in net.named_parameters():
        assert p.grad is not None, parameter
        assert p.grad.isfinite().all(), parameter
        assert p.grad.abs().sum() > 0, parameter


def test_features_have_the_declared_width_and_feed_the_head(initial: Classifier) -> None:
    net = copy.deepcopy(initial).eval()
    x, _ = batch(DIGITS)
    features = net.features(x)
    assert features.shape == (4, net.width)
    assert isinstance(net.head, nn.Linear)
    assert torch.equal(net.head(features), net(x))


def test_eval_is_deterministic_and_ignores_the_rest_of_the_batch(initial: Classifier) -> None:
    # In double precision: rounding, which differs with the size of the batch, adds up over 56 layers.
    net = copy.deepcopy(initial).eval().double()
    x = batch(DIGITS)[0].double()
    with torch.no_grad():
        assert torch.equal(net(x), net(x))
        torch.testing.assert_close(net(x)[:1], net(x[:1]))


def learned(net: Classifier, steps: int = 60) -> bool:
    """Whether SGD takes a quarter off the loss on ten noisy copies of two patterns."""
    noise, y = batch(DIGITS, 10)
    y = y % 2
    x = 0.3 * noise + batch(DIGITS, 2)[0][y]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    start = F.cross_entropy(net(x), y).item()
    for _ in range(steps):
        loss = F.cross_entropy(net(x), y)
        if loss.item() < 0.75 * start:
            return True
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return False


def test_sgd_learns_a_tiny_batch(initial: Classifier) -> None:
    assert learned(copy.deepcopy(initial))


@pytest.mark.parametrize("name", ["resnet8", "resnet18", "mobilenetv2", "shufflenetv2", "vgg19:bn", "lenet:bn"])
def test_batch_norm_takes_one_example_of_8x8(name: str) -> None:
    """A client's last batch may hold one example: no map that is normalised is 1x1."""
    assert made(name, DIGITS).train()(torch.randn(1, *DIGITS)).isfinite().all()


@pytest.mark.parametrize("name", ZOO)
def test_running_statistics_are_buffers_of_batch_norm_only(name: str) -> None:
    def buffers(norm: str) -> set[str]:
        with torch.device("meta"):  # names alone: no weights are drawn
            return {key.rpartition(".")[2] for key, _ in made(f"{name}:{norm}", DIGITS).named_buffers()}

    assert buffers("bn") == {"running_mean", "running_var", "num_batches_tracked"}
    assert buffers("gn") == buffers("none") == set()


@pytest.mark.parametrize("name", ZOO)
def test_state_is_parameters_and_buffers_by_name(name: str) -> None:
    net = made(f"{name}:bn", DIGITS)
    net(batch(DIGITS)[0])
    names = [key for key, _ in net.named_parameters()] + [key for key, _ in net.named_buffers()]
    assert set(names) == set(net.state_dict())
    other = build(f"{name}:bn", classes=5, shape=DIGITS)
    other.load_state_dict(net.state_dict())
    x, _ = batch(DIGITS)
    assert torch.equal(net.eval()(x), other.eval()(x))


@pytest.mark.parametrize("name", ZOO)
def test_initial_weights_come_from_the_global_generator(name: str) -> None:
    first, again = made(name, DIGITS), made(name, DIGITS)
    other = build(name, classes=5, shape=DIGITS)
    assert all(torch.equal(p, q) for p, q in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.head.weight, other.head.weight)


@pytest.mark.parametrize("name", [*ZOO, "resnet8:gn", "vgg9:gn", "shufflenetv2:gn"])
def test_channels_last_changes_nothing(name: str) -> None:
    net = made(name, DIGITS)
    fast = copy.deepcopy(net).to(memory_format=torch.channels_last)
    x, y = batch(DIGITS, 8)
    gradients = []
    for model, inputs in ((net, x), (fast, x.to(memory_format=torch.channels_last))):
        loss = F.cross_entropy(model(inputs), y)
        gradients.append((loss.detach(), torch.autograd.grad(loss, model.head.weight)[0]))
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-3, atol=1e-4)


def test_residual_nets_without_norm_start_with_signals_of_ordinary_size() -> None:
    for name in ("resnet8:none", "resnet56:none", "mobilenetv2:none", "shufflenetv2:none"):
        x, _ = batch(CIFAR10)
        with torch.no_grad():
            size = made(name, CIFAR10).features(x).square().mean().sqrt()
        assert 0.2 < size < 3, name


def test_mlp_takes_flat_inputs_and_images() -> None:
    assert made("mlp:7", (20,))(torch.zeros(2, 20)).shape == (2, 5)
    assert made("mlp:7-3:bn", (3, 4, 4))(torch.zeros(2, 3, 4, 4)).shape == (2, 5)


def test_gradients_of_subsample_keep_the_memory_format() -> None:
    x = torch.randn(2, 4, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    (gradient,) = torch.autograd.grad(Subsample(stride=2, extra=2)(x).square().sum(), x)
    kept = torch.zeros_like(x)
    kept[:, :, ::2, ::2] = 1
    assert gradient.equal(2 * x * kept)
    assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_subsample_takes_every_second_pixel_and_pads_channels() -> None:
    x = torch.arange(9.0).reshape(1, 1, 3, 3)
    out = Subsample(stride=2, extra=3)(x)
    assert out.shape == (1, 4, 2, 2)
    assert out[0, 1].tolist() == [[0, 2], [6, 8]]
    assert out[0, [0, 2, 3]].abs().sum() == 0


def test_interleave_alternates_channels() -> None:
    left, right = torch.tensor([0.0, 2, 4]), torch.tensor([1.0, 3, 5])
    mixed = interleave(left.reshape(1, 3, 1, 1), right.reshape(1, 3, 1, 1))
    assert mixed.flatten().tolist() == [0, 1, 2, 3, 4, 5]

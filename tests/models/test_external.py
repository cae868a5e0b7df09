"""Nets from outside: a user's factories, and Hugging Face folders without a network."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from fedfuse.models import build, check
from fedfuse.types import FedfuseError

NETS = """
from torch import nn

WIDTH = 3

def good(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))

def transposed(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes + 1))

def unfitting(classes, shape):
    return nn.Linear(1000, classes)

def text(classes, shape):
    return "a net"

def positional():
    return None

def failing(classes, shape):
    raise RuntimeError("no weights today")

def leaving(classes, shape):
    raise SystemExit(3)

class LeavingNet(nn.Module):
    def __init__(self, classes, shape):
        super().__init__()
        self.head = nn.Linear(192, classes)

    def forward(self, x):
        raise SystemExit(4)

class NotFinite(LeavingNet):
    def forward(self, x):
        return self.head(x.flatten(1)) / 0

class WholeNumbers(LeavingNet):
    def forward(self, x):
        return self.head(x.flatten(1)).long()
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "their_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "nets.py").write_text(NETS)
    (folder / "broken.py").write_text("raise ZeroDivisionError('at import')")
    monkeypatch.syspath_prepend(tmp_path)
    for module in [m for m in sys.modules if m.startswith("their_package")]:
        monkeypatch.delitem(sys.modules, module)


@pytest.mark.usefixtures("package")
def test_a_factory_by_name() -> None:
    check("their_package.nets:good", 4, (3, 8, 8))
    assert build("their_package.nets:good", classes=4, shape=(3, 8, 8))(torch.zeros(2, 3, 8, 8)).shape == (2, 4)


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("their_package.absent:good", "no module 'their_package.absent' in .* or on PYTHONPATH"),
        ("their_package.nets:absent", "module their_package.nets has no 'absent'"),
        ("their_package.nets:", "unknown architecture 'their_package.nets:'"),
        ("their_package.broken:good", "ZeroDivisionError: at import"),
        ("their_package.nets:WIDTH", "is a int, not a function"),
        ("their_package.nets:text", "returned a str: a factory must return a torch.nn.Module"),
        ("their_package.nets:positional", "TypeError.*A factory takes `classes: int"),
        ("their_package.nets:failing", "RuntimeError: no weights today"),
        ("their_package.nets:transposed", r"gives \(2, 5\) for 2 inputs: with 4 classes it must give \(2, 4\)"),
        ("their_package.nets:leaving", "raised SystemExit: 3"),
        ("their_package.nets:LeavingNet", "fails on 2 inputs .*SystemExit: 4"),
        ("their_package.nets:NotFinite", "outputs that are not finite before any training"),
        ("their_package.nets:WholeNumbers", "outputs of torch.int64 before any training"),
        ("their_package.nets:unfitting", r"fails on 2 inputs of shape \(3, 8, 8\)"),
    ],
)
def test_a_factory_that_does_not_serve(name: str, message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        check(name, 4, (3, 8, 8))


def test_transformers_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(FedfuseError, match=r"pip install fedfuse\[hf\]"):
        check("hf:microsoft/resnet-18", 10, (3, 32, 32))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A ResNet of Hugging Face's with 7 classes, as a configuration only."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic")
    config.num_labels = 7
    config.architectures = ["ResNetForImageClassification"]
    config.save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_with_a_configuration_gives_fresh_weights(folder: Path) -> None:
    nets = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        nets.append(build(f"hf:{folder}", classes=4, shape=(3, 32, 32)))
    first, again, other = (torch.cat([p.detach().flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert nets[0].training
    assert nets[0](torch.zeros(2, 3, 32, 32)).shape == (2, 4)
    check(f"hf:{folder}", 4, (3, 32, 32))


def test_a_folder_with_weights_keeps_them_and_gets_a_new_head(folder: Path) -> None:
    source = build(f"hf:{folder}", classes=7, shape=(3, 32, 32))
    source.net.save_pretrained(folder)
    net = build(f"hf:{folder}", classes=4, shape=(3, 32, 32))
    weights, stored = net.state_dict(), source.state_dict()
    same = [key for key in weights if weights[key].shape == stored[key].shape]
    assert len(same) == len(weights) - 2
    assert all(torch.equal(weights[key], stored[key]) for key in same)
    assert net.training
    assert {p.dtype for p in net.parameters()} == {torch.float32}


def test_a_folder_that_lacks_a_layer_or_holds_a_pickle_is_refused(folder: Path) -> None:
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(FedfuseError, match=r"pytorch_model\.bin, a pickle: save them as safetensors"):
        build(f"hf:{folder}", classes=7, shape=(3, 32, 32))
    (folder / "pytorch_model.bin").unlink()
    net: Any = build(f"hf:{folder}", classes=7, shape=(3, 32, 32))
    net.net.save_pretrained(folder)
    weights = load_file(folder / "model.safetensors")
    save_file({name: t for name, t in weights.items() if "embedder" not in name}, folder / "model.safetensors")
    with pytest.raises(FedfuseError, match=r"its weights lack resnet\.embedder"):
        build(f"hf:{folder}", classes=7, shape=(3, 32, 32))


def test_nothing_to_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = pytest.importorskip("transformers")
    with pytest.raises(FedfuseError, match="no such folder"):
        check(f"hf:{tmp_path}/absent", 4, (3, 32, 32))
    with pytest.raises(FedfuseError, match="no classifier could be loaded"):
        check(f"hf:{tmp_path}", 4, (3, 32, 32))

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no such model on the hub")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", refuse)
    with pytest.raises(FedfuseError, match=r"no such model on the hub.*pip install fedfuse\[hf\]"):
        check("hf:nobody/nothing", 4, (3, 32, 32))


# timm and torchvision, which need not be installed.


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(FedfuseError, match=f"{library}:resnet18 needs {library}: `pip install {library}`"):
            build(f"{library}:resnet18", classes=3, shape=(3, 8, 8))


def test_nets_of_timm_and_torchvision_are_built_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins with the two functions that are called: neither library imports beside a CPU torch."""
    made = []

    def net(name: str, **settings: object) -> torch.nn.Module:
        if name == "unknown":
            raise RuntimeError("Unknown model")
        made.append((name, settings))
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, int(str(settings["num_classes"]))))

    timm, torchvision, models = ModuleType("timm"), ModuleType("torchvision"), ModuleType("torchvision.models")
    timm.create_model, models.get_model = net, net  # type: ignore[attr-defined]
    for module in (timm, torchvision, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    check("timm:vit_tiny", 5, (3, 8, 8))
    check("torchvision:resnet18", 5, (3, 8, 8))
    assert ("vit_tiny", {"pretrained": False, "num_classes": 5, "in_chans": 3}) in made
    assert ("resnet18", {"weights": None, "num_classes": 5}) in made
    with pytest.raises(FedfuseError, match=r"timm:unknown cannot be built \(RuntimeError: Unknown model\)"):
        build("timm:unknown", classes=5, shape=(3, 8, 8))

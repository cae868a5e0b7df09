"""ONNX files give PyTorch's outputs in onnxruntime, from inputs that are not normalised; and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import fedfuse
from fedfuse.export import to_onnx
from fedfuse.export.to_onnx import export_onnx
from fedfuse.models.file import file_name
from fedfuse.runs.setup import load_federation
from fedfuse.types import FedfuseError
from tests.command_line import ROOT, CommandLine

pytest.importorskip("onnx", reason="onnx is not installed: pip install 'fedfuse[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'fedfuse[onnx]'")

ONE = {"run.rounds": 1, "run.workers": 1, "local.epochs": 1}


def logits(file: Path, **inputs: torch.Tensor) -> torch.Tensor:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["logits"], {name: x.numpy() for name, x in inputs.items()})[0])


def metadata(file: Path) -> dict[str, str]:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return dict(session.get_modelmeta().custom_metadata_map)


@pytest.fixture(scope="module")
def experiment() -> fedfuse.Experiment:
    return fedfuse.load(ROOT / "tests" / "small.toml", ONE)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, experiment: fedfuse.Experiment) -> Path:
    return fedfuse.run(experiment, tmp_path_factory.mktemp("runs") / "run").path


def test_a_net_takes_the_data_as_it_is(
    cli: CommandLine, run: Path, experiment: fedfuse.Experiment, tmp_path: Path
) -> None:
    file = tmp_path / "new/model.onnx"
    result = cli.here("export", run, "--onnx", file)
    assert (result.code, "not normalised" in result.out) == (0, True), result.text
    test = load_federation(experiment).test
    stored = test.tensor[:7]
    raw = stored.float() / 255 if stored.dtype == torch.uint8 else stored.float()
    loaded = fedfuse.load_model(run / "models" / file_name("mlp:16:bn"))
    with torch.no_grad():
        expected = loaded.net(test.normalise(stored))
    assert torch.allclose(logits(file, x=raw), expected, atol=1e-4)
    assert json.loads(metadata(file)["labels"]) == list("0123456789")
    again = cli.here("export", run, "--onnx", file)
    assert (again.code, "exists already" in again.err) == (2, True)
    assert cli.here("export", run, "--onnx", file, "--force").code == 0
    folder = cli.here("export", run, "--onnx", tmp_path)
    assert (folder.code, "is a folder: name a file" in folder.err) == (2, True)


def test_texts_of_any_length(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="texts need tokenizers: pip install 'fedfuse[text]'")
    words = {"good": "a fine warm day", "bad": "rain and a cold wind"}
    rows = [f"{' '.join(text.split()[: 2 + i % 3])},{label}" for i in range(40) for label, text in words.items()]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *rows]))
    made = fedfuse.Experiment(
        data={"source": str(tmp_path / "texts.csv"), "pool": {"kind": "split", "size": 0.25}},
        partition={"clients": 2},
        models={"clients": "lstm"},
        local={"steps": 1, "batch_size": 8},
        run={"rounds": 1, "workers": 1},
    )
    run = fedfuse.run(made, tmp_path / "run")
    export_onnx(run.path, tmp_path / "model.onnx")
    loaded = fedfuse.load_model(run.path / "models" / file_name("lstm"))
    ids, mask = torch.randint(loaded.shape[1], (3, 2), generator=torch.Generator().manual_seed(1)), torch.ones(3, 2)
    mask[1, 1] = 0
    inputs = {"input_ids": ids, "attention_mask": mask.long()}
    with torch.no_grad():
        expected = loaded.net(**inputs)
    assert torch.allclose(logits(tmp_path / "model.onnx", **inputs), expected, atol=1e-4)
    assert len(metadata(tmp_path / "model.onnx")["tokenizer_sha256"]) == 64


class _NoOnnx(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.svdvals(x)


class _Drawn(nn.Module):
    """A net that gives other outputs on each call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.randn_like(x.flatten(1))


@pytest.mark.parametrize(
    ("net", "message"), [(_NoOnnx(), "cannot express .* use --hub-folder"), (_Drawn(), "differ from PyTorch's by")]
)
def test_a_net_that_onnx_cannot_express_is_refused(
    net: nn.Module, message: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = to_onnx.load_model

    def other_net(path: Any, *, trust_code: bool = False) -> Any:
        loaded = load(path, trust_code=trust_code)
        object.__setattr__(loaded, "net", net)
        return loaded

    monkeypatch.setattr(to_onnx, "load_model", other_net)
    with pytest.raises(FedfuseError, match=message):
        export_onnx(run, tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()

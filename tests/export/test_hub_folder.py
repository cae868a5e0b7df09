"""Folders for a hub: read back with the same outputs, a card that is true to the records, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import fedfuse
from fedfuse.models.file import HEADER, Loaded, file_name
from fedfuse.records import record
from fedfuse.runs.setup import load_federation
from tests.command_line import ROOT, CommandLine, models_of

SMALL = ROOT / "tests" / "small.toml"
ONE = {"run.rounds": 2, "run.workers": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Validation accuracy and test accuracy, one reported model, batch norm."""
    return fedfuse.run(fedfuse.load(SMALL, ONE), tmp_path_factory.mktemp("runs") / "run").path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that reports two models."""
    settings = {**ONE, "run.rounds": 1, "models.clients": {"mlp:8": 1, "mlp:16+head8": 1}}
    return fedfuse.run(fedfuse.load(SMALL, settings), tmp_path_factory.mktemp("runs") / "two").path


def tree(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def same_outputs(run: Path, arch: str, folder: Path, **trust: bool) -> Loaded:
    there = fedfuse.load_model(run / "models" / file_name(arch), **trust)
    here = fedfuse.load_model(folder, **trust)
    x = torch.randn(3, *there.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(there.net(x), here.net(x))
    assert (here.classes, here.shape, here.mean, here.std, here.labels) == (
        there.classes,
        there.shape,
        there.mean,
        there.std,
        there.labels,
    )
    assert not here.net.training
    return here


def front_matter(folder: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the front matter of a card, and is not installed")
    _, front, _ = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front)


def test_round_trip(run: Path, tmp_path: Path, cli: CommandLine) -> None:
    before, folder = tree(run), tmp_path / "new" / "hub"
    result = cli.here("export", run, "--hub-folder", folder)
    assert (result.code, result.err) == (0, "")
    assert {f.name for f in folder.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    assert same_outputs(run, "mlp:16:bn", folder).arch == "mlp:16:bn"
    assert json.loads((folder / "config.json").read_text())["labels"] == list("0123456789")
    assert tree(run) == before
    assert [f.name for f in folder.parent.iterdir()] == ["hub"]


def test_round_trip_of_images(tmp_path: Path, cli: CommandLine) -> None:
    settings = {**ONE, "run.rounds": 1, "run.fraction": 0.2, "models.clients": "resnet8", "local.epochs": 1}
    run = fedfuse.run(fedfuse.load(SMALL, settings), tmp_path / "run").path
    assert cli.here("export", run, "--hub-folder", tmp_path / "hub").code == 0
    same_outputs(run, "resnet8", tmp_path / "hub")


@pytest.fixture(scope="module")
def transformers_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    transformers = pytest.importorskip("transformers", reason="the extra fedfuse[hf] is not installed")
    folder = tmp_path_factory.mktemp("models") / "tiny-resnet"
    config = transformers.ResNetConfig(
        num_channels=1, embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], layer_type="basic"
    )
    config.num_labels = 7
    config.architectures = ["ResNetForImageClassification"]
    config.save_pretrained(folder)
    settings = {**ONE, "run.rounds": 1, "run.fraction": 0.2, "models.clients": f"hf:{folder}", "local.epochs": 1}
    return fedfuse.run(fedfuse.load(SMALL, settings), tmp_path_factory.mktemp("runs") / "hf").path, f"hf:{folder}"


def test_round_trip_of_a_transformers_model(
    transformers_run: tuple[Path, str], tmp_path: Path, cli: CommandLine
) -> None:
    import transformers

    run, arch = transformers_run
    assert cli.here("export", run, "--hub-folder", tmp_path / "hub").code == 0
    loaded = same_outputs(run, arch, tmp_path / "hub")
    assert loaded.arch == "hf:tiny-resnet"
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "hub").eval()
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.equal(theirs(pixel_values=x).logits, loaded.net(x))
    assert theirs.config.id2label == dict(enumerate("0123456789"))
    assert "AutoModelForImageClassification" in (tmp_path / "hub/README.md").read_text()
    for name, content in tree(tmp_path / "hub").items():
        assert arch.removeprefix("hf:").encode() not in content, f"{name} has a path of this machine"


def test_a_transformers_folder_without_all_weights_is_refused(
    transformers_run: tuple[Path, str], tmp_path: Path, cli: CommandLine
) -> None:
    """transformers itself would draw the missing ones at random."""
    run, _ = transformers_run
    folder = tmp_path / "hub"
    cli.here("export", run, "--hub-folder", folder)
    file = folder / "model.safetensors"
    with safetensors.safe_open(file, "pt") as opened:
        metadata = opened.metadata()
    tensors = safetensors.torch.load_file(file)
    tensors.popitem()
    safetensors.torch.save_file(tensors, file, metadata)
    with pytest.raises(fedfuse.FedfuseError, match="SHA-256"):
        fedfuse.load_model(folder)
    metadata["fedfuse"] = json.dumps({**json.loads(metadata["fedfuse"]), "sha256": None})  # as a forger would
    safetensors.torch.save_file(tensors, file, metadata)
    with pytest.raises(fedfuse.FedfuseError, match=r"weights do not match its configuration: \S+ is missing"):
        fedfuse.load_model(folder)


def test_the_configuration_of_a_transformers_model_is_gone(
    transformers_run: tuple[Path, str], tmp_path: Path, cli: CommandLine
) -> None:
    run, arch = transformers_run
    source = Path(arch.removeprefix("hf:"))
    moved = source.rename(tmp_path / "moved")
    try:
        result = cli.here("export", run, "--hub-folder", tmp_path / "hub")
    finally:
        moved.rename(source)
    assert result.code == 2
    assert "put it back where the run read it" in " ".join(result.err.split())
    assert list(tmp_path.iterdir()) == []


def test_the_card_is_true_to_the_records(run: Path, tmp_path: Path, cli: CommandLine) -> None:
    folder = tmp_path / "hub"
    cli.here("export", run, "--hub-folder", folder, "--license", "apache-2.0")
    text, history = (folder / "README.md").read_text(), record.read(run / "rounds.jsonl")
    best = max(history, key=lambda r: r.test_accuracy)
    validated = [r.validation_accuracy or 0.0 for r in history]
    assert (
        f"| test accuracy | {100 * history[-1].test_accuracy:.2f} % "
        f"| {100 * best.test_accuracy:.2f} % (round {best.round}) |"
    ) in text
    assert f"| validation accuracy | {100 * validated[-1]:.2f} % | {100 * max(validated):.2f} %" in text
    for sentence in (
        load_federation(fedfuse.load(run / "experiment.toml")).fingerprint,
        f"torch {torch.__version__}",
        "seed of the run is 0",
        'scheme = "dirichlet"\nclients = 5\nkeep = 1.0\nalpha = 0.1',
        "fedavg, 2 rounds, 5 clients",
        "rounds = 2",
        'fedfuse.load_model("path/to/this/folder")',
    ):
        assert sentence in text
    front = front_matter(folder)
    assert front["license"] == "apache-2.0"
    assert front["library_name"] == "fedfuse"
    assert front["pipeline_tag"] == "image-classification"
    assert front["datasets"] == ["digits"]
    assert front["metrics"] == ["accuracy"]
    assert {"federated-learning", "fedavg"} <= set(front["tags"])
    (result,) = front["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == history[-1].test_accuracy
    hub = pytest.importorskip("huggingface_hub", reason="the hub's own reader of cards is not installed")
    assert hub.ModelCard.load(folder / "README.md").data.eval_results[0].metric_value == history[-1].test_accuracy


def test_one_of_several_models(two: Path, tmp_path: Path, cli: CommandLine) -> None:
    result = cli.here("export", two, "--hub-folder", tmp_path / "hub")
    assert (result.code, list(tmp_path.iterdir())) == (2, [])
    assert "choose one with --model, of mlp:16+head8, mlp:8" in " ".join(result.err.split())
    result = cli.here("export", two, "--hub-folder", tmp_path / "hub", "--model", "mlp:9")
    assert "did you mean mlp:8?" in " ".join(result.err.split())
    assert cli.here("export", two, "--hub-folder", tmp_path / "hub", "--model", "mlp:16+head8").code == 0
    same_outputs(two, "mlp:16+head8", tmp_path / "hub")
    text, final = (tmp_path / "hub/README.md").read_text(), record.read(two / "rounds.jsonl")[-1]
    assert f"| test accuracy | {100 * final.models['mlp:16+head8'].accuracy:.2f} %" in text
    assert "validation accuracy (mean of the run's models)" in text
    assert "license" not in front_matter(tmp_path / "hub")


def test_the_server_s_own_model_is_the_one_that_is_reported(tmp_path: Path, cli: CommandLine) -> None:
    settings = {**ONE, "run.rounds": 1, "algorithm.name": "fed-et", "algorithm.steps": 2, "models.server": "mlp:24"}
    run = fedfuse.run(
        fedfuse.load("digits", {**settings, "models.clients": "mlp:8", "local.epochs": 1}), tmp_path / "run"
    ).path
    assert len(models_of(run)) == 2
    assert cli.here("export", run, "--hub-folder", tmp_path / "hub").code == 0
    assert fedfuse.load_model(tmp_path / "hub").arch == "mlp:24+head128"


def test_a_net_that_has_grown(tmp_path: Path, cli: CommandLine) -> None:
    """Its records are under the name that it had when the run began."""
    run = fedfuse.run(
        fedfuse.Experiment(
            data={"source": "synthetic", "examples": 240, "classes": 3, "shape": [4]},
            partition={"clients": 4},
            models={"clients": "mlp:6"},
            local={"epochs": 1, "batch_size": 8},
            algorithm={"name": "fedma"},
            run={"rounds": 3, "fraction": 0.5, "workers": 1},
        ),
        tmp_path / "run",
    )
    grown = run.models["mlp:6"].arch
    assert grown != "mlp:6"
    assert cli.here("export", run.path, "--hub-folder", tmp_path / "hub").code == 0
    same_outputs(run.path, grown, tmp_path / "hub")
    assert f"| test accuracy | {100 * run.final.test_accuracy:.2f} %" in (tmp_path / "hub/README.md").read_text()


def test_nothing_is_overwritten_without_being_asked(run: Path, tmp_path: Path, cli: CommandLine) -> None:
    folder = tmp_path / "hub"
    folder.mkdir()
    (folder / "README.md").write_text("mine")
    (folder / "notes.txt").write_text("mine too")
    result = cli.here("export", run, "--hub-folder", folder)
    assert result.code == 2
    assert "has a README.md already" in " ".join(result.err.split())
    assert tree(folder) == {"README.md": b"mine", "notes.txt": b"mine too"}
    assert cli.here("export", run, "--hub-folder", folder, "--force").code == 0
    assert (folder / "notes.txt").read_text() == "mine too"
    same_outputs(run, "mlp:16:bn", folder)


def test_a_failure_leaves_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedfuse.export.hub_folder.card", full)
    result = cli.here("export", run, "--hub-folder", tmp_path / "hub")
    assert result.code == 2
    assert "No space left on device" in result.err
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported(run: Path, tmp_path: Path, cli: CommandLine) -> None:
    for arguments, message in (
        ((run,), "nothing to export: give --hub-folder"),
        ((tmp_path / "nothing", "--hub-folder", tmp_path / "hub"), "it has no experiment.toml"),
        ((run, "--hub-folder", run / "models"), "is in the run directory"),
        ((run, "--hub-folder", SMALL), "is a file: name a folder"),
    ):
        result = cli.here("export", *arguments)
        assert result.code == 2
        assert message in " ".join(result.err.split())


def test_a_run_that_was_killed(run: Path, tmp_path: Path, cli: CommandLine) -> None:
    killed = tmp_path / "killed"
    shutil.copytree(run, killed)
    shutil.rmtree(killed / "models")
    before = tree(killed)
    result = cli.here("export", killed, "--hub-folder", tmp_path / "hub")
    assert result.code == 2
    assert "finish it with --resume, then export" in " ".join(result.err.split())
    assert tree(killed) == before


# What comes from outside is not believed.


NET = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("was_imported").touch()

def linear(classes, shape):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], classes))
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The mark that a module leaves when it is imported."""
    (tmp_path / "somebodys_net.py").write_text(NET)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "somebodys_net", raising=False)
    return tmp_path / "was_imported"


def test_code_is_run_only_with_the_caller_s_word(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: CommandLine
) -> None:
    arch = "somebodys_net:linear"
    run = fedfuse.run(fedfuse.load(SMALL, {**ONE, "run.rounds": 1, "models.clients": arch}), tmp_path / "run").path
    monkeypatch.delitem(sys.modules, "somebodys_net")
    code.unlink()
    assert cli.here("export", run, "--hub-folder", tmp_path / "hub").code == 0
    for path in (tmp_path / "hub", run / "models" / file_name(arch)):
        with pytest.raises(fedfuse.FedfuseError, match=r"trust_code=True"):
            fedfuse.load_model(path)
    assert not code.exists()
    assert "trust_code=True" in (tmp_path / "hub/README.md").read_text()
    same_outputs(run, arch, tmp_path / "hub", trust_code=True)
    assert code.exists()


def forged(run: Path, file: Path, tensors: dict[str, torch.Tensor] | None = None, **changes: object) -> Path:
    """The run's model with another header or other tensors."""
    source = run / "models" / "mlp-16-bn.safetensors"
    with safetensors.safe_open(source, "pt") as opened:
        header = json.loads(opened.metadata()[HEADER]) | {"sha256": None} | changes  # a forger would leave it out
    tensors = safetensors.torch.load_file(source) | (tensors or {})
    safetensors.torch.save_file(tensors, file, {HEADER: json.dumps(header)})
    return file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arch": "somebodys_net:linear"}, "trust_code"),
        ({"arch": "mlp:8|somebodys_net:linear"}, "trust_code"),
        ({"arch": "somebodys_net:linear+head8"}, "trust_code"),
        ({"arch": "mlp:16"}, "not a model written by fedfuse"),
        ({"arch": "mlp:1000000000-1000000000"}, "not a model written by fedfuse"),
        ({"classes": 10**12}, "not a model written by fedfuse"),
        ({"classes": "ten"}, "not a model written by fedfuse"),
        ({"shape": []}, "cannot have inputs of shape"),
        ({"labels": None}, "not a model written by fedfuse"),
        ({"tensors": {"extra": torch.zeros(1)}}, "'extra'"),
        ({"tensors": {"head.bias": torch.zeros(1)}}, "'head.bias'"),
    ],
    ids=str,
)
def test_a_forged_file_is_refused(changes: dict[str, Any], message: str, run: Path, tmp_path: Path, code: Path) -> None:
    with pytest.raises(fedfuse.FedfuseError, match=message):
        fedfuse.load_model(forged(run, tmp_path / "m.safetensors", **changes))
    assert not code.exists()


def test_loading_draws_from_no_global_generator(run: Path) -> None:
    before = torch.random.get_rng_state()
    fedfuse.load_model(run / "models" / "mlp-16-bn.safetensors")
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_flipped_byte_is_seen(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    content = bytearray((run / "models" / "mlp-16-bn.safetensors").read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(fedfuse.FedfuseError, match=r"model\.safetensors: its SHA-256 does not match"):
        fedfuse.load_model(file)

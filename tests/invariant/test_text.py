"""A federation of texts: a batch is a mapping, and all else is as for images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fedfuse
from fedfuse import load_model
from fedfuse.compute.batches import forward
from fedfuse.export.hub_folder import export_hub_folder
from fedfuse.records.record import RoundRecord
from fedfuse.runs.display import Silent
from fedfuse.types import FedfuseError
from tests.command_line import models_of

transformers = pytest.importorskip("transformers", reason="the models of texts are transformers'")
LENGTH, WORDS = 10, 40


def texts(rows: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """Token ids of 3 classes: a text of class c has the word c + 1 more often than others."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % 3
    ids = torch.randint(5, WORDS, (rows, LENGTH), generator=draw)
    ids = torch.where(torch.rand(rows, LENGTH, generator=draw) < 0.6, y[:, None] + 1, ids)
    mask = (torch.arange(LENGTH) < torch.randint(3, LENGTH + 1, (rows, 1), generator=draw)).long()
    return {"input_ids": ids * mask, "attention_mask": mask}, y


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A folder with a configuration and no weights. Its name is always the same: initial weights depend on it."""
    folder = tmp_path_factory.mktemp("text") / "bert"
    transformers.BertConfig(
        vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, hidden_dropout_prob=0.1,
    ).save_pretrained(folder)  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder.parent)
        yield "hf:./bert"


def experiment(bert: str, algorithm: dict[str, Any], **run: object) -> fedfuse.Experiment:
    return fedfuse.Experiment(
        data={"source": (texts(360, 0), texts(90, 1)), "pool": {"kind": "split", "size": 128}},
        partition={"clients": 3},
        models=bert,
        local={"epochs": 2, "batch_size": 16, "optimizer": "adam", "lr": 0.005},
        algorithm=algorithm,
        run={"rounds": 2, "workers": 1, **run},
    )


class Stopping(Silent):
    """Ends the run after its first round, as Ctrl-C would."""

    def round_ends(self, record: RoundRecord) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedavg"},
        {"name": "feddf", "steps": 20, "batch_size": 32},
        {"name": "fedbe", "epochs": 4, "batch_size": 32, "cycle": 2, "swa_start": 2, "augment": "none"},
        {"name": "ds-fl", "rows": 64, "batch_size": 32},
    ],
    ids=lambda a: a["name"],
)
def test_texts_are_learned_by_the_same_loops(bert: str, algorithm: dict[str, Any], tmp_path: Path) -> None:
    run = fedfuse.run(experiment(bert, algorithm), tmp_path)
    assert not any(record.rejected for record in run.history), run.history[0].rejected
    assert run.final.test_accuracy > 0.5  # by chance 0.33
    assert run.final.note is None


def test_workers_and_resuming_give_the_same_bits(bert: str, tmp_path: Path) -> None:
    """Its layers draw: BERT has dropout."""
    made = experiment(bert, {"name": "feddf", "steps": 10, "batch_size": 32})
    fedfuse.run(made, tmp_path / "here")
    with pytest.raises(KeyboardInterrupt):
        fedfuse.run(made, tmp_path / "apart", display=Stopping())
    fedfuse.run(made.with_settings({"run.workers": 2}), tmp_path / "apart", resume=True)
    assert models_of(tmp_path / "here") == models_of(tmp_path / "apart")


def fed_et(bert: str, **run: object) -> fedfuse.Experiment:
    """Clients of two architectures, and BERT at the server."""
    algorithm = {"name": "fed-et", "head": 16, "steps": 40, "batch_size": 32, "lr": 0.001, "distiller": "adam"}
    made = experiment(bert, algorithm, **run)
    return made.with_settings(
        {"models.clients": {"bag": 2, "lstm": 1}, "models.server": "bert-tiny", "local.schedule": "linear"}
    )


def test_fed_et_distils_a_bag_and_an_lstm_into_bert(bert: str, tmp_path: Path) -> None:
    run = fedfuse.run(fed_et(bert), tmp_path / "run")
    assert not any(record.rejected for record in run.history)
    assert set(run.models) == {"bag+head16", "lstm+head16", "bert-tiny+head16"}
    heads = [{k: t for k, t in m.params.items() if k.startswith("head.")} for m in run.models.values()]
    assert all(torch.equal(heads[0][key], head[key]) for head in heads[1:] for key in heads[0])
    assert run.final.models["bert-tiny+head16"].accuracy > 0.8
    with pytest.raises(KeyboardInterrupt):
        fedfuse.run(fed_et(bert), tmp_path / "apart", display=Stopping())
    fedfuse.run(fed_et(bert, workers=2), tmp_path / "apart", resume=True)
    assert models_of(tmp_path / "run") == models_of(tmp_path / "apart")
    x, _ = texts(8, 2)
    loaded = load_model(tmp_path / "run" / "models" / "bert-tiny-head16.safetensors")
    assert loaded.shape == (LENGTH, WORDS)
    assert forward(loaded.net, x).shape == (8, 3)


def test_a_model_of_texts_is_a_file_and_a_folder(bert: str, tmp_path: Path) -> None:
    run = fedfuse.run(experiment(bert, {"name": "fedavg"}, rounds=1), tmp_path / "run")
    x, _ = texts(8, 2)
    (file,) = (run.path / "models").iterdir()
    export_hub_folder(run.path, tmp_path / "hub")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hub").eval()
    with torch.no_grad():
        logits = [forward(net, x) for net in (load_model(file).net, load_model(tmp_path / "hub").net, theirs)]
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


def test_what_needs_images_says_so(bert: str) -> None:
    made = experiment(bert, {"name": "fedavg"})
    for settings, result in (
        ({"local.augment": "flip"}, "needs images"),
        ({"data.pool": {"kind": "noise", "size": 50}}, "takes images or features, and the data has input_ids"),
        ({"models.clients": "mlp:8"}, "mlp:8 takes images or features, but the data has input_ids"),
        ({"models.clients": "resnet8"}, "resnet8 takes images or features, but the data has input_ids"),
    ):
        with pytest.raises(FedfuseError, match=result):
            fedfuse.check(made.with_settings(settings))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({}, "an empty mapping"),
        ({"input_ids": 5}, "input_ids is a single number"),
        ({"input_ids": ["a", "b"]}, "encode text"),
        ({"input_ids": torch.zeros(3, 4).long(), "attention_mask": torch.zeros(2, 4)}, "one integer per example"),
        ({"input_ids": torch.full((3, 4), 0.5)}, "input_ids holds torch.float32"),
    ],
)
def test_mappings_that_cannot_teach_are_refused(x: Any, message: str, bert: str) -> None:
    y = torch.tensor([0, 1, 2])
    with pytest.raises(FedfuseError, match=message):
        fedfuse.Experiment(data=((x, y), (x, y)), models=bert, local={"steps": 1})

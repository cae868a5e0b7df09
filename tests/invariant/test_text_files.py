"""An experiment on a CSV file of texts, from the file to the exported model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fedfuse
from fedfuse.export.hub_folder import export_hub_folder
from fedfuse.records.stored import StoredRun
from fedfuse.types import DamagedError, FedfuseError
from tests.command_line import CommandLine, models_of
from tests.data.texts.small_texts import write_csv


class Mean(nn.Module):
    """A linear layer on the mean of the tokens' vectors."""

    def __init__(self, classes: int, vocabulary: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, 8)
        self.head = nn.Linear(8, classes)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask[:, :, None].float()
        mean = (self.vectors(input_ids) * mask).sum(1) / mask.sum(1)
        logits: Tensor = self.head(mean)
        return logits


def mean_of_tokens(classes: int, shape: tuple[int, ...]) -> nn.Module:
    return Mean(classes, shape[1])


def experiment(folder: Path, **run: object) -> fedfuse.Experiment:
    file = folder / "reviews.csv"
    if not file.exists():
        write_csv(file, 400, users=40)
    return fedfuse.Experiment(
        data={
            "source": str(file), "text": "text", "vocabulary": 100, "max_length": 8,
            "pool": {"kind": "split", "size": 0.3, "column": "user"},
        },
        partition={"scheme": "column", "clients": 3, "column": "user", "min_size": 20},
        models=f"{__name__}:mean_of_tokens",
        local={"epochs": 2, "batch_size": 16, "optimizer": "adam", "lr": 0.05},
        algorithm={"name": "feddf", "steps": 20, "batch_size": 32},
        run={"rounds": 2, "workers": 1, **run},
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fedfuse.Run:
    folder = tmp_path_factory.mktemp("texts")
    return fedfuse.run(experiment(folder), folder / "run")


def test_texts_are_learned(run: fedfuse.Run) -> None:
    assert run.final.test_accuracy > 0.65  # of long texts the telling word is cut off
    assert not any(record.rejected for record in run.history)


def test_workers_give_the_same_bits(run: fedfuse.Run, tmp_path: Path) -> None:
    fedfuse.run(experiment(run.path.parent, workers=2), tmp_path / "apart")
    assert models_of(run.path) == models_of(tmp_path / "apart")


def test_a_resumed_run_gives_the_same_bits_without_its_cache(
    run: fedfuse.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop:
        def begin(self, *_: Any) -> None: ...
        def round(self, *_: Any) -> None:
            raise KeyboardInterrupt

        def end(self, *_: Any) -> None: ...

    made = experiment(run.path.parent)
    with pytest.raises(KeyboardInterrupt):
        fedfuse.run(made, tmp_path / "run", observers=[Stop()])
    monkeypatch.setenv("FEDFUSE_CACHE", str(tmp_path / "another"))
    fedfuse.run(made, tmp_path / "run", resume=True)
    assert models_of(run.path) == models_of(tmp_path / "run")


def test_the_tokenizer_is_beside_the_model(run: fedfuse.Run, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    (file,) = (run.path / "models").glob("*.safetensors")
    header = export_hub_folder(run.path, tmp_path / "hub")
    assert header.shape[0] == 8
    for path in (file, tmp_path / "hub"):
        loaded = fedfuse.load_model(path, trust_code=True)
        assert loaded.tokenizer is not None
        texts = Tokenizer.from_file(str(loaded.tokenizer)).encode_batch(["the film was great", "awful plot"])
        ids, mask = (torch.tensor([getattr(t, name) for t in texts]) for name in ("ids", "attention_mask"))
        answer = loaded.net(input_ids=ids, attention_mask=mask).argmax(1).tolist()
        assert [loaded.labels[label] for label in answer] == ["pos", "neg"]
    assert 'pipeline_tag: "text-classification"' in (tmp_path / "hub" / "README.md").read_text()
    with (tmp_path / "hub" / "tokenizer.json").open("a") as other:
        other.write(" ")
    with pytest.raises(FedfuseError, match=r"is not the tokenizer of model\.safetensors: restore it"):
        fedfuse.load_model(tmp_path / "hub", trust_code=True)
    (tmp_path / "hub" / "tokenizer.json").unlink()
    assert fedfuse.load_model(tmp_path / "hub", trust_code=True).tokenizer is None


def test_the_records_and_the_report_have_the_lengths(run: fedfuse.Run, tmp_path: Path) -> None:
    from fedfuse.reports.sections import clients
    from fedfuse.reports.variants import Variant

    stored = StoredRun.open(run.path)
    facts = stored.federation
    assert facts is not None
    assert facts.texts is not None
    assert facts.texts.limit == 8
    assert 0 < facts.texts.train.truncated < 1
    assert len(facts.texts.clients) == 3
    section = clients.section([Variant("feddf", [stored], 0)])
    assert section is not None
    (table,) = (block for block in section.blocks if getattr(block, "key", "") == "text-lengths")
    assert [row[0] for row in table.rows] == ["all clients", "pool", "test"]  # type: ignore[union-attr]
    (tmp_path / "copy").mkdir()
    for file in ("experiment.toml", "federation.json"):
        (tmp_path / "copy" / file).write_bytes((run.path / file).read_bytes())
    file = tmp_path / "copy" / "federation.json"
    content = json.loads(file.read_text())
    content["texts"]["train"]["mean"] = "long"
    file.write_text(json.dumps(content))
    with pytest.raises(DamagedError, match=r"texts.*mean"):
        _ = StoredRun.open(tmp_path / "copy").federation


def test_partition_and_check_show_the_lengths(run: fedfuse.Run, cli: CommandLine) -> None:
    file = run.path / "experiment.toml"
    said = cli.here("partition", file)
    assert said.code == 0, said.text
    assert "tokens" in said.out
    assert "texts of pool:" in said.out
    assert "% are cut" in said.out


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"data.max_length": 2}, "data.max_length = 2: input should be greater than or equal to 3"),
        ({"data.vocabulary": 10}, "data.vocabulary = 10: input should be greater than or equal to 64"),
        ({"data.tokenizer": "nothing.json"}, "tokenizer 'nothing.json': there is no such file"),
        ({"data.pool": {"kind": "noise"}}, "takes images or features, and the data has text"),
        ({"local.augment": "flip"}, "needs images"),
    ],
)
def test_settings_that_do_not_fit(run: fedfuse.Run, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(FedfuseError, match=words):
        fedfuse.check(experiment(run.path.parent).with_settings(settings))


def test_texts_may_be_given_in_python(tmp_path: Path) -> None:
    from tests.data.texts.small_texts import sentences

    texts, labels = sentences(120)
    y = [int(label == "pos") for label in labels]
    made = fedfuse.Experiment(
        data={"source": ((texts, y), (texts[:20], y[:20])), "pool": {"kind": "split", "size": 0.5}, "vocabulary": 100},
        partition={"clients": 2},
        models=f"{__name__}:mean_of_tokens",
        local={"steps": 1},
    )
    assert fedfuse.check(made).federation.train.vocabulary > 5

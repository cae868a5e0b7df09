"""Every documented example runs, as its page says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

import fedfuse
from examples.fedadam import Adam, fedadam
from examples.own_algorithm import RunningTrimmedMean
from fedfuse import models
from fedfuse.algorithms import ALGORITHMS
from fedfuse.data.sources import SOURCES
from fedfuse.local import Local
from fedfuse.models import catalogue
from fedfuse.runs.compare import variants
from fedfuse.runs.setup import load_federation
from fedfuse.testing import answers, check_algorithm, small_context
from fedfuse.types import ServerState, Snapshot, Update

ROOT = Path(__file__).parents[2]
ONE_PROCESS = {"run.workers": 1, "run.rounds": 2}


def code(page: str, language: str = "python") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.fixture(autouse=True)
def _from_the_project_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))


@pytest.mark.parametrize("name", ["own_data", "own_model", "own_algorithm"])
def test_experiment_learns(name: str, tmp_path: Path) -> None:
    experiment = fedfuse.load(f"examples/{name}.toml", {**ONE_PROCESS, "run.rounds": 3})
    first, *_, last = fedfuse.run(experiment, tmp_path).history
    chance = 1 / load_federation(experiment).train.classes
    assert last.test_accuracy > 1.5 * chance
    assert last.test_loss < first.test_loss
    assert not last.rejected


def test_settings_of_the_files_reach_the_functions() -> None:
    data, algorithm = fedfuse.load("examples/own_data.toml"), fedfuse.load("examples/own_algorithm.toml")
    assert data.data.settings == {"examples": 1200, "noise": 0.2, "seed": 0}
    assert algorithm.algorithm.settings == {"trim": 1, "mu": 0.01}


def test_trimmed_mean_by_hand() -> None:
    running = RunningTrimmedMean(1, ServerState(0, {}))
    three = [torch.tensor([1.0, 5.0]), torch.tensor([2.0, -100.0]), torch.tensor([9.0, 6.0])]
    assert running.trimmed(*three).tolist() == [2.0, 5.0]
    assert running.trimmed(*three, torch.tensor([4.0, 7.0])).tolist() == [3.0, 5.5]


def test_fedadam_by_hand() -> None:
    """The parameter is 1, the client's 1.5: d = 0.5, m = 0.25, v = 0.25, and the step is 0.1 * 0.25 / (0.5 + 0.5)."""
    adam, client = Adam(lr=0.1, beta1=0.5, beta2=0.75, tau=0.5), Snapshot("net", {"w": torch.tensor([1.5])}, {})
    server = ServerState(0, {"net": Snapshot("net", {"w": torch.tensor([1.0])}, {})})
    for x, m, v in ((1.025, 0.25, 0.25), (1.025 + 0.03625 / (0.24390625**0.5 + 0.5), 0.3625, 0.24390625)):
        running = adam.start(server, None)  # type: ignore[arg-type]  # a mean needs no context
        running.add(Update(0, 10, client))
        models, memory = running.value()
        assert models["net"].params["w"].item() == pytest.approx(x)
        moments = {name: group["w"].item() for name, group in memory.items()}
        assert moments == pytest.approx({"adam-m/net": m, "adam-v/net": v})
        server = ServerState(server.round + 1, models, memory)


def test_own_algorithm_agrees_over_workers(tmp_path: Path) -> None:
    """A module of the user's own is found by the worker processes too."""
    runs = [
        fedfuse.run(fedfuse.load("examples/own_algorithm.toml", {"run.rounds": 1, "run.workers": n}), tmp_path / str(n))
        for n in (1, 2)
    ]
    alone, shared = (run.models["mlp:64-32"].params for run in runs)
    assert all(torch.equal(alone[name], shared[name]) for name in alone)


def test_the_algorithm_guide_shows_the_file() -> None:
    shown = code("docs/guides/own-algorithm.md")
    for file, first in (("own_algorithm", "class TrimmedMean"), ("fedadam", "class Adam")):
        source = (ROOT / f"examples/{file}.py").read_text(encoding="utf-8")
        assert next(block for block in shown if first in block).strip() in source


def test_the_model_guide_shows_the_file() -> None:
    source = (ROOT / "examples/own_model.py").read_text(encoding="utf-8")
    assert code("docs/guides/own-model.md")[0].strip() in source


def test_the_readme_shows_and_runs_fuse(capsys: pytest.CaptureFixture[str]) -> None:
    """Each forest knows seven of ten digits, so none can be above 0.7 or so; the net knows all ten."""
    source = (ROOT / "examples/fuse_forests.py").read_text(encoding="utf-8")
    shown = next(block for block in code("README.md") if "fuse(forests" in block)
    assert shown.strip() in source
    with torch.random.fork_rng():
        executed(shown)
    forests, fused = capsys.readouterr().out.splitlines()
    assert float(fused) > max(float(score) for score in re.findall(r"[\d.]+", forests)) + 0.1


def test_readme_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = next(block for block in code("README.md") if "fedfuse.load_model" in block)
    monkeypatch.chdir(tmp_path)
    net = executed(block.replace('"run.rounds": 5', '"run.rounds": 1, "run.workers": 1'))["net"]
    assert net(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


def test_contributing_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "rings", defined("rings"))  # type: ignore[arg-type]
    settings = {**ONE_PROCESS, "data.source": "rings", "models.clients": "mlp:16", "partition.scheme": "iid"}
    run = fedfuse.run(fedfuse.load("digits", settings), tmp_path)
    assert run.final.test_accuracy > 0.5


def test_contributing_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = models.Architecture("two convolutions", "none", "gn", defined("tinynet"))
    monkeypatch.setitem(catalogue._IMAGE_NETS, "tinynet", entry)
    models.check("tinynet", classes=10, shape=(1, 8, 8))
    models.check("tinynet:bn", classes=3, shape=(3, 32, 32))
    settings = {**ONE_PROCESS, "models.clients": "tinynet", "local.epochs": 1}
    assert fedfuse.run(fedfuse.load("digits", settings), tmp_path).final.round == 2


def test_contributing_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "damped", defined("damped"))  # type: ignore[arg-type]
    base = fedfuse.load("digits", {**ONE_PROCESS, "local.epochs": 1})
    whole = fedfuse.run(base.with_settings({"algorithm.name": "damped", "algorithm.rate": 1.0}), tmp_path / "damped")
    average = fedfuse.run(base, tmp_path / "fedavg")
    for name, tensor in average.models["mlp:64-32"].params.items():
        assert torch.equal(tensor, whole.models["mlp:64-32"].params[name])
    with pytest.raises(fedfuse.FedfuseError, match=r"must be in \(0, 1\]"):
        base.with_settings({"algorithm.name": "damped", "algorithm.rate": 2.0}).algorithm.build()


def test_term_of_the_guide() -> None:
    """0.5 times the sum of three distances of 1."""
    block = next(b for b in code("docs/guides/own-algorithm.md") if "class L1" in b)
    imports = ("import torch", "from dataclasses import dataclass", "from torch import Tensor, nn")
    term = executed("\n".join((*imports, "from fedfuse.local import Local", block)))["L1"](0.5)
    net = torch.nn.Linear(2, 1)
    local = Local([p.detach() - 1 for p in net.parameters()], {}, {})
    assert term(net, torch.zeros(1, 2), torch.zeros(1), local).item() == pytest.approx(1.5)


def test_the_laws_of_the_guide() -> None:
    """The guide's trimmed mean keeps the laws that it is held to, and the one that it is exempt from catches it."""
    block = next(b for b in code("docs/guides/own-algorithm.md") if "check_algorithm(" in b)
    check, trimmed = (executed(block)[name] for name in ("check_algorithm", "fed_trimmed"))
    with pytest.raises(AssertionError, match=r"updates_are_a_stream: .*of 4 clients were held at once.*exempt=\{"):
        check(trimmed())
    with pytest.raises(fedfuse.FedfuseError, match="there is no law 'gravity'"):
        check(trimmed(), exempt={"gravity": "not on this planet"})


def test_the_law_that_fedadam_breaks_is_the_one_of_the_guide() -> None:
    shown = next(b for b in code("docs/guides/own-algorithm.md", "text") if "breaks the law" in b)
    with pytest.raises(AssertionError) as broken:
        check_algorithm(fedadam())
    assert str(broken.value) == shown.strip()


def compositions() -> list[str]:
    """What the guide's table and its commands say after -a."""
    text = (ROOT / "docs/guides/compositions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]*\| `(.*)` \|$", text, re.MULTILINE)
    return [*rows, *re.findall(r"-a '([^']*)'", text)]


@pytest.mark.parametrize("text", compositions())
def test_compositions_of_the_guide(text: str) -> None:
    """Each can be run on the digits, as it is written."""
    ((_, made),) = variants(fedfuse.load("digits"), [text], [0]).items()
    fedfuse.check(made)
    assert made.algorithm.build().name == text.partition("(")[0]


def test_composition_in_python() -> None:
    mine = executed(code("docs/guides/compositions.md")[0])["mine"]
    ctx = small_context(mine, ("mlp:8", "mlp:6"))
    server = ServerState(0, ctx.initial())
    fused, facts = mine.fuse(server, answers(mine, server, ctx), ctx)
    assert facts.teachers == 4 + 2 * 10
    assert ctx.server in fused.models


def test_image_folder_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's first file, on a folder of images as it describes."""
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("datasets")
    from sklearn.datasets import load_digits

    digits = load_digits()
    for i in range(240):
        folder = tmp_path / "photos" / ("test" if i % 6 == 0 else "train") / str(digits.target[i])
        folder.mkdir(parents=True, exist_ok=True)
        image.fromarray((digits.images[i] * 15).astype("uint8")).save(folder / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    sections = tomllib.loads(code("docs/guides/own-data.md", "toml")[0])
    federation = fedfuse.check(fedfuse.Experiment(**sections).with_settings({"partition.min_size": 1})).federation
    assert federation.train.shape == (1, 32, 32)
    assert (len(federation.train) + len(federation.validation), len(federation.test)) == (200, 40)


def executed(block: str) -> dict[str, Any]:
    """The names that a block of code leaves behind. It does not inherit this file's `from __future__`."""
    names: dict[str, Any] = {"__name__": "a_documented_example"}
    exec(compile(block, "a documented example", "exec", dont_inherit=True), names)
    return names


def defined(name: str) -> Any:
    """What a block of CONTRIBUTING defines."""
    return executed(next(block for block in code("CONTRIBUTING.md") if f"def {name}(" in block))[name]

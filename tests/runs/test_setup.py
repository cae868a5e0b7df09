"""Whatever can be known before training, `check` says; and a refused run leaves nothing that blocks the next."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedfuse
from fedfuse.compute.threads import cores
from fedfuse.runs.run import default_path
from tests.command_line import SMALL, CommandLine

EXPERIMENT = SMALL[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-a", "feddf"), "needs unlabeled data at the server"),
        (("-a", "feddf(batch_size=70)", "--set", "data.pool.kind=split", "--set", "data.pool.size=60"), "60"),
        (("--set", "local.augment=tilt"), "tilt"),
        (("-a", 'feddf(augment="tilt")', "--set", "data.pool.kind=split"), "tilt"),
        (("--set", "run.quorum=4"), "run.quorum = 4: a round asks 3 of 5 clients"),
        (("--set", "run.threads=100000"), f"run.threads = 100000: this machine has {cores()} cores"),
        (("--set", "run.workers=100000"), "run.workers = 100000"),
        (("--set", "models.clients=mlp:100000000000"), "GiB"),
        (("--set", "models.clients=resnet8", "--set", "data.source=swiss-roll"), "needs images"),
        (("--set", "data.pool.kind=split", "--set", "data.pool.size=-4"), "-4"),
        (("--set", "data.pool.kind=split", "--set", "data.pool.size=1000000"), "asks for 1,000,000 of 1,293"),
        (("-a", "fedprox(mu=nan)"), "algorithm.mu = nan"),
        (("--set", "run.seed=true"), "run.seed = True"),
    ],
    ids=str,
)
def test_check_and_run_refuse_the_same_in_one_line(
    cli: CommandLine, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    checked = cli.here("check", EXPERIMENT, *arguments)
    assert (checked.code, checked.out) == (2, "")
    assert message in checked.err
    assert checked.err.count("\n") == 1
    out = tmp_path / "run"
    refused = cli.here("run", EXPERIMENT, *arguments, "--out", out)
    assert (refused.code, refused.err) == (2, checked.err)
    assert not out.exists()


def test_a_directory_without_a_finished_round_is_begun_anew(cli: CommandLine, tmp_path: Path) -> None:
    """Something that only shows in round 1 must not block the corrected command."""
    out = tmp_path / "run"
    failed = cli.here("run", EXPERIMENT, "--set", "algorithm.name=tests.doubles:never_fuses", "--out", out)
    assert failed.code == 2
    assert "cannot be fused" in failed.err
    assert (out / "experiment.toml").exists()
    assert cli.here("run", EXPERIMENT, "-r", "1", "--no-report", "--out", out).code == 0


@pytest.mark.parametrize("target", ["85", "nan", "-1", "0"])
def test_a_target_that_is_no_share_is_refused_before_training(cli: CommandLine, target: str, tmp_path: Path) -> None:
    out = tmp_path / "runs"
    result = cli.here("compare", EXPERIMENT, "-a", "fedavg", "--target", target, "--out", out)
    assert result.code == 2
    assert f"--target {target}: give a share of the test set between 0 and 1" in result.err
    assert not out.exists()


def test_a_run_without_a_place_stays_below_runs() -> None:
    """A name is no path."""
    folders = {"../../elsewhere": "elsewhere", "a/b": "a-b", "...": "experiment", "plain_name": "plain_name"}
    for name, folder in folders.items():
        made = fedfuse.Experiment(name=name, data={"source": "digits"}, models="mlp:4")
        assert default_path(made, resume=False) == Path("runs") / f"{folder}-fedavg-seed0"

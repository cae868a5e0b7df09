"""One round from a common model, in many variations. `python -m fedfuse.papers.measures.one_round FOLDER` is a process.

The folder has the experiment that trains the common model, `common.toml`, and those of the variations in `rounds/`,
whose data and partition are the same. Each round's record is written beside its experiment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from fedfuse.compute.threads import cores
from fedfuse.config.experiment import Experiment, load
from fedfuse.data.federation import Federation
from fedfuse.engines import InProcess
from fedfuse.files import slug, write_whole
from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.record import RoundRecord
from fedfuse.round import run_round
from fedfuse.runs.run import run
from fedfuse.runs.setup import load_federation, set_up
from fedfuse.select import cohort_size, select
from fedfuse.types import FedfuseError, ServerState

COMMON, ROUNDS = "common.toml", "rounds"


def prepare(folder: Path, common: Experiment, variations: Mapping[str, Experiment]) -> None:
    """Write the experiments of a folder. A variation that was measured with other settings will be measured again."""
    (folder / ROUNDS).mkdir(parents=True, exist_ok=True)
    write_whole(folder / COMMON, common.toml().encode())
    for name, experiment in variations.items():
        file, text = _file(folder, name), experiment.toml()
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.with_suffix(".json").unlink(missing_ok=True)
            write_whole(file, text.encode())


def measure_all(folders: Sequence[Path]) -> Iterator[Path]:
    """Measure every folder in a process of its own, as many at once as there are cores. Yield each that is finished."""
    with ThreadPoolExecutor(cores()) as executor:
        yield from executor.map(_in_process, folders)


def _in_process(folder: Path) -> Path:
    command = [sys.executable, "-m", "fedfuse.papers.measures.one_round", str(folder)]
    result = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise FedfuseError(f"{folder}: the process that measures it ended with {result.returncode}: {last}")
    return folder


def read(folder: Path, name: str) -> RoundRecord:
    """Return the record of a variation."""
    return RoundRecord.parse(_file(folder, name).with_suffix(".json").read_text(encoding="utf-8"))


def _file(folder: Path, name: str) -> Path:
    return folder / ROUNDS / f"{slug(name, '=')}.toml"


def measure(folder: Path) -> None:
    """Train the common model, then run the rounds that have no record yet."""
    common, path = load(folder / COMMON), folder / "common"
    federation = load_federation(common)
    models = run(common, path, resume=(path / EXPERIMENT).exists(), federation=federation).models
    for file in sorted((folder / ROUNDS).glob("*.toml")):
        place = file.with_suffix(".json")
        if not place.exists():
            record = _round(load(file), ServerState(common.run.rounds, models), federation)
            write_whole(place, record.line().encode())


def _round(experiment: Experiment, server: ServerState, federation: Federation) -> RoundRecord:
    """Run the next round. Its cohort is the same in every variation."""
    setup = set_up(experiment, federation)
    ctx = setup.ctx.at(server.round + 1)
    sizes = torch.tensor(federation.sizes)
    number = cohort_size(len(sizes), experiment.run.fraction)
    cohort = select(sizes, number, experiment.run.selection or "uniform", ctx.rng("select", ctx.round))
    with setup.arithmetic():
        return run_round(setup.algorithm, server, InProcess(), cohort, experiment.run.vetting(), ctx)[1]


if __name__ == "__main__":
    measure(Path(sys.argv[1]))

"""How to reproduce the numbers: command, versions, hashes."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedfuse.records.directory import EXPERIMENT
from fedfuse.records.stored import StoredRun
from fedfuse.reports.elements import Block, Section, Table, Words
from fedfuse.reports.figure import Cell
from fedfuse.reports.variants import Variant


def section(variants: Sequence[Variant]) -> Section:
    runs = [run for variant in variants for run in variant.runs]
    names = {run.path: variant.name for variant in variants for run in variant.runs}
    text = (
        "Each run directory holds its complete experiment. This command reproduces the first run, bit for bit on the "
        "same versions and kind of machine:"
    )
    blocks: list[Block] = [Words(text), Words(command(runs[0]), code=True), _versions(runs), _hashes(runs, names)]
    return Section("origin", "Reproduce", blocks)


def command(run: StoredRun) -> str:
    return f"fedfuse run {shlex.quote(str(run.path / EXPERIMENT))} --out again"


def _versions(runs: Sequence[StoredRun]) -> Table:
    """Return a table with one column per distinct set of versions, usually one."""
    keys = ("fedfuse", "torch", "python", "machine", "threads")
    sets = {tuple(str(run.experiment.provenance.get(key, "?")) for key in keys) for run in runs}
    rows: list[list[Cell]] = [[key, *(each[i] for each in sorted(sets))] for i, key in enumerate(keys)]
    columns = ["", "version"] if len(sets) == 1 else ["", *(f"version {i + 1}" for i in range(len(sets)))]
    return Table("versions", "Versions", columns, rows, columns)


def _hashes(runs: Sequence[StoredRun], names: Mapping[Path, str]) -> Table:
    rows: list[list[Cell]] = []
    for run in runs:
        digest = hashlib.sha256((run.path / EXPERIMENT).read_bytes()).hexdigest()
        hashes: dict[str, str] = {
            "data and partition": str(run.experiment.provenance.get("data", "?")),
            EXPERIMENT: digest,
            **run.model_hashes,
        }
        rows += [[names[run.path], run.seed, what, digest] for what, digest in hashes.items()]
    return Table(
        "hashes", "SHA-256", ["algorithm", "seed", "of", "SHA-256"], rows, ("algorithm", "of", "SHA-256"), folded=True
    )

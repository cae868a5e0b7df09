"""One round from a common model: the same clients in every variation, and nothing is measured twice."""

from pathlib import Path

import fedfuse
from fedfuse.papers.item import load
from fedfuse.papers.measures import one_round
from fedfuse.papers.measures.distillation_map import measure as measure_map
from fedfuse.runs.display import Silent

COMMON = {"data.examples": 200, "data.pool": {"kind": "noise", "size": 32}, "models.clients": "mlp:8",
          "run.rounds": 1, "run.workers": 1, "run.fraction": 0.3}  # fmt: skip
FEDDF = {"algorithm.name": "feddf", "algorithm.steps": 2, "algorithm.batch_size": 16, "run.rounds": 2}


def variations(epochs: int) -> dict[str, fedfuse.Experiment]:
    base = {**COMMON, **FEDDF}
    return {
        "short": fedfuse.load("synthetic", base),
        "long": fedfuse.load("synthetic", {**base, "local.epochs": epochs}),
    }


def test_variations_follow_one_model_and_are_measured_once(tmp_path: Path) -> None:
    common = fedfuse.load("synthetic", COMMON)
    one_round.prepare(tmp_path, common, variations(epochs=3))
    one_round.measure(tmp_path)
    short, long = (one_round.read(tmp_path, name) for name in ("short", "long"))
    assert short.round == long.round == 2
    assert short.cohort == long.cohort
    assert short.facts.clients is not None
    assert short.clients != long.clients  # longer training goes further from the common model

    one_round.prepare(tmp_path, common, variations(epochs=9))
    assert [path.stem for path in (tmp_path / one_round.ROUNDS).glob("*.json")] == ["short"]  # the other one changed
    one_round.measure(tmp_path)
    assert one_round.read(tmp_path, "short") == short
    assert one_round.read(tmp_path, "long") != long


def test_the_map_reads_all_rows_from_each_round(tmp_path: Path) -> None:
    """With one group, on made-up data: the process that measures is a real one."""
    item = load("where-distillation-pays")
    groups = [group for group in item.groups if group.name == "1, 5, none, 0.1"]
    settings = {**COMMON, "partition.scheme": "dirichlet", "partition.min_size": 1}
    small = item.scale("small").model_copy(
        update={"experiment": "synthetic", "settings": settings, "values": {"steps": 2}}
    )
    rows = [r.model_copy(update={"algorithm": "feddf(steps={steps}, batch_size=16)"}) for r in item.rows]
    item = item.model_copy(update={"groups": tuple(groups), "small": small, "rows": tuple(rows)})
    curves = measure_map(item, "small", range(1), tmp_path, Silent())
    assert set(curves) == {"1, 5, none, 0.1"}
    assert set(curves["1, 5, none, 0.1"]) == {"mean client", "average", "ensemble", "student"}
    assert all(0 <= value <= 1 for seeds in curves["1, 5, none, 0.1"].values() for (value,) in seeds)

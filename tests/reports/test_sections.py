"""What a report says, against numbers done on paper."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fedfuse
from fedfuse.engines.workers import Marker
from fedfuse.facts import ClientQuality, Discrepancy
from fedfuse.reports.elements import Amount, Choice, Section, Table, Words, figures_and_tables
from fedfuse.reports.figure import Bars, Curves, Heat
from fedfuse.reports.page import Report, report_of
from fedfuse.reports.read import find
from fedfuse.reports.sections.targets import default_targets
from fedfuse.reports.variants import variants_of
from fedfuse.reports.watch import version
from fedfuse.types import FedfuseError
from tests.reports.written import BINS, a_run, distilled

FACTS = [distilled(0.2, 0.4, 0.6, 0.5), distilled(0.4, 0.6, 0.8, 0.9)]


@pytest.fixture
def compared(tmp_path: Path) -> Path:
    """FedDF over two seeds is 0.1 and 0.2 above FedAvg at the end."""
    a_run(tmp_path / "feddf-0", [0.5, 0.9], algorithm="feddf", seed=0, facts=FACTS)
    a_run(tmp_path / "feddf-1", [0.5, 0.8], algorithm="feddf", seed=1, facts=FACTS)
    a_run(tmp_path / "avg-0", [0.4, 0.8], seed=0)
    a_run(tmp_path / "avg-1", [0.7, 0.6], seed=1)
    return tmp_path


def section(report: Report, key: str) -> Section:
    return next(s for s in report.sections if s.key == key)


def block(report: Report, key: str) -> object:
    return next(b for b in figures_and_tables(report.sections) if b.key == key)


def texts(table: Table) -> list[list[object]]:
    return [[cell.text if isinstance(cell, Amount) else cell for cell in row] for row in table.rows]


def words(report: Report) -> str:
    return " ".join(b.text for b in section(report, "verdict").blocks if isinstance(b, Words))


def test_the_verdict_of_a_comparison(compared: Path) -> None:
    report = report_of([compared], target=0.8)
    # Final accuracies 0.9 and 0.8, deviation sqrt(2 x 0.05^2); the gaps are 0.1 and 0.2, with a standard error of 0.05.
    # Student's t with one degree of freedom is 12.706 at 97.5 %: 15 - 12.706 x 5 = -48.5.
    assert report.decision == (
        "Choose feddf: it ends highest with 85.00 ± 7.07 % test accuracy, 15.00 ± 5.00 points (likely, but 2 seeds are "
        "few: the 95 % interval is -48.5 to +78.5) above fedavg. It costs the same bytes and the same time."
    )
    assert [(card.title, card.value) for card in section(report, "verdict").cards] == [
        ("final accuracy", "85.00 ± 7.07 %"),
        ("points above fedavg", "+15.00 ± 5.00"),
        ("rounds to 80 %", "2"),
        ("sent by a run", "1.6 kB"),
        ("time of a run", "6.0 s"),
    ]
    result = words(report)
    assert "feddf reaches 80 % in 2 rounds, fedavg in > 2." in result
    # The student against the average: +0.1 and +0.3; the ensemble against the student: +0.1 and -0.1.
    assert "Distillation changes the accuracy of the average by +20.00 points (mean over rounds);" in result
    assert "the ensemble is 0.00 points" in result


def test_one_seed_is_said_to_be_one(tmp_path: Path) -> None:
    a_run(tmp_path / "a", [0.5])
    a_run(tmp_path / "b", [0.4], algorithm="feddf")
    assert report_of([tmp_path]).decision == (
        "Stay with fedavg: it ends highest with 50.00 % test accuracy, 10.00 points (one seed: chance is not ruled "
        "out) above the second, feddf."
    )


def test_a_lead_within_noise_is_no_winner_and_a_clear_gain_is_named(tmp_path: Path) -> None:
    # Gains over fedavg: feddf 0, 0.1 and 0.2 with a standard error of 0.058; fedbe 0.05, 0.06 and 0.07, of 0.0058.
    for seed in range(3):
        a_run(tmp_path / f"avg-{seed}", [0.5], seed=seed)
        a_run(tmp_path / f"df-{seed}", [0.5 + seed / 10], algorithm="feddf", seed=seed)
        a_run(tmp_path / f"be-{seed}", [0.55 + seed / 100], algorithm="fedbe", seed=seed)
    report = report_of([tmp_path])
    assert report.decision.startswith(
        "No clear winner: feddf ends highest with 60.00 ± 10.00 % test accuracy, but its lead of 10.00 ± 5.77 points "
        "over fedavg is no clear difference over 3 seeds."
    )
    assert report.decision.endswith("Above fedavg by more than two standard errors: fedbe (6.00 ± 0.58 points).")
    assert words(report).startswith("fedbe is 4.00 ± 5.20 points below: no clear difference from feddf.")
    results = block(report, "results")
    assert isinstance(results, Table)
    assert [row[0] for row in results.rows] == ["feddf", "fedbe", "fedavg"]  # by result, the card's leader first


def test_a_killed_run_is_reported_as_far_as_it_came(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5, 0.6], rounds=5, happened=[("begun", 0, "")])
    with (run / "rounds.jsonl").open("a") as half:
        half.write('{"round": 3, "coh')
    report = report_of([run])
    assert words(report).startswith("Not finished: 2 of 5 rounds are recorded.")
    assert {s.key for s in report.sections} >= {"verdict", "learning", "clients", "cost", "origin"}


def test_a_run_without_rounds_has_an_empty_report(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [], rounds=3, happened=[("begun", 0, "")])
    report = report_of([run])
    assert (report.title, list(report.sections)) == ("animals: fedavg", [])
    assert report.decision == "Round 1 of 3 is under way, and is shown here when it ends."


def test_the_start_of_workers_is_told(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [], rounds=3, happened=[("begun", 0, "")])
    markers = [Marker(run / ".scratch/federation", number) for number in range(2)]
    before = version([run])
    markers[1].ready()
    assert report_of([run]).decision == (
        "Starting: 1 of 2 worker processes is ready; each loads PyTorch and the data. Round 1 of 3 follows."
    )
    assert version([run]) != before  # so that a page that is open shows it
    markers[0].ready()
    assert report_of([run]).decision.startswith("Round 1 of 3 is under way by 2 workers")


def test_a_run_that_stopped_before_its_first_round_says_why(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [], rounds=3, happened=[("begun", 0, ""), ("stopped", 0, "disk full")])
    assert report_of([run]).decision == "Stopped before round 1 ended: disk full"


def test_an_older_run_without_the_further_files_is_reported(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5])
    for name in ("federation.json", "evaluation.json", "events.jsonl"):
        (run / name).unlink()
    assert [s.key for s in report_of([run]).sections] == ["verdict", "learning", "targets", "cost", "origin"]


def test_empty_sections_do_not_appear(tmp_path: Path) -> None:
    plain = report_of([a_run(tmp_path / "plain", [0.5])])
    assert not {"distillation", "incidents", "search"} & {s.key for s in plain.sections}
    distilled = report_of([a_run(tmp_path / "taught", [0.5], algorithm="feddf", facts=FACTS[:1])])
    assert "distillation" in {s.key for s in distilled.sections}


def test_no_runs_is_an_error_that_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match=r"contains no run .*experiment\.toml"):
        report_of([tmp_path])
    with pytest.raises(FedfuseError, match="no such directory"):
        report_of([tmp_path / "nowhere"])
    with pytest.raises(FedfuseError, match="between 0 and 1"):
        report_of([a_run(tmp_path / "run", [0.5])], target=85)


def test_runs_that_differ_in_their_seed_alone_are_one_line(tmp_path: Path) -> None:
    for seed in (1, 0):
        a_run(tmp_path / f"mu-{seed}", [0.5], algorithm={"name": "fedprox", "mu": 0.1}, seed=seed)
    a_run(tmp_path / "mu1", [0.5], algorithm={"name": "fedprox", "mu": 1.0})
    a_run(tmp_path / "z", [0.5])
    variants = variants_of(find([tmp_path]))
    # FedAvg is the baseline and comes first; namesakes say in which setting they differ.
    assert [(line.name, line.seeds) for line in variants] == [
        ("fedavg", [0]),
        ("fedprox(mu=0.1)", [0, 1]),
        ("fedprox(mu=1)", [0]),
    ]
    assert [line.suffix for line in variants] == ["-fedavg", "-fedprox-mu=0.1", "-fedprox-mu=1"]


def test_bands_are_deviations_over_seeds(compared: Path) -> None:
    curves = block(report_of([compared]), "learning-curves")
    assert isinstance(curves, Curves)
    average, feddf = curves.series
    assert (average.name, list(average.y)) == ("fedavg", pytest.approx([55.0, 70.0]))
    assert list(average.deviation) == pytest.approx([21.2132, 14.1421], abs=1e-4)
    assert list(feddf.deviation) == pytest.approx([0.0, 7.0711], abs=1e-4)


def test_the_ladder_is_the_mean_over_rounds(compared: Path) -> None:
    ladder = block(report_of([compared]), "ladder")
    assert isinstance(ladder, Bars)
    assert list(ladder.categories) == ["mean client", "average", "ensemble", "student"]
    assert list(ladder.bars[0].values) == pytest.approx([30.0, 50.0, 70.0, 70.0])
    assert list(ladder.bars[0].texts) == ["30.0", "50.0 (+20.0)", "70.0 (+20.0)", "70.0 (+0.0)"]


def test_what_a_target_costs_is_censored(compared: Path) -> None:
    table = block(report_of([compared], target=0.7), "targets")
    assert isinstance(table, Table)
    # FedAvg: round 2 and round 1, 400 and 200 numbers. FedDF: round 2 twice.
    assert texts(table) == [["feddf", "2", "400", "2 of 2"], ["fedavg", "1.5", "300", "2 of 2"]]
    assert "lower bound" not in table.caption
    high = block(report_of([compared], target=0.9), "targets")
    assert isinstance(high, Table)
    assert texts(high) == [["feddf", "> 2", "> 400", "1 of 2"], ["fedavg", "> 2", "> 400", "0 of 2"]]
    assert "lower bound" in high.caption


def test_targets_are_what_all_and_what_the_best_reach(compared: Path) -> None:
    # Best in the mean over seeds: FedAvg 0.75, FedDF 0.85.
    assert default_targets(variants_of(find([compared]))) == [0.75, 0.85]


def test_confusion_and_classes(compared: Path) -> None:
    report = report_of([compared])
    heat, classes = block(report, "confusion-feddf"), block(report, "classes")
    assert isinstance(heat, Heat)
    assert isinstance(classes, Bars)
    assert heat.counts == [[6, 2, 0], [0, 4, 0], [2, 2, 4]]  # over two seeds
    assert heat.shares[2] == [25.0, 25.0, 50.0]
    assert list(classes.bars[0].values) == [75.0, 100.0, 50.0]
    assert list(classes.categories) == ["cat", "dog", "owl"]


def test_histograms_of_samples_stand_beside_those_of_clients(tmp_path: Path) -> None:
    with_samples = replace(FACTS[-1], samples=ClientQuality(0.5, 0.4, 0.6, BINS))
    run = a_run(tmp_path / "run", [0.5, 0.6], algorithm="fedbe", facts=[FACTS[0], with_samples])
    names = [each.key for each in section(report_of([run]), "calibration").blocks if isinstance(each, Bars)]
    assert names == ["confidence-clients", "confidence-samples", "confidence-ensemble", "confidence-student"]
    samples = block(report_of([run]), "confidence-samples")
    assert isinstance(samples, Bars)
    assert [bar.values[14] for bar in samples.bars] == [60.0, 20.0]  # of 10 answers 6 right and 2 wrong


def test_the_calibration_error_by_hand() -> None:
    # Two wrong answers of confidence 0.9, and eight of 0.95 of which six are right: (1.8 + 1.6) / 10.
    assert BINS.calibration_error == pytest.approx(0.34)


def test_clients_are_counted(tmp_path: Path) -> None:
    refused = {1: {"1": "parameter w is not finite"}}
    run = a_run(tmp_path / "run", [0.5, 0.6], algorithm="feddf", facts=FACTS, rejected=refused)
    table = block(report_of([run]), "clients")
    assert isinstance(table, Table)
    head = [
        "client",
        "architecture",
        "examples",
        "classes",
        "asked",
        "accepted",
        "refused",
        "distance",
        "agreement / %",
    ]
    assert list(table.columns) == [*head, "why refused, last"]
    assert [list(row) for row in table.rows] == [
        [0, "mlp:8", 4, 1, 2, 2, 0, 1.0, 50.0, None],
        [1, "mlp:8", 6, 3, 2, 1, 1, 3.0, 100.0, "parameter w is not finite"],
    ]


def test_a_caption_is_about_columns_that_are_there(tmp_path: Path) -> None:
    plain = block(report_of([a_run(tmp_path / "plain", [0.5])]), "clients")
    taught = block(report_of([a_run(tmp_path / "taught", [0.5], algorithm="feddf", facts=FACTS[:1])]), "clients")
    cost = block(report_of([tmp_path / "plain"]), "cost")
    assert isinstance(plain, Table)
    assert isinstance(taught, Table)
    assert isinstance(cost, Table)
    assert ("agreement / %" in plain.columns, "Agreement" in plain.caption) == (False, False)
    assert ("agreement / %" in taught.columns, "Agreement" in taught.caption) == (True, True)
    assert ("peak memory, workers" in cost.columns, "workers" in cost.caption, "seeds" in cost.caption) == (False,) * 3


def test_a_torn_line_is_told(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", [0.5])
    with (run / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "te')
    table = block(report_of([run]), "incidents")
    assert isinstance(table, Table)
    assert [row[-1] for row in table.rows if "rounds.jsonl" in str(row[-1])] == [
        "the last line of rounds.jsonl is incomplete, as after a kill: it is left out"
    ]


def test_incidents_are_told_in_order(tmp_path: Path) -> None:
    happened = [
        ("begun", 0, ""),
        ("resumed", 1, ""),
        ("stopped", 2, "by the keyboard"),
        ("resumed", 2, ""),
        ("finished", 3, ""),
    ]
    run = a_run(
        tmp_path / "run",
        [0.5, 0.6, 0.7],
        rejected={2: {"1": "moved too far"}},
        facts=[{}, {"warning": "this pool hurts"}, {"dropped": {"0": "outputs are not finite"}}],
        happened=happened,  # type: ignore[arg-type]
    )
    table = block(report_of([run]), "incidents")
    assert isinstance(table, Table)
    assert [row[2:] for row in table.rows] == [
        [1, "resumed after an abrupt end, as when killed"],
        [2, "client 1 moved too far"],
        [2, "this pool hurts"],
        [2, "stopped: by the keyboard"],
        [2, "resumed"],
        [3, "client 0 was left out of the fusion: outputs are not finite"],
    ]


def test_several_lines_share_a_place(compared: Path) -> None:
    chosen = [b for b in section(report_of([compared]), "calibration").blocks if isinstance(b, Choice)]
    assert list(chosen[0].options) == ["fedavg", "feddf"]


def test_the_command_makes_the_run_again(tmp_path: Path) -> None:
    run = a_run(tmp_path / "my run", [0.5])
    result = [b.text for b in section(report_of([run]), "origin").blocks if isinstance(b, Words) and b.code]
    assert result == [f"fedfuse run '{run}/experiment.toml' --out again"]


def test_accuracy_is_drawn_against_uploaded_bytes(compared: Path) -> None:
    figure = block(report_of([compared]), "accuracy-by-upload")
    assert isinstance(figure, Curves)
    # 400 bytes a round; FedAvg first: the means of (0.4, 0.7) and (0.8, 0.6).
    assert figure.series[0].x == pytest.approx([0.0004, 0.0008])
    assert figure.series[0].y == pytest.approx([55.0, 70.0])


def test_a_clients_upload_is_shown_if_one_is_in_fewer_bits(tmp_path: Path) -> None:
    made = fedfuse.Experiment(
        data={"source": "synthetic", "examples": 60, "classes": 3, "shape": [4]},
        partition={"clients": 2},
        models={"clients": {"mlp:8-6:1bit": 1, "mlp:8-6": 1}},
        local={"steps": 1, "batch_size": 8},
        run={"rounds": 1, "workers": 1},
    )
    fedfuse.run(made, tmp_path / "mixed")
    fedfuse.run(made.with_settings({"models.clients": "mlp:8-6"}), tmp_path / "plain")
    table = block(report_of([tmp_path / "mixed"]), "clients")
    assert isinstance(table, Table)
    assert {row[list(table.columns).index("upload")] for row in table.rows} == {"1bit, one-bit net", "float32"}
    plain = block(report_of([tmp_path / "plain"]), "clients")
    assert isinstance(plain, Table)
    assert "upload" not in plain.columns


def test_discrepancies_are_columns_of_the_clients_and_terms_of_the_bound(tmp_path: Path) -> None:
    """Client 0: to the pool 0.5, to the others 1.0; client 1: 1.5 and 2.0, so half the mean of the latter is 75 %."""
    facts = replace(
        distilled(0.2, 0.4, 0.6, 0.5),
        discrepancy={"0": Discrepancy(0.5, 1.0, 0.1), "1": Discrepancy(1.5, 2.0, None)},
    )
    page = report_of([a_run(tmp_path / "run", [0.5, 0.6], algorithm="feddf", facts=[facts, facts])])
    tables = {b.key: b for b in figures_and_tables(page.sections) if isinstance(b, Table)}
    clients, bound = tables["clients"], tables["bound"]
    columns = [clients.columns.index(c) for c in ("discrepancy to pool", "discrepancy to others", "own error / %")]
    assert [[row[i] for i in columns] for row in clients.rows] == [[0.5, 1.0, 10.0], [1.5, 2.0, None]]
    assert list(bound.rows[0]) == ["feddf", 10.0, 75.0, 40.0]
    plain = report_of([a_run(tmp_path / "plain", [0.5])])
    assert "bound" not in {b.key for b in figures_and_tables(plain.sections)}

"""The files of the papers' tables and figures, and the page of their results."""

from pathlib import Path

import pytest

from fedfuse import signature
from fedfuse.config.overlay import algorithm_settings
from fedfuse.papers import item as items
from fedfuse.papers import overview
from fedfuse.papers.comparison import experiment_of
from fedfuse.papers.result import Result, read_all
from fedfuse.papers.study import described
from fedfuse.types import FedfuseError

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "benchmarks" / "papers" / "results", ROOT / "docs" / "papers" / "results.md"


@pytest.mark.parametrize("name", items.names())
def test_an_item_states_experiments_and_algorithms_that_exist(name: str):
    whole = items.load(name)
    for scale in whole.scales:
        item, tried = whole.at(scale), set[str]()
        assert described(item, scale)
        if item.measured_by is not None:
            assert callable(signature.import_function(item.measured_by, "measure"))
        for group in item.groups if item.scale(scale).experiment else ():
            experiment = experiment_of(item, group, scale)
            texts = {item.algorithm(row, scale, group) for row in item.rows_of(group.name)} - tried
            for text in () if item.measured_by else texts:
                experiment.with_settings(algorithm_settings(text)).algorithm.build()
            tried |= texts


def test_the_page_is_that_of_the_files_of_results():
    written = PAGE.read_text(encoding="utf-8")
    assert written == overview.text(read_all(RESULTS)), (
        "write it again: fedfuse papers table benchmarks/papers/results --out docs/papers/results.md"
    )
    drawn = {path.name for path in (PAGE.parent / "figures").iterdir()}
    assert {part.split(")")[0] for part in written.split("(figures/")[1:]} == drawn


def test_results_come_from_items_as_they_are():
    for name, result in read_all(RESULTS).items():
        item = result.of(items.load(result.item))
        expected = {group.name: {row.name for row in item.rows_of(group.name)} for group in item.groups}
        assert {group: set(rows) for group, rows in result.curves.items()} == expected, name


def test_a_result_is_read_as_it_was_written(tmp_path: Path):
    curves = {"all": {"FedAvg": [[0.25, 0.5]]}}
    result = Result("a", "small", [0], "2020-01-01", "0000000", "command", 0.5, "setting", curves)
    result.write(tmp_path / "deep" / "a.json")
    assert Result.read(tmp_path / "deep" / "a.json") == result


def test_an_unknown_name_is_an_error_with_a_hint():
    with pytest.raises(FedfuseError, match="feddf-figure-2"):
        items.load("feddf-figur-2")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"claims": [{"says": "x", "higher": "FedDG", "lower": "FedAvg"}]}, "no group"),
        ({"claims": [{"says": "x", "higher": "a / FedDG", "lower": "all / FedAvg"}]}, "FedDG"),
        ({"numbers": [{"row": "FedProx", "value": 1.0}]}, "FedProx"),
        ({"measure": "rounds"}, "target"),
        ({"small": None}, "not_small"),
    ],
)
def test_an_item_that_contradicts_itself_is_refused(change: dict[str, object], words: str):
    rows = [{"name": "FedAvg", "algorithm": "fedavg"}]
    whole = {"title": "t", "paper": "FedDF", "place": "Table 1", "shows": "s", "rows": rows}
    with pytest.raises(ValueError, match=words):
        items.Item(**{**whole, "small": {"experiment": "digits"}, **change})


def test_a_description_states_what_all_groups_share():
    item = items.load("feddf-table-1").at("small")
    share = "20% a round, "  # of the clients: varies between groups
    assert described(item, "small").startswith("experiment digits, 10 clients, 12 rounds, 40 local epochs. ")
    one = items.load("feddf-table-1").at("small", groups=[item.groups[0].name])
    assert described(one, "small").startswith(f"experiment digits, 10 clients, {share}12 rounds, 40 local epochs. ")


def test_where_nothing_is_trained_no_rounds_are_described():
    item = items.load("feddf-figure-9").at("small")
    assert described(item, "small").startswith("experiment cifar10, 20 clients. The partition")

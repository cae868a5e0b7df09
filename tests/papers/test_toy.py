"""FedDF's toy: the local models know their classes, averaging blurs them, and the picture is written."""

from pathlib import Path

from fedfuse.papers.item import load
from fedfuse.papers.measures.toy import AVERAGE, ENSEMBLE, STUDENT, Sizes, measure_sizes
from fedfuse.papers.study import PICTURE
from fedfuse.runs.display import Silent


def test_the_toy_shows_what_the_paper_shows(tmp_path: Path) -> None:
    item = load("feddf-figure-1").at("small", ["own initial weights"])
    curves = measure_sizes(item, range(3), tmp_path, Silent(), Sizes(epochs=20, steps=200, pixels=20))
    assert (tmp_path / PICTURE).stat().st_size > 1000
    mean = {name: sum(value for (value,) in seeds) / 3 for name, seeds in curves["own initial weights"].items()}
    assert set(mean) == {row.name for row in item.rows}
    assert max(mean["local model 1"], mean["local model 2"]) < 0.7  # two classes of three
    assert min(mean[ENSEMBLE], mean[STUDENT]) > 0.9
    assert mean[STUDENT] > mean[AVERAGE] + 0.05

import math
from pathlib import Path

import pytest
import torch

from fedfuse.data.federation import federate
from fedfuse.data.partition import iid
from fedfuse.data.picture import draw, summary
from fedfuse.data.sources import load
from fedfuse.types import FedfuseError

COUNTS = torch.tensor([[5, 0, 1], [0, 9, 2]])
PANEL = COUNTS, ("ant", "bee", "cow")


def test_summary_by_hand() -> None:
    data = load("synthetic", arguments={"examples": 8, "classes": 2, "shape": [1, 2, 2]})
    made = federate(
        data, clients=2, scheme=lambda e, k, g: [torch.tensor([0, 1, 2, 3]), torch.tensor([4, 6])], validation=0
    )
    first, second = summary(made)
    assert (first.client, first.examples, first.counts, first.present) == (0, 4, (2, 2), 2)
    assert first.entropy == pytest.approx(math.log(2))
    assert (second.examples, second.counts, second.entropy, second.present) == (2, (2, 0), 0.0, 1)


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml")])
def test_a_picture_is_written(suffix: str, start: bytes, tmp_path: Path) -> None:
    path = tmp_path / "new" / f"dots{suffix}"
    draw({"one": PANEL, "two": PANEL}, path, title="A title that is long enough to wrap " * 4)
    assert path.read_bytes().startswith(start)


def test_many_clients_and_classes_fit(tmp_path: Path) -> None:
    made = federate(load("digits"), clients=100, scheme=iid)
    draw({"": (made.counts, made.labels)}, tmp_path / "dots.svg")
    text = (tmp_path / "dots.svg").read_text()
    width = float(text.split('width="')[1].split("pt")[0])
    assert width < 72 * 15


def test_panels_of_other_classes_have_labels_of_their_own(tmp_path: Path) -> None:
    alike, other = tmp_path / "alike.svg", tmp_path / "other.svg"
    draw({"one": PANEL, "two": PANEL}, alike)
    draw({"one": PANEL, "two": (COUNTS[:, :2], ("dog", "eel"))}, other)
    words = ("ant", "dog", "eel")
    assert [[alike.read_text().count(f"<!-- {w} -->") for w in words] for alike in (alike, other)] == [
        [1, 0, 0],
        [1, 1, 1],
    ]


def test_an_unknown_kind_of_picture(tmp_path: Path) -> None:
    with pytest.raises(FedfuseError, match=r"a picture is \.svg, \.png or \.pdf"):
        draw({"": PANEL}, tmp_path / "dots.gif")


def test_no_global_state_of_matplotlib_is_touched(tmp_path: Path) -> None:
    import sys

    sys.modules.pop("matplotlib.pyplot", None)
    draw({"": PANEL}, tmp_path / "dots.png")
    assert "matplotlib.pyplot" not in sys.modules

"""The commands of examples/flower/README.md as on several machines: each has a network of its own, joined by a bridge.

What changes is what the page says under "On several machines", and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import fedfuse
from tests.command_line import rounds_of
from tests.flower.federations import bits_of
from tests.flower.networks import OWN, WHY_NOT, joined, possible
from tests.flower.page import carried_out, copied, on_digits, replaced

pytestmark = pytest.mark.federation

NAME = "fl.example.org"  # as on the page
REFUSED = """
if ip netns exec node-1 timeout 5 openssl s_client -connect 10.9.0.2:9094 < /dev/null; then
    echo 'a node takes connections from another machine'
fi
"""


def on_several_machines(page: str) -> str:
    """The page's commands, each on its machine. `flwr` is used on the SuperLink's."""
    at_link, at_node = "ip netns exec link", "ip netns exec node-$1"
    page = replaced(
        page, 'certify "$PLACE/link" IP:127.0.0.1,DNS:localhost', f"certify $PLACE/link DNS:{NAME},IP:127.0.0.1"
    )
    page = replaced(page, "flower-superlink --host 127.0.0.1", f"{at_link} flower-superlink --host 0.0.0.0")
    page = replaced(page, "until openssl", f"until {at_link} openssl")
    page = replaced(
        page, "flower-superexec --runtime-api-address 127.0.0.1:8000",
        f"{at_link} flower-superexec --runtime-api-address 127.0.0.1:8000",
    )  # fmt: skip
    page = replaced(
        page, "flower-supernode --superlink 127.0.0.1:8000", f"{at_node} flower-supernode --superlink {NAME}:8000"
    )
    page = replaced(
        page,
        "flower-superexec --runtime-api-address 127.0.0.1:$((",
        f"{at_node} flower-superexec --runtime-api-address 127.0.0.1:$((",
    )
    page = replaced(page, "do flwr supernode", f"do {at_link} flwr supernode")
    page = replaced(page, "\nflwr run", f"\n{at_link} flwr run", times=2)
    page = replaced(page, "\nflwr list", f"\n{REFUSED}{at_link} flwr list")
    return joined("link", "node-0", "node-1", "node-2", names=(NAME,)) + page


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    if not possible():
        pytest.skip(WHY_NOT)
    folder = tmp_path_factory.mktemp("machines")
    copied(folder)
    with carried_out(on_several_machines(on_digits()), folder, OWN) as (result, _):
        yield folder, result


def test_the_federation_gives_the_bits_of_one_process(followed: tuple[Path, str], tmp_path: Path) -> None:
    folder, _ = followed
    (record,) = rounds_of(folder / "runs" / "flower-digits")
    assert (len(record["cohort"]), record["rejected"]) == (3, {})
    fedfuse.run(fedfuse.load(folder / "examples" / "flower" / "digits" / "experiment.toml"), tmp_path / "here")
    assert bits_of(folder / "runs" / "flower-digits") == bits_of(tmp_path / "here")


def test_nothing_connects_to_a_node(followed: tuple[Path, str]) -> None:
    _, result = followed
    assert "connect:errno=111" in result  # refused: nothing listens there but on the node's own loopback
    assert "a node takes connections" not in result

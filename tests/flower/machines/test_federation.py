"""A federation of three machines as `fedfuse flower init` makes it, by the commands of its pages.

Each machine has a network of its own, joined to the others by a bridge.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

import fedfuse
from fedfuse.flower.machines.folders import Plan, make
from fedfuse.runs.setup import load_federation
from tests.command_line import rounds_of
from tests.docs.test_operations import NGINX
from tests.flower.federations import bits_of
from tests.flower.networks import OWN, WHY_NOT, joined, possible
from tests.flower.page import carried_out

pytestmark = pytest.mark.federation
NAME, NODES = "fl.example.org", ("hospital-a", "hospital-b")
SETTINGS = {
    "partition.clients": len(NODES),
    "local.epochs": 1,
    "algorithm.name": "scaffold",
    "run.fraction": 1.0,
    "run.rounds": 2,
    "run.quorum": 2,
    "run.workers": 1,
}
BEYOND = """
for path in /v1/control/list-nodes /v1/fleet/register-node /docs; do
    ip netns exec hospital-a python - $path <<'END'
import http.client, ssl, sys
trust = ssl.create_default_context(cafile="trust/ca.pem")
connection = http.client.HTTPSConnection("fl.example.org", 8443, context=trust)
connection.request("POST", sys.argv[1], body=b"")
print("beyond", sys.argv[1], connection.getresponse().status)
END
done
"""


def three_commands(folder: Path) -> list[str]:
    """Those of the machine's page. The first makes the venv, which downloads: the test's own stands for it."""
    block = re.search(r"^```sh\n(.*?)^```", (folder / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    first, second, third = block[1].splitlines()
    assert first == "python3 -m venv venv && venv/bin/pip install --requirement requirements.txt"
    (folder / "venv").symlink_to(sys.prefix)
    return [second, third]


def script(out: Path) -> str:
    """Each machine's commands, on it. The server starts first; its last command runs the experiment."""
    start, run = three_commands(out / "server")
    at = "ip netns exec"
    text = joined("server", *NODES, names=(NAME,))
    text += f"cd {out}/server\n{at} server {start} > start.log 2>&1 &\n"
    text += f"cd {out}/server\nuntil grep -q 'Ctrl-C stops it' start.log; do sleep 1; done\n"
    for name in NODES:
        check, start = three_commands(out / name)
        text += f"cd {out}/{name}\n{at} {name} {check}\n{at} {name} {start} > start.log 2>&1 &\n"
    text += f"cd {out}/{NODES[0]}\n{BEYOND}"
    text += f"cd {out}/server\n{at} server {run}\n{at} server venv/bin/fedfuse flower status\n"
    return text


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    if not possible():
        pytest.skip(WHY_NOT)
    if NGINX is None:
        pytest.skip("the server's proxy is nginx, which is not installed here")
    folder = tmp_path_factory.mktemp("hospitals")
    out = folder / "federation"
    made = fedfuse.load("digits", SETTINGS)
    make(Plan(made, NAME, 8443, NODES, share=False), out)
    federation = load_federation(made)
    for number, name in enumerate(NODES):
        share = federation.train.subset(federation.client(number))
        assert isinstance(share.x, Tensor)
        np.savez(out / name / "data" / "train.npz", x=share.x.numpy(), y=share.y.numpy())
    with carried_out(script(out), folder, OWN) as (output, _):
        yield out, output


def test_the_federation_gives_the_bits_of_one_process(followed: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = followed
    run = out / "server" / "runs" / "digits"
    assert [(record["cohort"], record["rejected"]) for record in rounds_of(run)] == [([0, 1], {})] * 2
    fedfuse.run(fedfuse.load("digits", SETTINGS), tmp_path / "here")
    assert bits_of(run) == bits_of(tmp_path / "here")


def test_the_nodes_found_nothing_wrong_and_the_server_knows_them(followed: tuple[Path, str]) -> None:
    out, output = followed
    assert output.count("certificate: ok") == output.count("clock: ok") == len(NODES)
    assert "registered: hospital-a, hospital-b" in (out / "server" / "start.log").read_text()
    assert re.search(r"hospital-b +online +1 +2 +0", output), output[-1500:]
    assert "digits: round 2 of 2, finished" in output


def test_nobody_but_a_node_gets_through(followed: tuple[Path, str]) -> None:
    _, output = followed
    assert re.findall(r"beyond (\S+) (\d+)", output) == [
        ("/v1/control/list-nodes", "404"),
        ("/v1/fleet/register-node", "404"),
        ("/docs", "404"),
    ]

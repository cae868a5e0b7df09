"""The commands of examples/flower/README.md, and a shell that carries them out."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

import fedfuse
from fedfuse.flower.loopback.processes import COLOURS
from tests.command_line import ROOT
from tests.flower.federations import LIKE_CIFAR

PAGE = ROOT / "examples" / "flower" / "README.md"
SECONDS = 800  # for the whole page, which takes some 300

STOP = 'for file in "$PLACE"/node-?/*.pid'

# Blocks that the shell of this test does not run, by how they begin, and why.
ASIDE = {
    "fedfuse flower up": "a federation of its own: test_one_command",
    "python3 -m venv": "downloads packages; the test's own environment has them",
    "fedfuse watch": "serves until it is stopped: it is run beside the shell, and its page is fetched",
}


def blocks() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"^```(\w+)$", text, re.MULTILINE)) == {"sh"}, "a block that is not tested"
    return re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def block(beginning: str) -> str:
    """The one that begins so."""
    (text,) = (text for text in blocks() if text.startswith(beginning))
    return text


def copied(folder: Path) -> None:
    """The examples, in a place where they may be changed: one round on digits, and on images like CIFAR's two."""
    for program in ("openssl", "ssh-keygen"):
        if shutil.which(program) is None:
            pytest.skip(f"the page makes certificates and keys with {program}, which is not installed here")
    shutil.copytree(ROOT / "examples" / "flower", folder / "examples" / "flower")
    experiment = folder / "examples" / "flower" / "digits" / "experiment.toml"
    experiment.write_text(replaced(experiment.read_text(encoding="utf-8"), "rounds = 3", "rounds = 1"))
    images = folder / "examples" / "flower" / "cifar10" / "experiment.toml"
    images.write_text(fedfuse.load(images, LIKE_CIFAR).toml())


def replaced(text: str, old: str, new: str, times: int = 1) -> str:
    assert text.count(old) == times, f"{old!r} is there {text.count(old)} times"
    return text.replace(old, new)


def on_digits() -> str:
    """The page up to its stop, in its order, but for what is run aside."""
    stop = blocks().index(block(STOP))
    return "".join(each for each in blocks()[: stop + 1] if not each.startswith(tuple(ASIDE)))


def on_images() -> str:
    """What the page says of CIFAR-10: all was stopped, the SuperLink is started again, then nodes with their data."""
    with_data = block('for k in 0 1 2; do node $k "capability')
    return block("python examples") + block("flower-superlink") + block("until openssl") + with_data + block(STOP)


@contextmanager
def carried_out(
    commands: str, folder: Path, with_timeout: Sequence[str] = (), look: Callable[[int], None] = lambda session: None
) -> Iterator[tuple[str, int]]:
    """What the commands said, and the session that they ran in; in the end nothing of it is left.

    The shell runs inside the program `within`. `look` is called with the session every few seconds.
    """
    (folder / "script.sh").write_text("set -e\n" + commands, encoding="utf-8")
    environment = {
        **os.environ,
        "HOME": str(folder),  # so that ~/federation is here
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "COLUMNS": "200",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",  # seconds; it shortens the test alone
    }
    log = folder / "said.txt"
    with log.open("wb") as out:
        # `timeout` ends the shell and what it started even if this process is gone.
        process = subprocess.Popen(
            ["timeout", "-k", "10", str(SECONDS), *with_timeout, "sh", "script.sh"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        while process.poll() is None:
            look(process.pid)
            time.sleep(3)
        output = COLOURS.sub("", log.read_text(encoding="utf-8", errors="replace"))
        logs = "".join(f"\n--- {file}\n{file.read_text()[-1500:]}" for file in folder.glob("federation/*/*.log"))
        assert process.returncode == 0, f"exit code {process.returncode}\n{output[-3000:]}{logs}"
        yield output, process.pid
    finally:
        for pid in session(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def session(id: int) -> list[int]:
    """The processes that this session has left."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, belongs, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(belongs) == id and state != "Z":
            pids.append(int(stat.parent.name))
    return pids

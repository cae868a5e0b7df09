"""What `fedfuse flower up` stands on: credentials, processes, the app that it writes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from flwr.cli.config_utils import load_and_validate

import fedfuse
from fedfuse.flower import Deployment
from fedfuse.flower.app import write_app
from fedfuse.flower.loopback.credentials import HOST, Credentials
from fedfuse.flower.loopback.processes import Processes, environment, free_ports
from fedfuse.flower.server import cohort_notice
from tests.command_line import ROOT, CommandLine
from tests.flower.federations import experiment


def shaken(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """A TLS handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting


def test_the_certificate_is_good_for_loopback_and_for_nothing_else(tmp_path: Path) -> None:
    made = Credentials.make(tmp_path / "mine", 2)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.certificate, made.key)
    client = ssl.create_default_context(cafile=str(made.authority))
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    shaken(server, client, HOST)
    with pytest.raises(ssl.SSLCertVerificationError, match=r"not valid for 'example\.org'"):
        shaken(server, client, "example.org")
    other = ssl.create_default_context(cafile=str(Credentials.make(tmp_path / "other", 0).authority))
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(server, other, HOST)


def test_credentials_are_their_owners_alone(tmp_path: Path) -> None:
    folder = Credentials.make(tmp_path / "made", 2).folder
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert not list(folder.glob("ca*key*"))


def test_ports_are_different() -> None:
    assert len(set(free_ports(20, HOST))) == 20


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    return Processes(tmp_path / "logs", environment(tmp_path))


def python(code: str) -> list[str]:
    return [Path(sys.executable).name, "-c", code]


def test_a_command_that_fails_shows_the_end_of_its_log(processes: Processes) -> None:
    with processes, pytest.raises(fedfuse.FedfuseError, match=r"made failed with exit code 3:\n  because"):
        processes.run("made", python("print('because'); raise SystemExit(3)"), 60)


def test_a_command_that_hangs_is_ended(processes: Processes) -> None:
    with processes, pytest.raises(fedfuse.FedfuseError, match="did not end within 1 s"):
        processes.run("made", python("import time; time.sleep(60)"), 1)


def test_leaving_ends_what_was_started_and_nothing_else(processes: Processes) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with processes:
            processes.start("made", python("import time; time.sleep(60)"))
            pid = processes.pid("made")
            assert processes.ended("made") is None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_a_process_started_ends_with_it(processes: Processes, tmp_path: Path) -> None:
    """An app that ignores the end of its parent would hold the run directory."""
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    )
    code = (
        f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {stubborn!r}]);"
        "print(p.pid, flush=True); time.sleep(60)"
    )
    with processes:
        processes.start("made", python(code))
        for _ in range(100):
            result = processes.log("made").read_text().split()
            if "up" in result:
                break
            time.sleep(0.1)
    (child,) = (int(word) for word in result if word.isdigit())
    assert ends(child, 1.0)


def ends(pid: int, seconds: float) -> bool:
    """Whether the process has ended by then. One whose end nobody has asked after is a zombie."""
    state, deadline = Path(f"/proc/{pid}/stat"), time.monotonic() + seconds
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def start_a_child(folder: Path) -> None:
    """Start a process that starts another, say its number, and wait."""
    code = (
        "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"open({str(folder / 'grandchild')!r}, 'w').write(str(p.pid)); time.sleep(60)"
    )
    with Processes(folder, environment(folder)) as made:
        made.start("child", python(code))
        (folder / "child").write_text(str(made.pid("child")))
        time.sleep(60)


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    """Neither what it started nor what that started in turn, as an executor starts apps."""
    parent = multiprocessing.get_context("fork").Process(target=start_a_child, args=(tmp_path,))
    parent.start()
    files, deadline = [tmp_path / "child", tmp_path / "grandchild"], time.monotonic() + 60
    while not all(file.exists() and file.read_text() for file in files):
        assert parent.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    parent.kill()
    parent.join()
    left = [pid for pid in (int(file.read_text()) for file in files) if not ends(pid, 10.0)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.mark.parametrize("folder", ["written", "example"])
def test_flower_takes_the_app(folder: str, tmp_path: Path) -> None:
    place = ROOT / "examples" / "flower" / "digits"
    if folder == "written":
        place = tmp_path / "app"
        write_app(place, experiment("scaffold"), Deployment("out", timeout=5))
    config, _ = load_and_validate(place / "pyproject.toml")
    assert {"out", "resume", "timeout", "wait"} <= set(config["tool"]["flwr"]["app"]["config"])
    assert fedfuse.load(place / "experiment.toml").partition.clients == 3


def test_up_does_not_overwrite_a_run(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").touch()
    result = cli.here("flower", "up", "digits", "--out", tmp_path)
    assert result.code == 2
    assert "--resume, or choose another --out" in result.err
    assert list(tmp_path.iterdir()) == [tmp_path / "experiment.toml"]


def test_a_run_config_overrides_where_it_says_something() -> None:
    base = Deployment("here", timeout=5.0)
    assert base.overridden({"out": "", "timeout": 7, "other": 1}) == Deployment("here", timeout=7)
    with pytest.raises(fedfuse.FedfuseError, match="timeout = 0"):
        base.overridden({"timeout": 0})


@pytest.mark.parametrize(
    ("more", "fraction", "notice"),
    [((), 1.0, None), (("--set", "run.fraction=0.4"), 0.4, "each round asks 1 of 2 nodes (run.fraction = 0.4)")],
)
def test_all_nodes_take_part_unless_asked_otherwise(
    more: tuple[str, ...], fraction: float, notice: str | None, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the built-in experiment, whose own fraction is below 1."""
    asked: list[fedfuse.Experiment] = []

    def stop(experiment: fedfuse.Experiment, *rest: object) -> None:
        asked.append(experiment)
        raise fedfuse.FedfuseError("enough")

    monkeypatch.setattr("fedfuse.flower.loopback.up.up", stop)
    assert fedfuse.load("digits").run.fraction < 1
    cli.here("flower", "up", "digits", "--nodes", "2", *more)
    assert asked[0].run.fraction == fraction
    said = cohort_notice(asked[0])
    assert said is None if notice is None else notice in str(said)

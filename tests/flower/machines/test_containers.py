"""The compose files that `fedfuse flower init` writes, with podman: a server and a node, each in its containers.

The images are not built as the Dockerfile says, which downloads packages: empty ones stand for them, into which this
system's programs are mounted. Everything else is as in the compose files: mounts, users, networks, commands.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import fedfuse
from fedfuse.flower.machines.folders import Plan, make
from tests.command_line import ROOT, rounds_of
from tests.flower.networks import OWN, WHY_NOT, possible
from tests.flower.page import carried_out

pytestmark = pytest.mark.federation
NAME, ADDRESS = "fl.example.org", "10.9.0.1"
SETTINGS = {"partition.clients": 1, "local.epochs": 1, "algorithm.name": "fedavg", "run.rounds": 1, "run.fraction": 1.0}
PROGRAMS = ("podman", "podman-compose", "runc", "iptables", "nginx")
HOST = [*(f"/{name}" for name in ("usr", "lib", "lib64", "bin", "sbin")), sys.base_prefix, sys.prefix, str(ROOT)]
ENGINE = """
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
"""


def override(folder: Path) -> None:
    """What stands for the images' contents, and for the DNS."""
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/sbin", "/usr/bin"])
    own: dict[str, dict[str, object]] = {}
    for name, service in services.items():
        own[name] = {
            "volumes": [f"{place}:{place}:ro" for place in HOST if Path(place).exists()],
            "environment": {"PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        }
        if "network_mode" not in service:
            own[name]["extra_hosts"] = [f"{NAME}:{ADDRESS}"]
    (folder / "override.yaml").write_text(json.dumps({"services": own}))


def script(folder: Path) -> str:
    compose = "podman-compose -f compose.yaml -f override.yaml"
    images = " ".join(f"fedfuse-{name}-{kind}" for name in ("server", "hospital-a") for kind in ("network", "apps"))
    return f"""
mount -t tmpfs tmpfs /run
ip link set lo up
ip link add outside type bridge
ip address add {ADDRESS}/24 dev outside
ip link set outside up
export CONTAINERS_CONF={folder}/containers.conf CONTAINERS_STORAGE_CONF={folder}/storage.conf
for image in {images}; do podman build --quiet --tag $image {folder}/image; done
cd {folder}/federation/server
{compose} up --detach
cd ../hospital-a
{compose} up --detach
sleep 20
{compose} exec -T apps fedfuse flower check || true
cd ../server
{compose} exec -T apps fedfuse flower run
{compose} exec -T apps fedfuse flower status
{compose} down
cd ../hospital-a
{compose} down
"""


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    if not possible():
        pytest.skip(WHY_NOT)
    missing = [program for program in PROGRAMS if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("containers")
    make(Plan(fedfuse.load("digits", SETTINGS), NAME, 8443, ["hospital-a"], share=True), folder / "federation")
    for name in ("server", "hospital-a"):
        override(folder / "federation" / name)
    for file, text in {"tmp/empty": "", "etc/passwd": "root:x:0:0::/:/bin/sh\n", "etc/group": "root:x:0:\n"}.items():
        (folder / "image" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "image" / file).write_text(text)
    (folder / "image" / "Dockerfile").write_text("FROM scratch\nCOPY tmp /tmp\nCOPY etc /etc\n")
    (folder / "containers.conf").write_text(ENGINE)
    storage = f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/storage"\nrunroot = "/run/storage"\n'
    (folder / "storage.conf").write_text(storage)
    try:
        with carried_out(script(folder), folder, OWN) as (output, _):
            yield folder, output
    finally:
        subprocess.run(["chmod", "-R", "u+w", str(folder / "storage")], check=False)


def test_a_run_in_containers(followed: tuple[Path, str]) -> None:
    folder, output = followed
    (record,) = rounds_of(folder / "federation" / "server" / "runs" / "digits")
    assert (record["cohort"], record["rejected"]) == ([0], {})
    assert "certificate: ok" in output
    assert "digits: round 1 of 1, finished" in output


def test_apps_do_not_see_the_keys(followed: tuple[Path, str]) -> None:
    """`check` runs among the apps: it would complain of keys that it sees and cannot read."""
    _, output = followed
    assert "files: ok" in output

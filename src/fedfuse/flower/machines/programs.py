"""The programs that run on a machine, as command lines: the same for systemd, containers and a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedfuse.flower.machines.machine import LINK_PORT, LOOPBACK, NODE_PORT, Machine, Place

APPS, PROXY = "apps", "proxy"
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Program:
    """A program that runs until it is stopped, and the port on which it listens, if it does."""

    command: list[str]
    port: int | None = None
    writes: str = "home"  # the folder for what Flower writes


def programs(machine: Machine, root: Path, nginx: str = "nginx") -> Mapping[str, Program]:
    """Return the programs of this machine by name, in the order in which they start, for a folder at `root`."""
    place = Place(root)
    if machine.role == "server":
        return {
            "superlink": Program(_superlink(place), LINK_PORT, "state"),
            APPS: Program(_executor(place, LINK_PORT)),
            PROXY: Program([nginx, "-e", "stderr", *_at(root), "-g", "daemon off;"], machine.port, "state"),
        }
    return {
        "supernode": Program(_supernode(machine, place), NODE_PORT, "state"),
        APPS: Program(_executor(place, NODE_PORT)),
    }


def _at(root: Path) -> list[str]:
    return ["-p", f"{root}/", "-c", "nginx.conf"]


def _superlink(place: Place) -> list[str]:
    return [
        "flower-superlink", *_listening(place, LINK_PORT), "--enable-supernode-auth",
        "--database", str(place.state / "superlink.db"),
    ]  # fmt: skip


def _supernode(machine: Machine, place: Place) -> list[str]:
    config = f'partition-id={machine.number} name="{machine.name}" memory-dir="{place.memory}"'
    if machine.data:
        config += f' data="{place.root / machine.data}"'
    return [
        "flower-supernode", "--superlink", f"{machine.server}:{machine.port}",
        "--root-certificates", str(place.authority), "--auth-supernode-private-key", str(place.node_key),
        "--node-config", config, *_listening(place, NODE_PORT),
    ]  # fmt: skip


def _listening(place: Place, port: int) -> list[str]:
    return [
        "--host", LOOPBACK, "--port", str(port),
        "--ssl-certfile", str(place.local_certificate), "--ssl-keyfile", str(place.local_key),
        "--ssl-ca-certfile", str(place.local_authority),
        "--isolation", "process", "--superexec-auth-secret-file", str(place.secret),
    ]  # fmt: skip


def _executor(place: Place, port: int) -> list[str]:
    return [
        "flower-superexec", "--runtime-api-address", f"{LOOPBACK}:{port}",
        "--root-certificates", str(place.local_authority), "--superexec-auth-secret-file", str(place.secret),
    ]  # fmt: skip

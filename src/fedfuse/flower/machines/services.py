"""Write what runs a machine: requirements, systemd services, containers, the proxy, and the administrator's page."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from fedfuse.flower.machines.machine import LINK_PORT, Machine
from fedfuse.flower.machines.programs import APPS, ENVIRONMENT, PROXY, programs

FOLDER = Path("@FOLDER@")  # in services: install.sh replaces it by where the folder is
INSIDE = Path("/federation")  # in containers
NGINX = "apt-get update && apt-get install --yes --no-install-recommends nginx-light && "


def template(name: str, values: Mapping[str, object] = MappingProxyType({})) -> str:
    """Return a template with each @KEY@ replaced. A key that is left is an error, but for @FOLDER@."""
    text = (files("fedfuse.flower.machines") / "templates" / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key.upper()}@", str(value))
    left = set(re.findall(r"@[A-Z_]+@", text)) - {str(FOLDER)}
    assert not left, f"{name}: {left}"
    return text


def write_services(folder: Path, machine: Machine) -> None:
    """Write requirements, the proxy's configuration, containers and services."""
    made = machine.versions
    wheel = f"./wheels/fedfuse-{made['fedfuse']}-py3-none-any.whl[flower]"
    _write(folder / "requirements.txt", f"{wheel}\nflwr=={made['flwr']}\ntorch=={made['torch'].partition('+')[0]}\n")
    if machine.role == "server":
        values = {"port": machine.port, "server": machine.server, "link_port": LINK_PORT}
        _write(folder / "nginx.conf", template("nginx.conf", values))
    _write_containers(folder, machine)
    _write_units(folder / "systemd", machine)


def _write_containers(folder: Path, machine: Machine) -> None:
    made, inside = machine.versions, programs(machine, INSIDE)
    commands = {name: json.dumps(program.command) for name, program in inside.items()}
    variables = ", ".join(f'{key}: "{value}"' for key, value in ENVIRONMENT.items())
    values = {**commands, "environment": variables, "name": machine.name, "port": machine.port}
    _write(folder / "compose.yaml", template(f"compose-{machine.role}.yaml", values))
    nginx = NGINX if machine.role == "server" else ""
    _write(
        folder / "Dockerfile", template("Dockerfile", {"python": made["python"], "flwr": made["flwr"], "nginx": nginx})
    )
    _write(folder / ".dockerignore", "*\n!requirements.txt\n!wheels\n")


def _write_units(folder: Path, machine: Machine) -> None:
    folder.mkdir()
    units = []
    for name, program in programs(machine, FOLDER, nginx="/usr/sbin/nginx").items():
        first, *rest = program.command
        command = [first if first.startswith("/") else f"{FOLDER}/venv/bin/{first}", *rest]
        lines = [f"Environment={key}={value}" for key, value in ENVIRONMENT.items()]
        lines.append(f"Environment=FLWR_HOME={FOLDER}/{program.writes}/flower")
        lines.append(f"Environment=PATH={FOLDER}/venv/bin:/usr/bin:/bin")
        values = {
            "name": name,
            "title": machine.title,
            "user": "fedfuse-apps" if name == APPS else "fedfuse",
            "environment": "\n".join(lines),
            "command": " ".join(shlex.quote(word) for word in command),
            "writes": " ".join(f"{FOLDER}/{each}" for each in _written(machine, name, program.writes)),
            "more": _more(machine, name),
        }
        units.append(f"fedfuse-{name}.service")
        _write(folder / units[-1], template("service", values))
    apps = " ".join(_written(machine, APPS, "")[1:])
    _write(folder / "install.sh", template("install.sh", {"apps_folders": apps, "units": " ".join(units)}))


def _written(machine: Machine, name: str, own: str) -> list[str]:
    if name != APPS:
        return [own]
    return [own, "runs" if machine.role == "server" else "memory"]


def _more(machine: Machine, name: str) -> str:
    if name == APPS:
        return f"InaccessiblePaths={FOLDER}/keys\n"
    return "AmbientCapabilities=CAP_NET_BIND_SERVICE\n" if name == PROXY and machine.port < 1024 else ""


def write_page(folder: Path, machine: Machine, expires: datetime) -> None:
    """Write the page with the three commands that the machine's administrator types."""
    python = machine.versions["python"]
    if machine.role == "server":
        values = {"server": machine.server, "port": machine.port, "python": python, "expires": f"{expires:%Y-%m-%d}"}
        _write(folder / "README.md", template("README-server.txt", values))
        return
    data = "It reads its share of the experiment's data, for trying things out."
    if machine.data:
        data = (
            f"Put its data\ninto `{machine.data}/`: a file `train.npz` with arrays x (N, ...) and y (N,), or files as "
            "`data.source` of the\nexperiment takes them. `app/data.toml` says which shape and classes they must have. "
            "They do not leave the node."
        )
    values = {"name": machine.name, "server": machine.server, "port": machine.port, "python": python, "data": data}
    _write(folder / "README.md", template("README-node.txt", values))


def write_overview(out: Path, server: Machine, nodes: Sequence[str], expires: datetime) -> None:
    """Write the page of who made the federation."""
    rows = [f"| `server` | {server.server} | [server/README.md](server/README.md) |"]
    rows += [f"| `{name}` | the node {name} | [{name}/README.md]({name}/README.md) |" for name in nodes]
    values = {"server": server.server, "count": f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}"}
    values |= {"experiment": server.experiment, "rows": "\n".join(rows), "expires": f"{expires:%Y-%m-%d}"}
    _write(out / "README.md", template("README.txt", values))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")

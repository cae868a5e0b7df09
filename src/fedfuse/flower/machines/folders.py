"""Make the folders of a federation's machines: `fedfuse flower init`, `add` and `renew`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from fedfuse.config.experiment import Experiment
from fedfuse.files import slug
from fedfuse.flower.app import write_app
from fedfuse.flower.certificates import Signed, new_authority, new_server, write_node_key, write_secret
from fedfuse.flower.machines import names, services
from fedfuse.flower.machines.machine import LOOPBACK, Machine, Place, read_machine, versions, write_machine
from fedfuse.flower.machines.node_data import Needed
from fedfuse.flower.machines.wheel import pack_wheel
from fedfuse.flower.server import Deployment
from fedfuse.runs.setup import check
from fedfuse.types import FedfuseError

DAYS = 730  # validity of the server's certificate
LONG = 3650  # validity of the authority, and of what is used on one machine only
DATA = "data"  # of a node, in its folder


@dataclass(frozen=True)
class Plan:
    """What `init` makes. `share`: nodes read their share of the experiment's data instead of their own."""

    experiment: Experiment
    server: str
    port: int
    nodes: Sequence[str]
    share: bool


def make(plan: Plan, out: Path) -> None:
    """Make a folder for each machine and one with the authority's key. Nothing that exists is changed."""
    names.check_server(plan.server)
    names.check_nodes(plan.nodes)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FedfuseError(f"{out} exists: choose another --out, or remove it; its keys would be lost")
    setup = check(plan.experiment)
    try:
        _make(plan, out, None if plan.share else Needed.by(setup.federation))
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)  # half a federation would be taken for a whole one
        raise


def _make(plan: Plan, out: Path, needed: Needed | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    out.chmod(0o700)
    authority = new_authority(f"fedfuse authority of {plan.server}", LONG)
    (out / names.AUTHORITY).mkdir(mode=0o700)
    authority.write(out / names.AUTHORITY / "ca.pem", out / names.AUTHORITY / "ca.key")
    server = Machine("server", names.SERVER, plan.server, plan.port, _run_name(plan.experiment), versions())
    folder = Place(out / names.SERVER)
    _begin(folder, server, authority)
    _write_app(folder.app, plan.experiment, needed)
    new_server(authority, (plan.server,), DAYS).write(folder.certificate, folder.server_key)
    for each in (folder.nodes, folder.runs):
        each.mkdir()
    _finish(folder, server)
    for number, name in enumerate(plan.nodes):
        _node(out, replace(server, role="node", name=name, number=number, data="" if needed is None else DATA))
    services.write_overview(out, server, plan.nodes, expiry())


def add(out: Path, name: str) -> int:
    """Make the folder of a further node, and put its public key into the server's. Return the client's number."""
    folder = Place(out / names.SERVER)
    server = read_machine(folder.root)
    names.check_nodes([name])
    if (out / name).exists() or (folder.nodes / f"{name}.pub").exists():
        raise FedfuseError(f"{out} has a node {name}: give the further one another name")
    number = len(list(folder.nodes.glob("*.pub")))
    own = (folder.app / "data.toml").exists()
    if not own:
        raise FedfuseError(
            f"the nodes of {out} share the experiment's data, and all of it is given out: a further node needs a "
            "federation whose nodes have their own data (`fedfuse flower init` without --share)"
        )
    _node(out, replace(server, role="node", name=name, number=number, data=DATA))
    return number


def renew(authority: Path, server: Path) -> None:
    """Replace the server's certificate and key by new ones of the same authority: nodes need no change."""
    machine, place = read_machine(server), Place(server)
    if machine.role != "server":
        raise FedfuseError(f"{server} is the folder of {machine.title}: name that of the server")
    signer = Signed.read(authority / "ca.pem", authority / "ca.key")
    if (authority / "ca.pem").read_bytes() != place.authority.read_bytes():
        raise FedfuseError(f"{authority} is not the authority of {server}: its nodes would refuse the certificate")
    new_server(signer, (machine.server,), DAYS).write(place.certificate, place.server_key)


def expiry() -> datetime:
    return datetime.now(UTC) + timedelta(days=DAYS)


def _node(out: Path, machine: Machine) -> None:
    """Make a node's folder from what it shares with the server: the authority's certificate, the app, fedfuse."""
    server, folder = Place(out / names.SERVER), Place(out / machine.name)
    _begin(folder, machine, None)
    shutil.copyfile(server.authority, folder.authority)
    shutil.copytree(server.app, folder.app)
    public = server.nodes / f"{machine.name}.pub"
    write_node_key(folder.node_key, public)
    public.chmod(0o644)
    for each in (folder.memory, folder.root / DATA):
        each.mkdir(mode=0o700)
    _finish(folder, machine)


def _begin(folder: Place, machine: Machine, authority: Signed | None) -> None:
    """Make the folder and its local credentials. The key of the local authority is not saved."""
    folder.root.mkdir(mode=0o700)
    for each in (folder.keys, folder.secret.parent, folder.state, folder.home):
        each.mkdir(mode=0o700)
    folder.trust.mkdir()
    if authority is not None:
        authority.write(folder.authority)
    local = new_authority(f"fedfuse on {machine.name}", LONG)
    local.write(folder.local_authority)
    new_server(local, (LOOPBACK, "localhost"), LONG).write(folder.local_certificate, folder.local_key)
    write_secret(folder.secret)


def _finish(folder: Place, machine: Machine) -> None:
    for file in folder.trust.iterdir():
        file.chmod(0o644)  # not secret: apps read them under a user of their own
    pack_wheel(folder.root / "wheels")
    write_machine(folder.root, machine)
    services.write_services(folder.root, machine)
    services.write_page(folder.root, machine, expiry())


def _run_name(experiment: Experiment) -> str:
    """Return the experiment's name as that of a folder: never a path of its own."""
    return slug(experiment.name, "_") or "experiment"


def _write_app(folder: Path, experiment: Experiment, needed: Needed | None) -> None:
    write_app(folder, experiment, Deployment(out=f"runs/{_run_name(experiment)}", timeout=1800.0, wait=600.0))
    if needed is not None:
        needed.write(folder)
        (folder / "client_app.py").write_text(services.template("client_app.py"), encoding="utf-8")

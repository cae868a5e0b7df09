"""Say what is wrong on a machine of a federation: all problems at once, each with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from fedfuse.config.experiment import load
from fedfuse.flower.machines.connection import Server, check_connection
from fedfuse.flower.machines.machine import LOOPBACK, Machine, Place, versions
from fedfuse.flower.machines.node_data import Needed, read_data
from fedfuse.flower.machines.start import nginx
from fedfuse.runs.setup import check as check_experiment
from fedfuse.types import FedfuseError

SOON = timedelta(days=30)  # before a certificate expires


def check_machine(machine: Machine, folder: Path) -> dict[str, list[str]]:
    """Return the problems of each topic; an empty list where all is well. What cannot be tried is left out."""
    place = Place(folder)
    problems = {"versions": check_versions(machine), "files": check_files(machine, place)}
    if machine.role == "server":
        problems["proxy"] = _raised(nginx)
        problems["own certificate"] = _own_certificate(machine, place)
    problems["data"] = check_data(machine, place)
    here = LOOPBACK if machine.role == "server" else None
    found = check_connection(Server(machine.server, machine.port, place.authority, at=here))
    return {**problems, **found}


def check_versions(machine: Machine) -> list[str]:
    """Compare what runs here with what the folder was made for."""
    problems = []
    for package, here in versions().items():
        needed = machine.versions[package]
        if here.partition("+")[0] == needed.partition("+")[0]:
            continue
        remedy = "venv/bin/pip install --requirement requirements.txt"
        if package == "python":
            remedy = f"make the venv with python{needed}"
        problems.append(f"{package} {here or 'is missing'}, but the federation has {package} {needed}: {remedy}")
    return problems


def check_files(machine: Machine, place: Place) -> list[str]:
    """Private files must be there and be their owner's only. Containers hide keys from apps: then none is checked."""
    problems = []
    for file in place.private_files(machine.role):
        if not file.parent.exists():
            continue
        try:
            mode = file.stat().st_mode & 0o777
        except FileNotFoundError:
            problems.append(f"{file} is missing: copy the whole folder again")
            continue
        except PermissionError:
            problems.append(f"{file} cannot be read: run the command as its owner, or with sudo")
            continue
        allowed = 0o640 if file == place.secret else 0o600  # apps under a user of their own read the secret
        if mode & ~allowed:
            problems.append(f"{file} can be read by others (mode {mode:o}): chmod 600 {file}")
    return problems


def check_data(machine: Machine, place: Place) -> list[str]:
    """Read a node's own data as its app does; otherwise load the experiment's."""
    experiment = place.app / "experiment.toml"
    if machine.role == "node" and machine.data:
        return _raised(lambda: read_data(place.root / machine.data, load(experiment), Needed.read(place.app)))
    return _raised(lambda: check_experiment(load(experiment)))


def _raised(work: Callable[[], object]) -> list[str]:
    try:
        work()
    except FedfuseError as error:
        return [str(error)]
    except OSError as error:
        return [f"{error.filename}: {error.strerror}: see that it can be read"]
    return []


def _own_certificate(machine: Machine, place: Place) -> list[str]:
    """The server's certificate as it is on disk: nodes may see an older one until the proxy is restarted."""
    try:
        own = x509.load_pem_x509_certificate(place.certificate.read_bytes())
        authority = x509.load_pem_x509_certificate(place.authority.read_bytes())
    except (OSError, ValueError) as error:
        return [f"{place.certificate} or {place.authority} cannot be read ({error}): copy the whole folder again"]
    problems = []
    try:
        own.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        problems.append(f"{place.certificate} is not of the authority {place.authority}: `fedfuse flower renew`")
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    stated = [str(name.value) for name in names]
    if machine.server not in stated:
        problems.append(f"{place.certificate} is for {', '.join(stated)}, not {machine.server}: `fedfuse flower renew`")
    now = datetime.now(UTC)
    if now < own.not_valid_before_utc:
        problems.append(
            f"{place.certificate} is not valid before {own.not_valid_before_utc:%Y-%m-%d %H:%M} UTC, and this "
            f"machine's clock says {now:%Y-%m-%d %H:%M}: set the clock"
        )
    elif now > own.not_valid_after_utc - SOON:
        problems.append(f"{place.certificate} expires on {own.not_valid_after_utc:%Y-%m-%d}: `fedfuse flower renew`")
    return problems

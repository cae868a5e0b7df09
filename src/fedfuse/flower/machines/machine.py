"""The folder of one machine of a federation: what `federation.toml` says of it, and where its files are."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import tomli_w
from pydantic import TypeAdapter, ValidationError

from fedfuse.files import write_whole
from fedfuse.records.directory import read_toml
from fedfuse.types import FedfuseError

FILE = "federation.toml"
PACKAGES = ("fedfuse", "flwr", "torch")
LINK_PORT, NODE_PORT = 8000, 9094  # on loopback only
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Machine:
    """The server or a node. `number` is the client that a node serves."""

    role: Literal["server", "node"]
    name: str
    server: str  # the name or address under which nodes reach the server
    port: int
    experiment: str  # its name, for messages
    versions: Mapping[str, str]  # what the folder was made for: Python and PACKAGES
    number: int = 0
    data: str = ""  # of a node with its own data: a path, from the folder on; empty: a share of the experiment's

    @property
    def title(self) -> str:
        return f"the server {self.server}" if self.role == "server" else f"the node {self.name}"


def versions() -> dict[str, str]:
    """Return the versions of Python and PACKAGES that run here; empty texts for those that are not installed."""
    own = {"python": ".".join(platform.python_version_tuple()[:2])}
    for package in PACKAGES:
        try:
            own[package] = version(package)
        except PackageNotFoundError:
            own[package] = ""
    return own


@dataclass(frozen=True)
class Place:
    """The files of a machine's folder. Paths are those of `root`, where the folder is or will be."""

    root: Path

    @property
    def file(self) -> Path:
        return self.root / FILE

    @property
    def app(self) -> Path:
        return self.root / "app"

    @property
    def keys(self) -> Path:
        """Private keys, which apps need not read."""
        return self.root / "keys"

    @property
    def trust(self) -> Path:
        """Certificates."""
        return self.root / "trust"

    @property
    def secret(self) -> Path:
        return self.root / "secret" / "executor.secret"

    @property
    def authority(self) -> Path:
        """The authority of the server's certificate: the same file on all machines."""
        return self.trust / "ca.pem"

    @property
    def certificate(self) -> Path:
        """The server's certificate, which its proxy shows to nodes."""
        return self.trust / "server.pem"

    @property
    def server_key(self) -> Path:
        return self.keys / "server.key"

    @property
    def local_authority(self) -> Path:
        """The authority of the certificate by which the programs of this machine talk to each other."""
        return self.trust / "local-ca.pem"

    @property
    def local_certificate(self) -> Path:
        return self.trust / "local.pem"

    @property
    def local_key(self) -> Path:
        return self.keys / "local.key"

    @property
    def node_key(self) -> Path:
        return self.keys / "node.key"

    @property
    def nodes(self) -> Path:
        """The nodes' public keys, at the server."""
        return self.root / "nodes"

    @property
    def state(self) -> Path:
        return self.root / "state"

    @property
    def home(self) -> Path:
        """What Flower's programs and commands write, but for the SuperLink's state."""
        return self.root / "home"

    @property
    def registered(self) -> Path:
        return self.home / "registered.json"

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def memory(self) -> Path:
        return self.root / "memory"

    @property
    def proxy(self) -> Path:
        return self.root / "nginx.conf"

    def private_files(self, role: str) -> Sequence[Path]:
        """Return what only the owner may read."""
        return [self.secret, self.local_key, self.server_key if role == "server" else self.node_key]


def write_machine(folder: Path, machine: Machine) -> None:
    write_whole(folder / FILE, tomli_w.dumps(asdict(machine)).encode())


def read_machine(folder: Path) -> Machine:
    """Return what `federation.toml` in this folder says."""
    if not (folder / FILE).exists():
        raise FedfuseError(
            f"{folder} has no {FILE}: name the folder of this machine, which `fedfuse flower init` made, or go there"
        )
    try:
        return TypeAdapter(Machine).validate_python(read_toml(folder / FILE))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise FedfuseError(f"{folder / FILE}: {key}: {first['msg']}: restore it, or make the folder again") from error

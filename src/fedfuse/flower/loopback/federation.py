"""A federation on loopback: a SuperLink and its SuperNodes, over TLS and with node authentication.

Apps run in separate processes (isolation "process"), which authenticate by a secret. Everything listens on 127.0.0.1
only, and every process that was started is ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from fedfuse.flower.loopback.credentials import HOST, Credentials
from fedfuse.flower.loopback.processes import Processes, environment, free_ports
from fedfuse.runs.display import Display

START = 120.0  # seconds for each of Flower's programs to start
CONNECTION = "loopback"
LINK = "superlink"


@dataclass(frozen=True)
class Loopback:
    """A running federation. `folder` holds its credentials, logs and node memories."""

    processes: Processes
    folder: Path
    credentials: Credentials
    nodes: int
    port: int

    def superlink(self) -> None:
        address = ["--host", HOST, "--port", str(self.port)]
        self.processes.start(
            LINK, ["flower-superlink", *address, *self._isolated(), *self._serving(), "--enable-supernode-auth"]
        )
        self.processes.listening(LINK, HOST, self.port, START)
        self._executor(LINK, self.port)

    def register(self, number: int) -> None:
        """Register the node's public key at the SuperLink, which accepts no other nodes."""
        key = str(self.credentials.public_key(number))
        self.processes.run(f"register-{number}", ["flwr", "supernode", "register", key, CONNECTION], START)

    def supernode(self, number: int, port: int) -> None:
        """Start the SuperNode that serves client `number`, with its own folder for the client's memory."""
        memory = (self.folder / "memory" / f"node-{number}").resolve()
        name = f"node-{number}"
        link = ["--superlink", f"{HOST}:{self.port}", "--root-certificates", str(self.credentials.authority)]
        key = ["--auth-supernode-private-key", str(self.credentials.node_key(number))]
        config = ["--node-config", f'partition-id={number} memory-dir="{memory}"']
        address = ["--host", HOST, "--port", str(port)]
        self.processes.start(
            name, ["flower-supernode", *link, *key, *config, *address, *self._isolated(), *self._serving()]
        )
        self._executor(name, port)

    def _executor(self, name: str, port: int) -> None:
        """Start the process that runs the apps of a SuperLink or SuperNode."""
        secret = ["--superexec-auth-secret-file", str(self.credentials.secret)]
        trust = ["--root-certificates", str(self.credentials.authority)]
        address = ["--runtime-api-address", f"{HOST}:{port}"]
        self.processes.start(f"{name}-apps", ["flower-superexec", *address, *trust, *secret])

    def _isolated(self) -> list[str]:
        return ["--isolation", "process", "--superexec-auth-secret-file", str(self.credentials.secret)]

    def _serving(self) -> list[str]:
        own = self.credentials
        files = {"--ssl-certfile": own.certificate, "--ssl-keyfile": own.key, "--ssl-ca-certfile": own.authority}
        return [text for flag, file in files.items() for text in (flag, str(file))]


@contextmanager
def loopback(folder: Path, nodes: int, display: Display) -> Iterator[Loopback]:
    """Start a SuperLink and `nodes` SuperNodes, which serve the clients 0, 1, ..., and end them on exit."""
    port, *ports = free_ports(nodes + 1, HOST)
    credentials = Credentials.make(folder / "credentials", nodes)
    write_connection(folder / "home", port, credentials.authority)
    with Processes(folder / "logs", environment(folder / "home")) as processes:
        federation = Loopback(processes, folder, credentials, nodes, port)
        display.preparing("starting the SuperLink", 0.0)
        federation.superlink()
        for number in range(nodes):
            display.preparing("starting SuperNodes", number / nodes)
            federation.register(number)
            federation.supernode(number, ports[number])
        display.preparing("starting SuperNodes", 1.0)
        yield federation


def write_connection(home: Path, port: int, authority: Path) -> None:
    """Write Flower's configuration, in a separate home: the connection name and address of the SuperLink."""
    home.mkdir(parents=True, exist_ok=True)
    connection = {"address": f"{HOST}:{port}", "root-certificates": str(authority)}
    config = {"superlink": {"default": CONNECTION, CONNECTION: connection}}
    (home / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")

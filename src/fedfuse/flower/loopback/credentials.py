"""Certificates, keys and secrets for a federation on loopback: new for each start, readable only by their owner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedfuse.flower.certificates import new_authority, new_server, write_node_key, write_secret

HOST = "127.0.0.1"
DAYS = 30  # validity of the certificates: longer than a run, too short to be worth stealing


@dataclass(frozen=True)
class Credentials:
    """Files of one federation: the authority's certificate, the servers' certificate and key, secrets, node keys."""

    folder: Path

    @staticmethod
    def make(folder: Path, nodes: int) -> Credentials:
        """Write new credentials. The authority's key is not saved, so that it can sign no further certificates."""
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        files = Credentials(folder)
        authority = new_authority("fedfuse loopback authority", DAYS)
        authority.write(files.authority)
        new_server(authority, (HOST, "localhost"), DAYS).write(files.certificate, files.key)
        write_secret(files.secret)
        for node in range(nodes):
            write_node_key(files.node_key(node), files.public_key(node))
        return files

    @property
    def authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def secret(self) -> Path:
        """The secret by which an app process authenticates to its SuperLink or SuperNode."""
        return self.folder / "executor.secret"

    def node_key(self, node: int) -> Path:
        return self.folder / f"node-{node}.key"

    def public_key(self, node: int) -> Path:
        return self.folder / f"node-{node}.pub"

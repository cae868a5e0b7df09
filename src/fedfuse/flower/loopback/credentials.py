"""Certificates, keys and secrets for a federation on loopback: new for each start, readable only by their owner."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

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
        authority, authority_key = _authority()
        certificate, key = _server(authority, authority_key)
        _write(files.authority, authority.public_bytes(Encoding.PEM))
        _write(files.certificate, certificate.public_bytes(Encoding.PEM))
        _write(files.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        _write(files.secret, secrets.token_hex(32).encode())
        for node in range(nodes):
            own = ec.generate_private_key(ec.SECP384R1())
            _write(files.node_key(node), own.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
            _write(files.public_key(node), own.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
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


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def _authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedfuse loopback authority")])
    builder = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()), key


def _server(
    authority: x509.Certificate, signer: ec.EllipticCurvePrivateKey
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST)), x509.DNSName("localhost")])
    builder = (
        _builder(name, authority.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(hosts, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    return builder.sign(signer, hashes.SHA256()), key


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # tolerate clock differences
        .not_valid_after(now + timedelta(days=DAYS))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )

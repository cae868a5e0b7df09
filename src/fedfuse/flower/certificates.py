"""Certificates, keys and secrets, written so that only their owner can read them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedfuse.types import DamagedError


@dataclass(frozen=True)
class Signed:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def write(self, certificate: Path, key: Path | None = None) -> None:
        """Write both as PEM files; without a path for the key, it is not saved."""
        write_private(certificate, self.certificate.public_bytes(Encoding.PEM))
        if key is not None:
            write_private(key, self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @staticmethod
    def read(certificate: Path, key: Path) -> Signed:
        try:
            private = load_pem_private_key(key.read_bytes(), None)
            signed = x509.load_pem_x509_certificate(certificate.read_bytes())
        except OSError as error:
            raise DamagedError(f"{error.filename}: {error.strerror}: restore the authority's folder") from error
        except ValueError as error:
            raise DamagedError(f"{certificate}, {key}: not a certificate and its key: restore them") from error
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.public_key() != signed.public_key():
            raise DamagedError(f"{key} is not the key of {certificate}: restore both")
        return Signed(signed, private)


def new_authority(name: str, days: int) -> Signed:
    """Return a new authority, which can sign certificates for servers."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Signed(builder.sign(key, hashes.SHA256()), key)


def new_server(authority: Signed, hosts: Sequence[str], days: int) -> Signed:
    """Return a new certificate for a server that is reached under these names and addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(subject, authority.certificate.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(names, critical=False)
        .add_extension(issuer, critical=False)
    )
    return Signed(builder.sign(authority.key, hashes.SHA256()), key)


def write_node_key(private: Path, public: Path) -> None:
    """Write a new key by which a SuperNode proves who it is, and its public part."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_private(private, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    write_private(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))


def write_secret(path: Path) -> None:
    """Write a new secret by which an app process authenticates to its SuperLink or SuperNode."""
    write_private(path, secrets.token_hex(32).encode())


def write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))  # tolerate clock differences
        .not_valid_after(now + timedelta(days=days))
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

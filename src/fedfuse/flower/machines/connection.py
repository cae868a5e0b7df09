"""Find out why a node cannot reach its server: name, port, certificate, clock, SuperLink."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_TOLERANCE

SECONDS = 10.0  # for each step
# OpenSSL's reasons for refusing a certificate.
NOT_YET_VALID, EXPIRED, WRONG_NAMES = 9, 10, (62, 64)
HEARTBEAT = "/v1/fleet/send-node-heartbeat"


@dataclass(frozen=True)
class Server:
    """The server as a node sees it, and the file of the authority by which the node knows it.

    at: where to connect instead of `name`, for a server that looks at itself.
    """

    name: str
    port: int
    authority: Path
    at: str | None = None

    @property
    def title(self) -> str:
        return f"{self.name}:{self.port}"


def check_connection(server: Server) -> dict[str, list[str]]:
    """Return the problems by topic: port, certificate, clock, SuperLink. What cannot be tried is left out."""
    problems: dict[str, list[str]] = {"port": _port(server)}
    if problems["port"]:
        return problems
    try:
        trust = ssl.create_default_context(cafile=str(server.authority))
    except (OSError, ssl.SSLError) as error:
        problems["certificate"] = [
            f"{server.authority.name} cannot be read ({error}): take it from the folder that was made for this machine"
        ]
        return problems
    trusted, skew = True, None
    try:
        date, status = _request(server, trust)
    except ssl.SSLCertVerificationError as error:
        trusted = False
        date, status = _unverified(server)
        skew = _skew(date)
        problems["certificate"] = [_certificate_problem(server, error, skew)]
    except (OSError, http.client.HTTPException) as error:
        problems["certificate"] = [
            f"{server.title} does not speak TLS as a server of this federation does ({type(error).__name__}: {error}): "
            "check name and port, and that no other program listens there"
        ]
        return problems
    problems.setdefault("certificate", [])
    problems["clock"] = _clock(_skew(date) if skew is None else skew)
    if trusted:
        problems["superlink"] = _superlink(server, status)
    return problems


def _port(server: Server) -> list[str]:
    place = server.at or server.name
    try:
        socket.create_connection((place, server.port), timeout=SECONDS).close()
    except socket.gaierror as error:
        return [f"the name {server.name} has no address ({error.strerror}): check it, and this machine's DNS"]
    except ConnectionRefusedError:
        return [
            f"port closed: nothing listens at {server.title}: start the server (`fedfuse flower start` there), or "
            "correct the port"
        ]
    except TimeoutError:
        return [
            f"port closed: {server.title} does not answer within {SECONDS:g} s: let the firewalls at both ends pass "
            f"TCP to port {server.port}"
        ]
    except OSError as error:
        return [f"{server.title} cannot be reached ({error.strerror or error}): check this machine's network"]
    return []


def _request(server: Server, context: ssl.SSLContext) -> tuple[str | None, int]:
    """Send an empty heartbeat, which every SuperLink refuses. Return the server's date and the status."""
    with socket.create_connection((server.at or server.name, server.port), timeout=SECONDS) as plain:
        plain.settimeout(SECONDS)
        with context.wrap_socket(plain, server_hostname=server.name) as secure:
            connection = http.client.HTTPConnection(server.name, server.port, timeout=SECONDS)
            connection.sock = secure
            connection.request("POST", HEARTBEAT, body=b"", headers={"Connection": "close"})
            answer = connection.getresponse()
            return answer.getheader("Date"), answer.status


def _unverified(server: Server) -> tuple[str | None, int]:
    """Ask for the server's date without trusting it: it only helps to say whether a clock is wrong."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        return _request(server, context)
    except (OSError, http.client.HTTPException):
        return None, 0


def _skew(date: str | None) -> float | None:
    """Return by how many seconds this machine's clock is ahead of the server's; None if it gave no date."""
    try:
        return None if date is None else (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    except (TypeError, ValueError):
        return None


def _clock(skew: float | None) -> list[str]:
    ahead, behind = SYSTEM_TIME_TOLERANCE, SYSTEM_TIME_TOLERANCE + TIMESTAMP_TOLERANCE
    if skew is None or -behind <= skew <= ahead + 1:  # dates have whole seconds
        return []
    where = f"{skew:.0f} s ahead of" if skew > 0 else f"{-skew:.0f} s behind"
    return [
        f"this machine's clock is {where} the server's, and Flower refuses more than {ahead} s ahead or {behind} s "
        "behind: synchronise both clocks (timedatectl set-ntp true)"
    ]


def _certificate_problem(server: Server, error: ssl.SSLCertVerificationError, skew: float | None) -> str:
    code = error.verify_code
    if code in (NOT_YET_VALID, EXPIRED):
        state = "is not valid yet" if code == NOT_YET_VALID else "has expired"
        clock = f"this machine's clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
        if code == EXPIRED and not _clock(skew):
            return (
                f"the certificate of {server.title} {state}: renew it (`fedfuse flower renew`), and restart the server"
            )
        return f"the certificate of {server.title} {state}, and {clock}: set the clock, then check again"
    if code in WRONG_NAMES:
        return (
            f"the certificate of {server.title} is for another name ({error.verify_message}): connect to the name that "
            "`fedfuse flower init --server` was given, or make a certificate for this one"
        )
    return (
        f"the certificate of {server.title} is not of this federation's authority ({error.verify_message}): another "
        "server answers there, or trust/ca.pem is of another federation"
    )


def _superlink(server: Server, status: int) -> list[str]:
    if status in (502, 503, 504):
        return [f"the proxy at {server.title} runs, but not the SuperLink behind it ({status}): start it at the server"]
    if status in (404, 405):
        return [f"{server.title} is not a server of fedfuse's ({status}): check name and port"]
    return []

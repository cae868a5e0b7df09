"""Names of servers and nodes: they become host names, folders, services and containers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from ipaddress import ip_address

from fedfuse.types import FedfuseError

SERVER, AUTHORITY = "server", "authority"  # folders beside those of the nodes
_NODE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


def check_nodes(names: Sequence[str]) -> None:
    """Raise an error unless these can be names of the nodes of one federation."""
    if not names:
        raise FedfuseError("a federation needs nodes: name each, as in --node hospital-a --node hospital-b")
    for name in names:
        if not _NODE.fullmatch(name) or name in (SERVER, AUTHORITY):
            raise FedfuseError(
                f"--node {name!r}: give up to 40 small letters, digits and hyphens, as in hospital-a; {SERVER} and "
                f"{AUTHORITY} are taken"
            )
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise FedfuseError(f"--node {twice[0]} is there twice: give each node its own name")


def check_server(name: str) -> None:
    """Raise an error unless this is a host name or an IP address, without a scheme or a port."""
    try:
        ip_address(name)
        return
    except ValueError:
        pass
    labels = name.split(".")
    last_is_number = labels[-1].isdigit()  # then it is meant to be an address
    if len(name) > 253 or last_is_number or not all(_LABEL.fullmatch(label) for label in labels):
        raise FedfuseError(
            f"--server {name!r}: give the host name or the address that nodes connect to, as in fl.example.org, "
            "without https:// and without a port (that is --port)"
        )

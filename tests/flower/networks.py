"""Machines that are none: each name is a network of its own, joined to the others by a bridge, on this system.

All of them have the same file system and, within the shell that joins them, processes of their own: nothing is left
when it ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess

OWN = [
    "unshare", *(["--map-root-user"] if os.geteuid() else []),
    "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child",
]  # fmt: skip
WHY_NOT = "this system does not let a process join networks of its own (unshare, iproute2, bridge and veth)"


def possible() -> bool:
    needed = all(shutil.which(program) for program in ("unshare", "ip", "mount"))
    tried = "ip link add bridge type bridge && ip link add one type veth peer name two && mount -t tmpfs tmpfs /run"
    return needed and subprocess.run([*OWN, "sh", "-c", tried], capture_output=True).returncode == 0


def joined(*machines: str, names: tuple[str, ...] = ()) -> str:
    """Commands for a shell within `OWN`: they make the machines, 10.9.0.1 and on; the first also has these names."""
    hosts = " ".join(("10.9.0.1", *names))
    return f"""
mount -t tmpfs tmpfs /run
printf '127.0.0.1 localhost\\n{hosts}\\n' > hosts
mount --bind hosts /etc/hosts
ip link add bridge type bridge
ip link set bridge up
number=1
for machine in {" ".join(machines)}; do
    ip netns add $machine
    ip link add to-$machine type veth peer name uplink netns $machine
    ip link set to-$machine master bridge up
    ip -n $machine address add 10.9.0.$number/24 dev uplink
    ip -n $machine link set uplink up
    ip -n $machine link set lo up
    number=$((number + 1))
done
"""

"""The operations page against Flower: what the proxy lets through, and the figures of Flower's that it states."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from flwr.common import constant
from flwr.supercore import constant as core
from flwr.supercore.protobuf.translation import PROTOBUF_REQUEST_TYPES

from fedfuse.flower import Deployment, engine, memory
from fedfuse.flower.loopback.credentials import Credentials
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/guides/flower-operations.md"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def proxy() -> str:
    (block,) = (block for block in blocks(PAGE, "text") if "proxy_pass" in block)
    return block


def test_the_proxy_lets_nodes_through_and_nobody_else() -> None:
    """All of Flower's fleet paths but those by which a node would register itself."""
    match = re.search(r"location ~ (\S+) \{", proxy())
    assert match is not None
    paths = {path for method, path in PROTOBUF_REQUEST_TYPES if method == "POST"}
    fleet = {path for path in paths if path.startswith("/v1/fleet/")}
    assert len(fleet) < len(paths)
    passed = {path for path in paths if re.fullmatch(match[1], path)}
    assert passed == fleet - {"/v1/fleet/register-node", "/v1/fleet/unregister-node"}


def test_the_proxy_takes_the_pieces_that_flower_sends() -> None:
    assert "client_max_body_size 6m;" in proxy()
    assert 5 << 20 <= constant.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE < 6 << 20


@pytest.mark.skipif(NGINX is None, reason="needs nginx")
def test_nginx_takes_the_configuration(tmp_path: Path) -> None:
    made, block = Credentials.make(tmp_path, 0), proxy()
    for name, file in {"proxy.pem": made.certificate, "proxy.key": made.key, "ca.pem": made.authority}.items():
        block = block.replace(f"/etc/fedfuse/{name}", str(file))
    block = block.replace("listen 443 ssl", "listen 127.0.0.1:8443 ssl")
    around = f"pid {tmp_path}/pid; error_log {tmp_path}/error.log; events {{}}\nhttp {{ access_log off;\n{block}}}\n"
    (tmp_path / "nginx.conf").write_text(around, encoding="utf-8")
    assert NGINX is not None
    process = subprocess.run([NGINX, "-t", "-c", tmp_path / "nginx.conf"], capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr


def test_the_guide_has_the_keys_of_a_run() -> None:
    """Defaults as TOML writes them; `out` has none."""
    text = (ROOT / "docs/guides/flower.md").read_text(encoding="utf-8")
    section = text.partition("## Run config")[2].partition("\n## ")[0]
    stated = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    made = {key: f"`{str(value).lower()}`" for key, value in asdict(Deployment()).items() if key != "out"}
    assert stated == {"out": "under `runs/`", **made}


def test_the_page_has_the_right_limits() -> None:
    text = PAGE.read_text(encoding="utf-8")
    ours = Deployment()
    assert f"| `wait` | {ours.wait:g} s |" in text
    assert f"| `timeout` | {ours.timeout:g} s |" in text
    assert f"| a new node names its client | {engine.HELLO:g} s |" in text
    assert f"| SuperLink does not answer | {engine.REACH:g} s;" in text
    assert memory.KEEP == 4
    assert constant.HEARTBEAT_DEFAULT_INTERVAL * constant.HEARTBEAT_BASE_MULTIPLIER == 24
    assert constant.HEARTBEAT_DEFAULT_INTERVAL * constant.HEARTBEAT_PATIENCE == 60
    assert constant.SYSTEM_TIME_TOLERANCE == 5
    assert constant.SYSTEM_TIME_TOLERANCE + constant.TIMESTAMP_TOLERANCE == 305
    assert f"{core.OBJECT_PUSH_SESSION_TTL_SECONDS} s between two pieces" in text
    assert f"at most {constant.MAX_RETRY_DELAY} s apart" in text
    assert f"SuperLink, {core.SUPERLINK_UVICORN_DEFAULT_PORT} |" in text
    assert f"SuperNode, {core.SUPERNODE_UVICORN_DEFAULT_PORT} |" in text

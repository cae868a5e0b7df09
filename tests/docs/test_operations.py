"""The operations page against Flower: what the proxy lets through, and the figures of Flower's that it states."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict

import pytest

pytest.importorskip("flwr")

from flwr.common import constant
from flwr.supercore import constant as core

from fedfuse.flower import Deployment, engine, memory
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/guides/flower-operations.md"
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def proxy() -> str:
    return (ROOT / "src/fedfuse/flower/machines/templates/nginx.conf").read_text(encoding="utf-8")


def test_the_proxy_takes_the_pieces_that_flower_sends() -> None:
    assert re.search("client_max_body_size +6m;", proxy())
    assert 5 << 20 <= constant.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE < 6 << 20


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

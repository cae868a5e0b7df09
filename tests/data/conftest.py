"""Small data on disk, and no network: every test here runs on a machine that has neither."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fedfuse.data.examples import Examples
from fedfuse.data.sources.location import Location
from tests.data.small_data import labelled


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDFUSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("FEDFUSE_DATA", raising=False)


@pytest.fixture
def location(tmp_path: Path) -> Location:
    return Location(data_dir=tmp_path / "data", cache=tmp_path / "cache")


@pytest.fixture
def examples() -> Callable[..., Examples]:
    return labelled

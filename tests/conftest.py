"""What every test stands on: one compute thread, and a cache that is this session's own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from fedfuse.context import Context
from fedfuse.types import ServerState
from tests import doubles
from tests.command_line import CommandLine

# No test waits for a network. The Hugging Face libraries read this once, when the first test imports them.
os.environ["HF_HUB_OFFLINE"] = "1"

# Bits depend on the number of threads, and two test processes share two cores.
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A warm cache in the user's home could hide what a first run does."""
    before = os.environ.get("FEDFUSE_CACHE")
    os.environ["FEDFUSE_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["FEDFUSE_CACHE"]
    else:
        os.environ["FEDFUSE_CACHE"] = before


@pytest.fixture
def ctx() -> Context:
    return doubles.context()


@pytest.fixture
def server(ctx: Context) -> ServerState:
    return doubles.initial(ctx)


@pytest.fixture
def cli() -> CommandLine:
    return CommandLine()

"""What every test stands on: one compute thread, and a cache that is this session's own.

Nothing heavy is imported here: pytest-xdist's controller reads this file and runs no test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fedfuse.context import Context
    from fedfuse.types import ServerState
    from tests.command_line import CommandLine

# No test waits for a network. The Hugging Face libraries read this once, when the first test imports them.
os.environ["HF_HUB_OFFLINE"] = "1"


# What takes longest comes first, so that no test process is left with it at the end. Tests with worker processes are
# then together in one test process, where they find the workers of the tests before them.
FIRST = ("tests/compute/test_devices.py", "tests/docs/test_site.py", "tests/faults", "tests/engines", "tests/invariant")
FIRST += ("tests/reports/test_browser.py", "tests/tracking")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Bits depend on the number of threads, and two test processes share two cores."""
    import torch

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
    from tests import doubles

    return doubles.context()


@pytest.fixture
def server(ctx: Context) -> ServerState:
    from tests import doubles

    return doubles.initial(ctx)


@pytest.fixture
def cli() -> CommandLine:
    from tests.command_line import CommandLine

    return CommandLine()

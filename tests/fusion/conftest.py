import pytest
import torch

from fedfuse.context import Context
from tests.fusion.cases import context


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """As a run has by default; more only wait for each other on nets this small."""
    torch.set_num_threads(1)


@pytest.fixture(name="ctx")
def _ctx() -> Context:
    return context()

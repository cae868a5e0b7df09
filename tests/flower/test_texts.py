"""Texts over a real federation: the nodes train the tokenizer that the server has, and the bits are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedfuse
from fedfuse.flower import Deployment
from fedfuse.flower.loopback.federation import loopback
from fedfuse.flower.loopback.up import submit
from fedfuse.runs.display import Silent
from tests.command_line import rounds_of
from tests.data.texts.small_texts import write_csv
from tests.flower.federations import bits_of

pytestmark = pytest.mark.federation
USERS = 3
PATIENCE = 420.0  # seconds, on however busy a machine


def texts(folder: Path) -> fedfuse.Experiment:
    """FedDF on a client per user, with a tokenizer that is trained on the pool."""
    return fedfuse.Experiment(
        data={
            "source": str(write_csv(folder / "texts.csv", 240, users=USERS)),
            "text": "text",
            "label": "label",
            "vocabulary": 300,
            "max_length": 12,
            "pool": {"kind": "split", "size": 60},
        },
        partition={"scheme": "column", "column": "user", "clients": USERS},
        models="bag:16",
        local={"epochs": 1, "batch_size": 16},
        algorithm={"name": "feddf", "steps": 4, "batch_size": 16},
        run={"rounds": 2, "workers": 1},
    )


def test_texts_have_the_bits_of_one_process(tmp_path: Path) -> None:
    made = texts(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    fedfuse.run(made, here)
    with loopback(tmp_path / "federation", USERS, Silent()) as federation:
        deployment = Deployment(str(there), timeout=PATIENCE, wait=PATIENCE, start=USERS)
        history = submit(made, there, federation, deployment, Silent())
    assert [sorted(round.clients) for round in history] == [["0", "1", "2"]] * 2
    assert not any(round.rejected for round in history)
    assert bits_of(there) == bits_of(here)
    assert rounds_of(there) == rounds_of(here)

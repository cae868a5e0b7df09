"""The records of a run in memory: the same as were written, in a small part of the memory of unpacked ones."""

from __future__ import annotations

import random
import tracemalloc
from dataclasses import replace

import pytest

from fedfuse.facts import Score
from fedfuse.records.history import History
from fedfuse.records.record import ClientRecord, RoundRecord


def made(round: int, clients: int) -> RoundRecord:
    draw = random.Random(round)
    return RoundRecord(
        round=round,
        cohort=list(range(clients)),
        test_accuracy=draw.random(),
        test_loss=draw.random(),
        models={"mlp": Score(draw.random(), draw.random())},
        params_up=1,
        params_down=1,
        bytes_up=4,
        bytes_down=4,
        seconds={"local": draw.random()},
        clients={str(client): ClientRecord(draw.randrange(500), draw.random()) for client in range(clients)},
    )


def test_a_history_is_the_sequence_of_its_records() -> None:
    records = [made(round, 3) for round in (1, 2, 3)]
    history = History(record.line() for record in records)
    assert history == records
    assert [record.round for record in history] == [1, 2, 3]
    assert history[-1] == records[-1]
    assert history[:2] == records[:2]
    assert history != [replace(records[0], note="other"), *records[1:]]
    with pytest.raises(IndexError):
        history[3]
    earlier = history.copy()
    history.append(made(4, 3).line())
    assert (len(earlier), len(history)) == (3, 4)


def test_a_round_of_1000_clients_takes_less_than_30_kb() -> None:
    first, *lines = [made(round, 1000).line() for round in range(1, 12)]  # not in the measured part
    history = History([first])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for line in lines:
            history.append(line)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown / len(lines) < 30_000  # 18 kB; a record as objects takes more than 400 kB

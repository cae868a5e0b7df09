"""Choose the settings of a first experiment by the size and kind of its data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from fedfuse.drafts.look import Seen
from fedfuse.models.defaults import default_models

ALPHAS = (0.5, 1.0, 5.0)  # from clients with few classes each to nearly even ones
EACH = 20  # examples of each client, if there are enough
MOST_CLIENTS = 10
MOST_USERS = 20  # clients, if a column says whose an example is


@dataclass(frozen=True)
class Plan:
    """The settings of a draft, by section."""

    data: dict[str, Any]
    pool: dict[str, Any]
    partition: dict[str, Any]
    models: dict[str, Any]
    local: dict[str, Any]
    algorithm: dict[str, Any]
    run: dict[str, Any]
    each: int  # examples of a client, on average

    def sections(self, name: str) -> dict[str, Any]:
        """Return the sections of the experiment."""
        return {
            "name": name,
            "data": {**self.data, "pool": self.pool},
            "partition": self.partition,
            "models": self.models,
            "local": self.local,
            "algorithm": self.algorithm,
            "run": self.run,
        }


def plans(seen: Seen) -> Iterator[Plan]:
    """Yield plans for this data, from the most heterogeneous clients to equal ones: the first that works is meant."""
    total, texts = len(seen.data.train), seen.kind == "texts"
    validation, share = 0.1, 0.3 if texts else 0.2
    pool = round(total * (1 - validation) * share)
    rest = max(2, round(total * (1 - validation)) - pool)
    number = max(2, min(MOST_CLIENTS, rest // EACH))
    if seen.user is not None:
        number = max(2, min(MOST_USERS, len(seen.users)))
    each = rest // number
    batch = _power(pool, 128)
    steps = max(100, min(1000, 20 * pool // batch))
    clients, server = default_models(_shape(seen), images=seen.kind == "images", texts=texts)
    plan = Plan(
        data={"source": seen.name, **seen.settings, "validation": validation},
        pool={"kind": "split", "size": share},
        partition={},
        models={"clients": clients, "server": server},
        local={
            "epochs": 10 if each < 200 else 5 if each < 2000 else 1,
            "batch_size": max(4, _power(each // 4, 64)),
            **({"optimizer": "adam", "lr": 0.01} if texts else {"lr": 0.05}),
        },
        algorithm={
            "name": "feddf", "steps": steps, "batch_size": batch, "every": steps // 10, "patience": steps // 2,
        },
        run={"rounds": 20 if total < 20_000 else 10},
        each=each,
    )  # fmt: skip
    least = max(1, min(10, each // 4))
    for partition in _partitions(seen, number, least):
        yield replace(plan, partition=partition)


def _partitions(seen: Seen, number: int, least: int) -> Iterator[dict[str, Any]]:
    if seen.user is not None:
        for clients in range(number, 1, -1):  # a user may be only in the data that the server keeps
            yield {"scheme": "column", "column": seen.user, "clients": clients, "min_size": least}
        return
    for alpha in ALPHAS:
        yield {"scheme": "dirichlet", "clients": number, "alpha": alpha, "min_size": least}
    yield {"scheme": "iid", "clients": number}


def _shape(seen: Seen) -> tuple[int, ...]:
    return (1,) if seen.kind == "texts" else seen.data.train.shape


def _power(number: int, most: int) -> int:
    """Return the greatest power of two up to `number` and `most`; at least 1."""
    return 1 << max(0, min(number, most).bit_length() - 1)

"""The records of rounds as flat rows: for a DataFrame, and for the objects that `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedfuse.records.record import RoundRecord, strict
from fedfuse.types import FedfuseError

if TYPE_CHECKING:
    from pandas import DataFrame


def round_facts(record: RoundRecord) -> dict[str, Any]:
    """Return the numbers of a round. The accuracies and the loss are those of the reported models."""
    facts: dict[str, Any] = strict(
        {
            "round": record.round,
            "test_accuracy": record.test_accuracy,
            "test_loss": record.test_loss,
            "validation_accuracy": record.validation_accuracy,
            "asked": len(record.cohort),
            "rejected": len(record.rejected),
            "params_up": record.params_up,
            "params_down": record.params_down,
            "bytes_up": record.bytes_up,
            "bytes_down": record.bytes_down,
            "seconds": sum(record.seconds.values()),
        }
    )
    return facts


def frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return the rows as a DataFrame."""
    try:
        from pandas import DataFrame
    except ImportError as error:
        raise FedfuseError('to_pandas needs pandas: pip install "fedfuse[notebook]"') from error
    return DataFrame(rows)

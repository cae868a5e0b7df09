"""What a campaign counts."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fedfuse.types import FedfuseError


class WrongError(Exception):
    """Something different was accepted without a word."""


class LostError(Exception):
    """Something that was on disk is gone."""


@dataclass
class Tally:
    """How many faults of one kind were tried, and how they ended. Only `message` and `harmless` may happen.

    message: one for the user. harmless: the result is as without the fault. wrong: another result, without a word.
    lost: a finished round is gone. tracebacks: any other exception.
    """

    kind: str
    message: int = 0
    harmless: int = 0
    wrong: int = 0
    lost: int = 0
    tracebacks: int = 0
    cases: list[str] = field(default_factory=list)  # of the last three

    @property
    def tried(self) -> int:
        return self.message + self.harmless + self.bad

    @property
    def bad(self) -> int:
        return self.wrong + self.lost + self.tracebacks

    @contextmanager
    def trying(self, case: str) -> Iterator[None]:
        try:
            yield
        except WrongError as error:
            self.wrong += 1
            self.cases.append(f"wrong: {case}: {error}")
        except LostError as error:
            self.lost += 1
            self.cases.append(f"lost: {case}: {error}")
        except FedfuseError:
            self.message += 1
        except Exception:
            self.tracebacks += 1
            self.cases.append(f"traceback: {case}:\n{traceback.format_exc()}")
        else:
            self.harmless += 1


# (seed, amount, progress) -> tally. An amount of 1 takes seconds; `progress` is called after each fault.
Kind = Callable[[int, int, Callable[[], None]], Tally]

"""Time the stages of a round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter


@dataclass
class Clock:
    """Seconds per stage. Stages nest: the time of an inner stage is not counted in the outer one."""

    seconds: dict[str, float] = field(default_factory=dict)
    _inner: list[float] = field(default_factory=lambda: [0.0])

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            elapsed = perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed - self._inner.pop()
            self._inner[-1] += elapsed

"""Wall and monotonic time, and randomness, as the floors below ask for them."""

from __future__ import annotations

import os
import random
import time
from typing import Protocol


class Clock(Protocol):
    """Time as a node reads it. Handed down by constructor, so that tests can move it."""

    def now_s(self) -> float:
        """Monotonic seconds, for deadlines."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for log time and timestamps."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves when told; for tests."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, seconds: float) -> None:
        self._now_s += seconds
        self._wall_ms += round(seconds * 1000)


def system_random() -> random.Random:
    """A generator seeded by the system, for election timeouts, jitter and request ids."""
    return random.Random(os.urandom(32))

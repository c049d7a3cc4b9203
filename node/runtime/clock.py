"""Wall and monotonic time, and randomness, as the floors below ask for them."""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Time as a node reads it. Handed down by constructor, so that tests can move it."""

    def now_s(self) -> float:
        """Monotonic seconds, for deadlines."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, for log time and timestamps."""
        ...


STEP_MS = 1000
"""A wall clock that is further off than this has been set, and is not followed at once."""
SLEW = 0.0005
"""At this share of the time that passes, as `adjtime` does it."""


class SystemClock:
    """The machine's clocks. Its wall time goes on steadily when the machine's is set.

    Delays and leases are told in wall time, so a wall clock that jumps a day must not bring them
    on early. What passes is told by the boot clock, which also counts sleep; the wall clock is
    followed within a second, and beyond that at 0.05 %.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        passed_ns: Callable[[], int] | None = None,
    ) -> None:
        self._wall_ns = wall_ns
        self._passed_ns = passed_ns or _boot_ns
        self._steady_ms = wall_ns() / 1e6
        self._read_ns = self._passed_ns()

    def now_s(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        read_ns = self._passed_ns()
        passed_ms = (read_ns - self._read_ns) / 1e6
        self._read_ns = read_ns
        wall_ms = self._wall_ns() / 1e6
        steady_ms = self._steady_ms + passed_ms
        ahead_ms = wall_ms - steady_ms
        if abs(ahead_ms) <= STEP_MS:
            steady_ms = wall_ms
        else:
            steady_ms += math.copysign(min(abs(ahead_ms), passed_ms * SLEW), ahead_ms)
        self._steady_ms = steady_ms
        return int(steady_ms)


_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _boot_ns() -> int:
    return time.clock_gettime_ns(_BOOT_CLOCK)


def system_random() -> random.Random:
    """A generator seeded by the system, for election timeouts, jitter and request ids."""
    return random.Random(os.urandom(32))

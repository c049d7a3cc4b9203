"""The node's wall time is steady: whoever sets the machine's clock brings nothing on early."""

from __future__ import annotations

import time

import pytest

from node.runtime.clock import SystemClock

DAY_MS = 24 * 3600 * 1000
START_MS = 1_700_000_000_000


class Machine:
    def __init__(self) -> None:
        self.passed_ms = 5000.0
        self.wall_ms = float(START_MS)
        self.clock = SystemClock(lambda: int(self.wall_ms * 1e6), lambda: int(self.passed_ms * 1e6))

    def passes(self, ms: float) -> int:
        self.passed_ms += ms
        self.wall_ms += ms
        return self.clock.wall_ms()


@pytest.mark.parametrize("jump_ms", [DAY_MS, -DAY_MS, 5000, -5000])
def test_a_wall_clock_that_jumps_is_not_followed(jump_ms: int) -> None:
    machine = Machine()
    machine.passes(1000)

    machine.wall_ms += jump_ms
    hour = [machine.passes(1000) for _ in range(3600)][-1]

    passed_ms = hour - START_MS - 1000
    assert abs(passed_ms - 3_600_000) <= 3_600_000 * 0.0006


def test_small_corrections_are_followed_at_once() -> None:
    machine = Machine()
    machine.wall_ms += 300
    assert machine.passes(10) == START_MS + 310
    machine.wall_ms -= 200
    assert machine.passes(10) == START_MS + 120


def test_time_that_passes_in_sleep_is_counted() -> None:
    machine = Machine()
    assert machine.passes(8 * 3_600_000) == START_MS + 8 * 3_600_000


def test_the_real_clock_is_close_to_the_machines() -> None:
    before_ms = time.time_ns() // 1_000_000
    told_ms = SystemClock().wall_ms()

    assert before_ms <= told_ms <= time.time_ns() // 1_000_000 + 1

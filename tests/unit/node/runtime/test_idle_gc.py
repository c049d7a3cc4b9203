"""Old garbage is collected while nothing is held up by it."""

from __future__ import annotations

import gc

from node.runtime.idle_gc import BUSY_S, IDLE_PAUSE_S, SURVIVORS_MIN, THRESHOLDS, Collector


class Process:
    """A clock, CPU time, and what survived younger collections."""

    def __init__(self) -> None:
        self.now_s = self.used_s = 0.0
        self.survivors = SURVIVORS_MIN
        self.collections = 0
        self.collector = Collector(
            now_s=lambda: self.now_s,
            cpu_s=lambda: self.used_s,
            survivors=lambda: self.survivors,
            collect=self.collect,
        )
        self.collector.begin()

    def collect(self) -> None:
        self.collections += 1

    def passes(self, seconds: float, *, busy: float) -> None:
        """Looks every second."""
        for _ in range(round(seconds)):
            self.now_s += 1.0
            self.used_s += busy
            self.collector.look()


def test_an_idle_node_collects_after_a_pause() -> None:
    process = Process()

    process.passes(IDLE_PAUSE_S - 1, busy=0.01)
    assert process.collections == 0
    process.passes(1, busy=0.01)
    assert process.collections == 1


def test_a_busy_node_collects_rarely() -> None:
    process = Process()

    process.passes(BUSY_S - 1, busy=0.5)
    assert process.collections == 0
    process.passes(1, busy=0.5)
    assert process.collections == 1


def test_a_node_that_has_been_busy_collects_in_its_first_idle_second() -> None:
    process = Process()

    process.passes(60, busy=0.5)
    process.passes(1, busy=0.0)

    assert process.collections == 1


def test_where_nothing_is_to_be_gained_nothing_is_collected() -> None:
    process = Process()
    process.survivors = SURVIVORS_MIN - 1

    process.passes(2 * BUSY_S, busy=0.0)

    assert process.collections == 0


async def test_full_collections_do_not_begin_by_themselves_until_it_stops() -> None:
    before = gc.get_threshold()
    collector = Collector()

    await collector.start()
    during = gc.get_threshold()
    await collector.stop()

    assert during == THRESHOLDS
    assert gc.get_threshold() == before

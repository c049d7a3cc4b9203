"""Work that is done again and again: its rhythm, its failures, its end."""

from __future__ import annotations

import asyncio

import structlog
from structlog.testing import capture_logs

from node.runtime.periodic import Periodic
from tests.one_node import eventually

LOG = structlog.get_logger("tests")
LONG_S = 3600.0


class Work:
    """Rounds that fail, and say when the next one is to be, as they are told."""

    def __init__(self) -> None:
        self.rounds = self.fails = 0
        self.next_s: float | None = None
        self.held = asyncio.Event()
        self.held.set()

    async def round(self) -> float | None:
        self.rounds += 1
        await self.held.wait()
        if self.rounds <= self.fails:
            raise OSError("a test")
        return self.next_s


async def test_rounds_come_an_interval_after_each_other_and_after_the_start() -> None:
    work = Work()
    periodic = Periodic("work", work.round, 0.001, LOG, "work_failed")
    await periodic.start()
    assert work.rounds == 0

    await eventually(lambda: work.rounds >= 3)
    await periodic.stop()


async def test_a_round_comes_when_it_is_woken_and_not_before() -> None:
    work = Work()
    periodic = Periodic("work", work.round, None, LOG, "work_failed")
    await periodic.start()
    for _ in range(10):
        await asyncio.sleep(0)
    assert work.rounds == 0

    periodic.wake()
    await eventually(lambda: work.rounds == 1)
    await periodic.stop()


async def test_a_wake_up_during_a_round_leads_to_one_more() -> None:
    work = Work()
    work.held.clear()
    periodic = Periodic("work", work.round, LONG_S, LOG, "work_failed", first_s=0.0)
    await periodic.start()
    await eventually(lambda: work.rounds == 1)

    periodic.wake()
    periodic.wake()
    work.held.set()
    await eventually(lambda: work.rounds == 2)
    for _ in range(10):
        await asyncio.sleep(0)
    await periodic.stop()

    assert work.rounds == 2


async def test_a_round_says_how_soon_the_next_one_is_to_be() -> None:
    work = Work()
    work.next_s = 0.0
    periodic = Periodic("work", work.round, LONG_S, LOG, "work_failed", first_s=0.0)
    await periodic.start()

    await eventually(lambda: work.rounds >= 5)
    await periodic.stop()


async def test_failures_are_logged_and_counted_and_the_work_goes_on() -> None:
    work = Work()
    work.fails = 2
    periodic = Periodic("work", work.round, None, LOG, "work_failed", first_s=0.0, retry_s=0.0)
    with capture_logs() as logs:
        await periodic.start()
        await eventually(lambda: work.rounds == 3)
        await periodic.stop()

    assert [line["event"] for line in logs] == ["work_failed", "work_failed"]
    assert periodic.failures == 2


async def test_a_wake_up_does_not_bring_on_the_round_after_a_failure() -> None:
    work = Work()
    work.fails = 1
    periodic = Periodic("work", work.round, LONG_S, LOG, "work_failed", first_s=0.0)
    await periodic.start()
    await eventually(lambda: periodic.failures == 1)

    periodic.wake()
    for _ in range(10):
        await asyncio.sleep(0)
    await periodic.stop()

    assert work.rounds == 1


async def test_stop_ends_a_round_under_way_and_may_be_called_again() -> None:
    work = Work()
    work.held.clear()
    periodic = Periodic("work", work.round, LONG_S, LOG, "work_failed", first_s=0.0)
    await periodic.stop()
    await periodic.start()
    await eventually(lambda: work.rounds == 1)

    await periodic.stop()
    await periodic.stop()
    work.held.set()

    assert work.rounds == 1
    assert periodic.failures == 0


async def test_what_only_a_wake_up_brings_on_rests_after_a_failure_until_the_next() -> None:
    work = Work()
    work.fails = 1
    periodic = Periodic("work", work.round, None, LOG, "work_failed")
    await periodic.start()
    periodic.wake()
    await eventually(lambda: periodic.failures == 1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert work.rounds == 1

    periodic.wake()
    await eventually(lambda: work.rounds == 2)
    await periodic.stop()


async def test_a_round_that_fails_as_it_is_cancelled_does_not_go_on() -> None:
    begun = asyncio.Event()

    async def fails() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("a test")

    periodic = Periodic("work", fails, 0.0, LOG, "work_failed")
    await periodic.start()
    await begun.wait()
    await periodic.stop()

    assert periodic.failures == 1

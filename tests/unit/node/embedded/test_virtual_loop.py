"""The loop of a node whose time is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from node.embedded.virtual_loop import IS_REQUEST, SHORT_S, VirtualClock, VirtualLoop

NOW_MS = 1_767_225_600_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW_MS)


@pytest.fixture
def run(clock: VirtualClock) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
            runner.run(work)

    return run


def loop() -> VirtualLoop:
    found = asyncio.get_running_loop()
    assert isinstance(found, VirtualLoop)
    return found


async def waits(seconds: float, ended: list[float]) -> None:
    IS_REQUEST.set(True)
    await asyncio.sleep(seconds)
    ended.append(seconds)


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_a_request_waits_until_the_clock_is_moved_there(clock: VirtualClock, run: Run) -> None:
    ended: list[float] = []

    async def work() -> None:
        tasks = [asyncio.create_task(waits(seconds, ended)) for seconds in (20, 10, 0.3)]
        for wanted in (0.3, 10, 20):
            await loop().quiet()
            next_s = loop().next_wait_s()
            assert next_s is not None
            assert clock.ms_at(next_s) - NOW_MS == wanted * 1000
            clock.move(clock.ms_at(next_s))
            await loop().quiet()
            assert ended[-1] == wanted
        await asyncio.gather(*tasks)
        assert loop().next_wait_s() is None

    run(work())
    assert ended == [0.3, 10, 20]


def test_who_gives_up_is_waited_for_no_more(run: Run) -> None:
    async def work() -> None:
        task = asyncio.create_task(waits(20, []))
        await loop().quiet()
        task.cancel()
        await loop().quiet()
        assert loop().next_wait_s() is None

    run(work())


def test_short_pauses_of_requests_end_by_themselves(clock: VirtualClock, run: Run) -> None:
    ended: list[float] = []

    async def work() -> None:
        await asyncio.create_task(waits(SHORT_S / 10, ended))
        await asyncio.sleep(0.001)  # no request: the node's own

    run(work())
    assert ended
    assert clock.wall_ms() == NOW_MS


def test_what_the_node_does_every_hour_is_done_when_time_has_moved(
    clock: VirtualClock, run: Run
) -> None:
    done: list[str] = []

    async def work() -> None:
        loop().call_later(3600, done.append, "hourly")
        loop().call_later(7200, done.append, "later")
        clock.move(NOW_MS + 3_600_000)
        await loop().quiet()
        assert not done
        loop().moved()
        await loop().quiet()

    run(work())
    assert done == ["hourly"]


def test_it_is_not_quiet_while_a_thread_works_for_it(run: Run) -> None:
    async def work() -> None:
        done: list[str] = []
        working = asyncio.create_task(asyncio.to_thread(done.append, "done"))
        await asyncio.sleep(0)
        await loop().quiet()
        assert done
        await working

    run(work())


@pytest.mark.parametrize("passed_ms", [1, 20_000, 86_400_000, 3_155_760_000_000])
def test_whole_seconds_add_without_error(passed_ms: int, clock: VirtualClock) -> None:
    clock.move(NOW_MS + passed_ms)
    end_s = clock.now_s() + 20

    assert clock.ms_at(end_s) == NOW_MS + passed_ms + 20_000
    clock.move(clock.ms_at(end_s))
    assert clock.now_s() >= end_s
    clock.move(NOW_MS)
    assert clock.wall_ms() == NOW_MS + passed_ms + 20_000, "it never goes back"

"""Long work in a thread: one job at a time, in turn by who asks, and the loop is served first."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from threading import Event, Lock

import pytest

from node.http.budget.handover import QUICK_S, quick_handover
from node.http.budget.slices import APART_TURNS, SHARE, Share, Slices, Worker, in_thread
from node.http.request.body import OFF_LOOP_BYTES, off_loop

WAIT_S = 30.0


class Jobs:
    """Jobs that note their order, how many ran at once, and the interval that they ran with."""

    def __init__(self) -> None:
        self.done = list[str]()
        self.intervals_s = list[float]()
        self.most = 0
        self.begun, self.may_end = Event(), Event()
        self._lock, self._running = Lock(), 0

    def named(self, name: str) -> Callable[[], str]:
        def job() -> str:
            with self._lock:
                self._running += 1
                self.most = max(self.most, self._running)
            self.begun.set()
            self.intervals_s.append(sys.getswitchinterval())
            assert self.may_end.wait(WAIT_S)
            with self._lock:
                self._running -= 1
            self.done.append(name)
            return name

        return job


async def begun(jobs: Jobs) -> None:
    assert await asyncio.to_thread(jobs.begun.wait, WAIT_S)


async def test_one_job_runs_at_a_time_and_who_has_many_waits_for_its_own() -> None:
    worker, jobs = Worker(), Jobs()
    ordered = [("flood", "f1"), ("flood", "f2"), ("flood", "f3"), ("other", "o1")]
    tasks = [asyncio.create_task(worker.run(who, jobs.named(name))) for who, name in ordered]
    await begun(jobs)
    jobs.may_end.set()

    assert await asyncio.gather(*tasks) == ["f1", "f2", "f3", "o1"]

    assert jobs.done == ["f1", "f2", "o1", "f3"]
    assert jobs.most == 1


async def test_a_job_that_fails_and_one_that_is_cancelled_let_the_next_go_on() -> None:
    worker, jobs = Worker(), Jobs()

    def fails() -> str:
        assert jobs.may_end.wait(WAIT_S)
        raise ValueError("planted")

    first = asyncio.create_task(worker.run("a", jobs.named("first")))
    await begun(jobs)
    failing = asyncio.create_task(worker.run("a", fails))
    waiting = asyncio.create_task(worker.run("b", jobs.named("cancelled")))
    last = asyncio.create_task(worker.run("c", jobs.named("last")))
    await asyncio.sleep(0)
    waiting.cancel()
    first.cancel()
    jobs.may_end.set()

    with pytest.raises(ValueError, match="planted"):
        await failing
    assert await last == "last"
    assert waiting.cancelled() and first.cancelled()
    assert jobs.done == ["first", "last"]


async def test_one_cancelled_in_the_turn_in_which_it_is_let_go_on_passes_its_turn_on() -> None:
    worker, jobs = Worker(), Jobs()

    async def cancels_the_next_when_done() -> None:
        await worker.run("a", jobs.named("first"))
        gone.cancel()  # it was let go on just now, and has not run since

    first = asyncio.create_task(cancels_the_next_when_done())
    await begun(jobs)
    gone = asyncio.create_task(worker.run("a", jobs.named("gone")))
    last = asyncio.create_task(worker.run("a", jobs.named("last")))
    await asyncio.sleep(0)
    jobs.may_end.set()

    assert await asyncio.wait_for(last, WAIT_S) == "last"
    assert first.done() and gone.cancelled()
    assert jobs.done == ["first", "last"]


async def test_the_interpreter_is_handed_over_soon_while_a_job_runs_and_only_then() -> None:
    before_s = sys.getswitchinterval()
    worker, jobs = Worker(), Jobs()
    SHARE.set(Share(Slices(), worker, "key a"))
    task = asyncio.create_task(in_thread(jobs.named("one")))
    await begun(jobs)
    jobs.may_end.set()
    await task

    assert jobs.intervals_s == [pytest.approx(QUICK_S)]
    assert sys.getswitchinterval() == before_s
    assert await off_loop(OFF_LOOP_BYTES, sys.getswitchinterval) == before_s, "small: done here"
    assert await off_loop(OFF_LOOP_BYTES + 1, sys.getswitchinterval) == pytest.approx(QUICK_S)


async def test_the_interpreter_is_handed_over_soon_while_the_loop_works_through_slices() -> None:
    before_s = sys.getswitchinterval()
    slices, seen = Slices(), list[float]()
    for _ in range(3):
        await slices.turn("key a")
        seen.append(sys.getswitchinterval())
    for _ in range(APART_TURNS + 1):
        await asyncio.sleep(0)

    assert seen == [pytest.approx(QUICK_S)] * 3
    assert sys.getswitchinterval() == before_s


def test_the_interval_of_before_is_back_after_the_last_of_several() -> None:
    before_s = sys.getswitchinterval()
    with quick_handover():
        with quick_handover():
            pass
        assert sys.getswitchinterval() == pytest.approx(QUICK_S)
    assert sys.getswitchinterval() == before_s

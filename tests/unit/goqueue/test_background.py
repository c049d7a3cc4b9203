"""Tasks and their owner."""

from __future__ import annotations

import asyncio
import logging

import pytest

from goqueue.background import TaskSet
from goqueue.wire.errors import Unavailable


async def nothing() -> None:
    return None


async def fail(error: Exception) -> None:
    raise error


async def test_who_waits_for_a_task_has_its_result() -> None:
    tasks = TaskSet("tests")

    assert await tasks.begin(asyncio.sleep(0, "done")) == "done"
    assert len(tasks) == 0


async def test_a_task_that_fails_is_logged_though_nobody_waits_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "tests")
    tasks = TaskSet("tests", "errand_failed")
    tasks.begin(fail(ValueError("a bug")))
    tasks.begin(fail(Unavailable("no leader")))
    await tasks.settled()

    told = {(record.levelname, record.message) for record in caplog.records}
    assert told == {("ERROR", "errand_failed"), ("DEBUG", "errand_failed")}
    assert "ValueError: a bug" in caplog.text


async def test_no_more_is_begun_than_may_be_under_way() -> None:
    tasks = TaskSet("tests", tasks_max=1)
    held = asyncio.Event()
    done = []

    async def work(name: str) -> None:
        await held.wait()
        done.append(name)

    tasks.send(work("first"))
    tasks.send(work("second"))
    held.set()
    await tasks.settled()

    assert done == ["first"]


async def test_stop_waits_for_what_is_soon_done_and_cancels_the_rest() -> None:
    tasks = TaskSet("tests", grace_s=3600.0)
    held = asyncio.Event()
    soon = tasks.begin(held.wait())
    stopping = asyncio.create_task(tasks.stop())
    await asyncio.sleep(0)
    held.set()
    await stopping
    assert soon.result() is True

    at_once = TaskSet("tests")
    never = at_once.begin(asyncio.Event().wait())
    await at_once.stop()
    await at_once.stop()
    assert never.cancelled()
    assert len(at_once) == 0

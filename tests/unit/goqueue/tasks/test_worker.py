"""What becomes of tasks that are sent: a real node, a real worker."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from goqueue import AsyncClient
from goqueue.errors import BadRequest, GoQueueError
from goqueue.tasks import (
    RESULT,
    NoResult,
    Reject,
    Retry,
    TaskFailed,
    Tasks,
    Worker,
    all_of,
    current,
)
from goqueue.tasks.running import load_app
from goqueue.tasks.sending import Sending
from goqueue.tasks.worker import ahead
from tests.unit.goqueue.tasks.conftest import working


async def dead(client: AsyncClient, queue: str = "tasks") -> list[tuple[str, int]]:
    return [(one.reason, one.attempts) async for one in client.dead_letters("tasks", queue)]


async def test_tasks_run_by_their_kind_on_the_loop_and_in_threads(app: Tasks) -> None:
    seen: dict[str, Any] = {}

    @app.task
    async def awaited(number: int) -> None:
        seen["awaited"] = (number, threading.current_thread() is threading.main_thread())

    @app.task
    def blocking(number: int, name: str = "x") -> None:
        seen["blocking"] = (number, name, threading.current_thread() is threading.main_thread())

    await awaited.send_async(1)
    await asyncio.to_thread(blocking.send, 2, name="y")
    assert blocking(3) is None  # it stays callable
    async with working(app) as work:
        await work.until(2)

    assert seen == {"awaited": (1, True), "blocking": (2, "y", False)}
    assert sorted(work.outcomes()) == [("awaited", "done"), ("blocking", "done")]


async def test_a_task_that_fails_comes_again_and_is_dead_in_the_end(
    app: Tasks, client: AsyncClient
) -> None:
    @app.task(retry=Retry(max_attempts=2, delay="1ms"))
    async def fails() -> None:
        raise ValueError(f"attempt {current().attempt}")

    sent = await fails.send_async()
    async with working(app) as work:
        ended = await work.until(2)

    assert [(one.attempt, one.outcome) for one in ended] == [(1, "retried"), (2, "dead")]
    ((reason, attempts),) = await dead(client)
    assert attempts == 2
    assert reason.startswith("ValueError: attempt 2 at test_worker.py:")
    events = [event async for event in _events(client, sent.id)]
    assert any("ValueError: attempt 1 at test_worker.py" in text for text in events)


async def test_a_task_that_exits_fails_alone(app: Tasks, client: AsyncClient) -> None:
    @app.task(retry=Retry(max_attempts=1))
    def exits() -> None:
        raise SystemExit(3)

    await exits.send_async()
    async with working(app) as work:
        await work.until(1)

    ((reason, _),) = await dead(client)
    assert reason.startswith("RuntimeError: it asked its process to exit, with 3")


async def test_a_forked_child_opens_its_own_connection(app: Tasks, client: AsyncClient) -> None:
    @app.task
    def note(number: int) -> None: ...

    await note.send_async(1)

    def fork() -> int:
        child = os.fork()
        if not child:
            try:
                note.send(2)
                os._exit(0)
            except BaseException:  # noqa: BLE001 - it must not go on as the test
                os._exit(1)
        return os.waitpid(child, 0)[1]

    assert await asyncio.to_thread(fork) == 0
    assert (await client.read("tasks", 0, current=True)).next_offset == 2


async def test_a_task_says_by_itself_when_it_comes_again_and_that_it_does_not(
    app: Tasks, client: AsyncClient
) -> None:
    @app.task(retry=Retry(max_attempts=5, delay="1h"))
    async def picky(what: str) -> None:
        if what == "never":
            raise Reject("no such account")
        if current().attempt == 1:
            raise Retry("not yet", delay="1ms")

    await picky.send_async("never")
    await picky.send_async("later")
    async with working(app) as work:
        await work.until(3)

    assert sorted(work.outcomes()) == [("picky", "dead"), ("picky", "done"), ("picky", "retried")]
    assert await dead(client) == [("no such account", 1)]


MAIL = {"goqueue-task": "mail"}


@pytest.mark.parametrize(
    ("headers", "value", "reason"),
    [
        (
            {"goqueue-task-version": "3"},
            "{}",
            "version 3 of task mail is unknown here; known: 1, 2",
        ),
        ({"goqueue-task": "mial"}, "{}", "task mial is unknown here: did you mean 'mail'?"),
        ({"goqueue-task": ""}, "{}", "task  is unknown here"),
        ({}, '{"to": 1}', "arguments: Expected `str`, got `int` - at `$.to`"),
        ({}, "{}", "arguments: to missing"),
        ({}, '{"to": "a", "cc": "b"}', "arguments: Object contains unknown field `cc`"),
        ({"goqueue-task-version": "x"}, "{}", "no task that is understood"),
        ({"goqueue-task-then": "?"}, "{}", "no task that is understood"),
        (None, "{}", "no task: a message without the header goqueue-task"),
    ],
)
async def test_what_no_function_takes_is_parked_with_a_reason_and_not_run(
    app: Tasks, client: AsyncClient, headers: dict[str, str] | None, value: str, reason: str
) -> None:
    ran: list[str] = []

    @app.task
    async def mail(to: str) -> None:
        ran.append(to)

    @app.task(name="mail", version=2)
    async def mail_2(to: str, cc: str) -> None:
        ran.append(cc)

    told = None if headers is None else {**MAIL, **headers}
    await client.publish("tasks", value, headers=told)
    async with working(app) as work:
        await work.until(1)

    ((found, attempts),) = await dead(client)
    assert (found.startswith(reason), attempts, ran) == (True, 1, [])


async def test_both_versions_of_a_task_run(app: Tasks) -> None:
    ran: list[tuple[str, ...]] = []

    @app.task(name="mail")
    async def mail_1(to: str) -> None:
        ran.append((to,))

    @app.task(name="mail", version=2)
    async def mail(to: str, cc: str) -> None:
        ran.append((to, cc))

    await mail_1.send_async("a")
    await mail.send_async("b", "c")
    async with working(app, concurrency=1) as work:
        await work.until(2)

    assert sorted(ran) == [("a",), ("b", "c")]


async def test_a_task_that_its_workers_died_of_too_often_is_given_up(
    app: Tasks, client: AsyncClient
) -> None:
    ran: list[int] = []

    @app.task(retry=Retry(max_attempts=1))
    async def kills() -> None:
        ran.append(1)

    await kills.send_async()
    await client.put_group("tasks", mode="shared", max_attempts=0)
    (taken,) = await client.receive("tasks", "tasks", wait=5)
    await taken.nack("lost", delay=0)  # as when its lease ends
    async with working(app) as work:
        await work.until(1)

    assert await dead(client) == [("given up after 1 attempts: lost", 2)]
    assert ran == []


async def test_results_are_kept_and_so_is_what_a_task_died_of(app: Tasks) -> None:
    @app.task(keep_result="1h")
    def half(number: int) -> float:
        if number % 2:
            raise Reject("odd")
        return number / 2

    @app.task
    def keeps_none() -> int:
        return 1

    early = await half.send_async(4)
    with pytest.raises(NoResult):
        await early.result_async("10ms")
    async with working(app) as work:
        waiting = asyncio.ensure_future(early.result_async())
        assert await waiting == 2.0
        odd = await half.send_async(3)
        with pytest.raises(TaskFailed, match="odd"):
            await odd.result_async()
        await work.until(2)
        other = await keeps_none.send_async()
        with pytest.raises(BadRequest, match="keep_result"):
            await other.result_async()
        await work.until(3)


async def test_a_result_whose_time_is_over_is_gone(app: Tasks) -> None:
    @app.task(keep_result="1ms")
    async def quick() -> int:
        return 1

    sent = await quick.send_async()
    async with working(app) as work:
        await work.until(1)
        with pytest.raises(NoResult):
            for _ in range(100):  # until its time is over by the log's clock
                await sent.result_async(0)
                await quick.send_async()


async def test_a_chain_goes_on_with_each_result(app: Tasks) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    @app.task(queue="other", keep_result="1h")
    def shown(number: int, unit: str) -> str:
        return f"{number} {unit}"

    chain = add.call(1, 2).then(add.call(RESULT, 10)).then(shown.call(RESULT, "km"))
    async with working(app) as work:
        sent = await chain.send_async()
        assert await sent.result_async() == "13 km"
        await work.until(3)
    assert sent.id == "tasks:0:0"


async def test_what_follows_a_group_runs_once_with_all_results(app: Tasks) -> None:
    totals: list[list[int]] = []

    @app.task
    async def square(number: int) -> int:
        return number * number

    @app.task(keep_result="1h")
    async def total(numbers: list[int]) -> int:
        totals.append(numbers)
        return sum(numbers)

    parts = [square.call(number) for number in range(5)]
    parts.append(square.call(2).then(square.call(RESULT)))
    async with working(app) as work:
        sent = await all_of(*parts).then(total.call(RESULT)).send_async()
        assert await sent.result_async() == 46
        await work.until(8)

    assert totals == [[0, 1, 4, 9, 16, 16]]


async def test_a_group_may_follow_and_groups_stand_in_each_other(app: Tasks) -> None:
    @app.task(keep_result="1h")
    async def add(a: int, b: int) -> int:
        return a + b

    inner = all_of(add.call(RESULT, 1), add.call(RESULT, 2))
    async with working(app) as work:
        sent = await add.call(1, 1).then(inner).send_async()
        assert await sent.result_async() == [3, 4]
        nested = await all_of(inner_of(app, add), add.call(5, 5)).send_async()
        assert await nested.result_async() == [[2, 4], 10]
        await work.until(6)


def inner_of(app: Tasks, add: Any) -> Any:
    return all_of(add.call(1, 1), add.call(2, 2))


async def test_a_repeated_end_sends_what_follows_once(app: Tasks, client: AsyncClient) -> None:
    """A worker ended between what follows and the ack: the task comes again, and ends again."""
    ran: list[str] = []
    lost = [True]

    @app.task(retry=Retry(max_attempts=3, delay="1ms"))
    async def first() -> int:
        ran.append("first")
        return 1

    @app.task
    async def second(number: int) -> None:
        ran.append("second")

    async with working(app) as work:
        follow = Sending.follow

        async def followed(self: Any, *arguments: Any) -> None:
            await follow(self, *arguments)
            if lost and lost.pop():
                raise GoQueueError("the answer was lost")

        Sending.follow = followed  # type: ignore[method-assign]
        try:
            await first.call().then(second.call(RESULT)).send_async()
            await work.until(3)
        finally:
            Sending.follow = follow  # type: ignore[method-assign]

    assert sorted(ran) == ["first", "first", "second"]
    assert (await client.read("tasks", 0)).next_offset == 2


async def test_one_dedup_id_is_stored_once(app: Tasks) -> None:
    @app.task(dedup_id=lambda number: f"invoice-{number}")
    async def invoice(number: int) -> None:
        return None

    first = await invoice.send_async(7)
    again = await invoice.send_async(7)
    other = await invoice.call(7).send_async(dedup_id="mine")

    assert (again.id, again.duplicate) == (first.id, True)
    assert not other.duplicate


async def test_many_are_sent_together_and_later_ones_wait(app: Tasks, client: AsyncClient) -> None:
    seen: list[int] = []

    @app.task
    async def note(number: int) -> None:
        seen.append(number)

    assert len(await note.send_many_async([(0,)] * 1001)) == 1001
    await client.put_group("tasks", mode="shared", max_attempts=0, start="latest")
    await client.seek("tasks", "tasks", "latest")
    sent = await note.send_many_async([(1,), {"number": 2}])
    later = await note.send_after_async("1h", 3)
    async with working(app) as work:
        await work.until(2)

    assert [one.id for one in sent] == ["tasks:0:1001", "tasks:0:1002"]
    assert sorted(seen) == [1, 2]
    (waiting,) = await client.delayed("tasks")
    assert waiting.id == later.id


async def test_schedules_are_kept_by_the_cluster_and_count_on(
    app: Tasks, client: AsyncClient
) -> None:
    ran: list[str] = []

    @app.task
    async def report(kind: str) -> None:
        ran.append(kind)

    report.every("0 3 * * *", "daily", timezone="Europe/Berlin")
    report.every("1h", "hourly", name="often", missed="skip")
    with pytest.raises(BadRequest, match="already"):
        report.every("2h", "x")
    await asyncio.to_thread(app.create_schedules)
    before = await client.schedules()
    await asyncio.to_thread(app.create_schedules)

    assert await client.schedules() == before
    often, nightly = before
    assert (nightly.name, nightly.cron) == ("tasks.report", "0 3 * * *")
    assert (often.every, often.missed, nightly.timezone) == ("1h", "skip", "Europe/Berlin")
    await client.publish(often.topic, often.value, headers=often.headers)  # as a run of it does
    async with working(app) as work:
        await work.until(1)
    assert ran == ["hourly"]

    changed = Tasks(app.target)
    changed.task(report.function).every("2h", "hourly", name="often")
    await asyncio.to_thread(changed.create_schedules)
    await asyncio.to_thread(changed.close)
    assert (await client.schedule("tasks.often")).every == "2h"


async def test_tasks_in_processes_run_there_and_die_alone(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "in_processes.py"
    module.write_text(
        "import os\n"
        "from goqueue.tasks import Reject, Retry, Tasks, current\n"
        f"app = Tasks({url!r})\n"
        "@app.task(run_in='process', keep_result='1h', retry=Retry(max_attempts=2, delay=0))\n"
        "def pid(what: str) -> int:\n"
        "    if what == 'crash' and current().attempt == 1:\n"
        "        os._exit(3)\n"
        "    if what == 'reject':\n"
        "        raise Reject('no')\n"
        "    return os.getpid()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    app = load_app("in_processes:app")
    (pid,) = app.tasks()
    async with working(app, path="in_processes:app", concurrency=1) as work:
        crashed = await pid.send_async("crash")
        refused = await pid.send_async("reject")
        assert await crashed.result_async() != os.getpid()
        with pytest.raises(TaskFailed, match="no"):
            await refused.result_async()
        await work.until(3)
    await asyncio.to_thread(app.close)
    assert any("the process that it ran in" in one.reason for one in work.ended)


async def test_a_worker_stops_in_order_and_leaves_the_group(
    app: Tasks, client: AsyncClient
) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow(number: int) -> None:
        begun.set()
        await gate.wait()

    await slow.send_async(1)
    worker = Worker(app, ended=lambda _: None)
    running = asyncio.ensure_future(worker.run_async())
    await begun.wait()
    worker.stop()
    gate.set()
    await running

    assert (await client.lag("tasks")).total_lag == 0
    assert (await client.admin.members("tasks")).members == []


async def _events(client: AsyncClient, id: str) -> Any:
    for event in await client.timeline(id):
        yield " ".join(map(str, event.attributes.values()))


@pytest.mark.parametrize(
    ("seconds", "many"), [(0.0, 32), (0.001, 32), (0.02, 10), (0.5, 2), (60, 2)]
)
def test_short_tasks_are_taken_in_large_batches_and_long_ones_left_to_others(
    seconds: float, many: int
) -> None:
    assert ahead(seconds) == many


async def test_another_target_is_where_tasks_are_sent_from_then_on(
    app: Tasks, client: AsyncClient, tmp_path: Path
) -> None:
    @app.task
    def note() -> None: ...

    await note.send_async()
    app.target = str(tmp_path / "jobs")
    elsewhere = await note.send_async()

    assert elsewhere.id == "tasks:0:0"
    assert (await client.read("tasks", 0, current=True)).next_offset == 1


async def test_a_worker_in_a_thread_ends_with_its_block(app: Tasks, client: AsyncClient) -> None:
    @app.task(keep_result="1h")
    def add(a: int, b: int) -> int:
        return a + b

    def work() -> int:
        with Worker(app).beside():
            return add.send(1, 2).result()

    assert await asyncio.to_thread(work) == 3
    assert (await client.admin.members("tasks")).members == []
    app.target = "http://127.0.0.1:1"
    app.options = {"timeout_s": 0.01}
    with pytest.raises(GoQueueError):
        await asyncio.to_thread(work)

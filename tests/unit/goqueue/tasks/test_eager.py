"""Tasks that run where they are sent; and what is refused where they are made."""

from __future__ import annotations

from typing import Any

import pytest

from goqueue.errors import BadRequest, NotFound
from goqueue.tasks import RESULT, BadArguments, Reject, Retry, TaskFailed, Tasks, all_of, current


@pytest.fixture
def app() -> Tasks:
    return Tasks("http://127.0.0.1:9")  # nobody is asked


def test_what_is_sent_runs_at_once_with_its_retries(app: Tasks) -> None:
    attempts: list[int] = []

    @app.task(retry=Retry(max_attempts=3, backoff="1h"), keep_result="1h")
    def flaky(number: int) -> int:
        attempts.append(current().attempt)
        if current().attempt < 3:
            raise OSError("not yet")
        return number

    with app.eager() as eager:
        sent = flaky.send_after("1d", 5)

    assert sent.result() == 5
    assert (attempts, eager.dead) == ([1, 2, 3], [])


async def test_async_tasks_run_on_the_loop_that_sends_them(app: Tasks) -> None:
    @app.task(keep_result="1h")
    async def double(number: int) -> int:
        return 2 * number

    with app.eager():
        assert await (await double.send_async(2)).result_async() == 4
        assert double.send(3).result() == 6
        assert [await one.result_async() for one in await double.send_many_async([(4,)])] == [8]


def test_chains_and_groups_run_to_their_end(app: Tasks) -> None:
    @app.task(keep_result="1h")
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(keep_result="1h")
    def total(numbers: list[int]) -> int:
        return sum(numbers)

    with app.eager():
        parts = all_of(add.call(1, 2), add.call(3, 4).then(add.call(RESULT, 1)))
        assert parts.then(total.call(RESULT)).send().result() == 11
        assert parts.send().result() == [3, 8]


def test_what_is_given_up_is_told_and_what_follows_does_not_run(app: Tasks) -> None:
    ran: list[int] = []

    @app.task(keep_result="1h")
    def picky() -> None:
        raise Reject("never")

    @app.task(keep_result="1h")
    def after() -> None:
        ran.append(1)

    with app.eager() as eager:
        sent = picky.call().then(after.call()).send()
        with pytest.raises(TaskFailed, match="never"):
            sent.result()

    assert (eager.dead, ran) == ([("picky", "never")], [])


def test_a_dedup_id_runs_once(app: Tasks) -> None:
    ran: list[int] = []

    @app.task(dedup_id=lambda number: str(number))
    def note(number: int) -> None:
        ran.append(number)

    with app.eager():
        sent = [note.send(number) for number in (1, 1, 2)]

    assert (ran, [one.duplicate for one in sent]) == ([1, 2], [False, True, False])


def test_arguments_are_checked_where_they_are_sent(app: Tasks) -> None:
    @app.task
    def mail(to: str) -> None: ...

    with app.eager(), pytest.raises(BadArguments):
        mail.send(1)  # type: ignore[arg-type]


def test_what_is_no_task_is_refused_as_it_is_made(app: Tasks) -> None:
    @app.task
    def mail(to: str) -> None: ...

    async def awaited() -> None: ...

    def refused(**options: Any) -> Any:
        with pytest.raises((BadRequest, TypeError)) as raised:
            app.task(**options)(awaited)
        return str(raised.value)

    assert "already" in refused(name="mail")
    assert "version 0" in refused(version=0)
    assert "did you mean 'high'" in refused(priority="hihg")
    assert "run_in='thread', and the function is async" in refused(run_in="thread")
    assert "keep_result: 8d" in refused(keep_result="8d")
    assert "did you mean 'queue'" in refused(queu="x")


def test_calls_that_can_not_be_sent_are_refused(app: Tasks) -> None:
    @app.task
    def mail(to: str) -> None: ...

    with app.eager():
        for wrong in (
            lambda: mail.send(RESULT),
            lambda: mail.send_many([1]),  # type: ignore[list-item]
            lambda: app.send_many([mail.call("a").then(mail.call("b"))]),
            lambda: all_of(),
            lambda: all_of(*[mail.call("a")] * 201),
            current,
        ):
            with pytest.raises(BadRequest):
                wrong()
        with pytest.raises(BadRequest, match="keep_result"):
            mail.send("a").result()
    with pytest.raises(TypeError, match="did you mean 'delay'"):
        mail.call("a").send(dealy="1h")  # type: ignore[call-arg]


def test_no_result_is_no_result(app: Tasks) -> None:
    with app.eager() as eager, pytest.raises(NotFound):
        eager.run(eager.get("eager:0:9", 0))

"""Long work of all requests takes turns: a slice at a time, whoever asks and for how much."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from node.http.budget.slices import (
    APART_TURNS,
    REST_TIMES,
    SHARE,
    SHORT_S,
    Share,
    Slices,
    Worker,
    in_thread,
    pause,
)
from node.http.connections.protocol import Connection
from node.http.messages.columns import STEP_ROWS
from node.http.messages.rows import COPIES, ROW_BYTES, rows_bytes
from node.http.request import answers
from node.http.request.body import SLICE_BYTES

MESSAGES = "/topics/orders/messages"
SLICES = 5
SLICE_S, TURN_S = 0.002, 0.0001
REST_TURNS = round(REST_TIMES * SLICE_S / TURN_S)


class Loop:
    """Counts the loop's turns."""

    def __init__(self) -> None:
        self.turn = 0
        self._goes_on = True

    def count(self) -> None:
        self.turn += 1
        if self._goes_on:
            asyncio.get_running_loop().call_soon(self.count)

    def stop(self) -> None:
        self._goes_on = False


class Passing:
    """Time that passes with the loop's turns, and with slices."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.passed_s = 0.0

    def time_s(self) -> float:
        return self.passed_s + self.loop.turn * TURN_S

    async def work(self, slices: Slices, holder: str) -> list[int]:
        """Turns of the loop from each slice to the next."""
        done = list[int]()
        for _ in range(SLICES):
            await slices.turn(holder)
            done.append(self.loop.turn)
            self.passed_s += SLICE_S
        return [after - before for before, after in pairwise(done)]


@pytest.fixture
async def loop() -> AsyncIterator[Loop]:
    loop = Loop()
    loop.count()
    yield loop
    loop.stop()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each holder has asked for its turn."""
    asked, real = Counter[str](), Slices.turn

    async def turn(self: Slices, holder: str) -> None:
        asked[holder] += 1
        await real(self, holder)

    monkeypatch.setattr(Slices, "turn", turn)
    return asked


async def test_sixty_jobs_do_one_slice_in_several_turns_of_the_loop(loop: Loop) -> None:
    slices, done = Slices(), list[int]()

    async def job() -> None:
        for _ in range(SLICES):
            await slices.turn("address a")
            done.append(loop.turn)

    await asyncio.gather(*(job() for _ in range(60)))

    assert len(done) == 60 * SLICES
    assert {after - before for before, after in pairwise(done)} == {APART_TURNS}


async def test_small_steps_in_between_wait_for_one_slice_at_most() -> None:
    slices, done = Slices(), list[str]()

    async def job() -> None:
        for _ in range(SLICES):
            await slices.turn("address a")
            done.append("slice")

    async def request() -> None:
        for _ in range(APART_TURNS):
            await asyncio.sleep(0)
        done.append("answer")

    async with asyncio.TaskGroup() as tasks:
        for _ in range(60):
            tasks.create_task(job())
        tasks.create_task(request())

    assert done.index("answer") <= 1


async def test_who_has_one_job_gets_every_second_slice_beside_who_has_sixty() -> None:
    slices, done = Slices(), list[str]()

    async def job(holder: str) -> None:
        for _ in range(SLICES):
            await slices.turn(holder)
            done.append(holder)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(60):
            tasks.create_task(job("address a"))
        tasks.create_task(job("key b"))

    assert done[: 2 * SLICES] == ["address a", "key b"] * SLICES
    assert Counter(done) == {"address a": 60 * SLICES, "key b": SLICES}


@pytest.fixture
async def passing(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Passing:
    """The loop's time, as turns and slices take it."""
    passing = Passing(loop)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", passing.time_s, raising=False)
    return passing


@pytest.mark.parametrize(
    ("on_the_way", "wait_s", "turns"),
    [
        ((), 0.0, range(APART_TURNS, APART_TURNS + 1)),
        (("address a",), 0.0, range(APART_TURNS, APART_TURNS + 1)),
        (("key b",), 0.0, range(REST_TURNS, REST_TURNS + 2 * APART_TURNS)),
        (("address a", "key b", "key c"), 0.0, range(REST_TURNS, REST_TURNS + 2 * APART_TURNS)),
        (("key b", "key c"), 2 * SHORT_S, range(APART_TURNS, APART_TURNS + 1)),
    ],
    ids=["nobody", "its own", "another", "several", "those that wait for something"],
)
async def test_a_slice_is_followed_by_a_rest_while_short_requests_of_others_are_on_their_way(
    passing: Passing, on_the_way: tuple[str, ...], wait_s: float, turns: range
) -> None:
    slices = Slices()
    for holder in on_the_way:
        slices.began(Share(slices, Worker(), holder))
    passing.passed_s += wait_s

    done = await passing.work(slices, "address a")

    assert len(done) == SLICES - 1 and all(apart in turns for apart in done), done


async def test_long_work_goes_on_once_the_last_short_request_of_others_is_answered(
    passing: Passing,
) -> None:
    slices = Slices()
    own, first, last = (Share(slices, Worker(), who) for who in ("address a", "key b", "key b"))
    for request in (own, first, last):
        slices.began(request)
    await slices.turn("address a")
    passing.passed_s += SLICE_S
    goes_on = asyncio.create_task(slices.turn("address a"))
    for _ in range(2 * APART_TURNS):
        await asyncio.sleep(0)
    slices.ended(first)
    slices.ended(first)
    for _ in range(2 * APART_TURNS):
        await asyncio.sleep(0)
    assert not goes_on.done(), "one is on its way still"

    slices.ended(last)
    for _ in range(3):
        await asyncio.sleep(0)

    assert goes_on.done()
    assert passing.loop.turn < REST_TURNS


async def test_a_publish_of_ten_steps_waits_for_one_slice_of_sixty_jobs() -> None:
    slices, done = Slices(), list[str]()

    async def job() -> None:
        for _ in range(SLICES):
            await slices.turn("address a")
            done.append("slice")

    async def request() -> None:
        with Share(slices, Worker(), "key b"):
            for _ in range(10):
                await asyncio.sleep(0)
        done.append("answer")

    loop, now_s = asyncio.get_running_loop(), 0.0

    def time_s() -> float:
        return now_s + len([one for one in done if one == "slice"]) * SLICE_S

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", time_s, raising=False)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(60):
                tasks.create_task(job())
            tasks.create_task(request())

    assert done.index("answer") == 1
    assert len(done) == 60 * SLICES + 1


async def test_a_request_that_turns_out_to_be_long_is_rested_for_no_more() -> None:
    slices = Slices()
    sliced, in_a_thread = (Share(slices, Worker(), who) for who in ("key a", "key b"))
    for request, long_work in ((sliced, pause), (in_a_thread, lambda: in_thread(int))):
        with request:
            SHARE.set(request)
            assert slices._others_ask("key c", 0.0)
            await long_work()
            assert not slices._others_ask("key c", 0.0)


async def test_who_is_cancelled_takes_no_turn(loop: Loop) -> None:
    slices, done = Slices(), dict[int, int]()

    async def job(number: int) -> None:
        await slices.turn("key a")
        done[number] = loop.turn

    first, gone, *others = [asyncio.create_task(job(number)) for number in range(4)]
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(first, *others)

    assert done == {0: done[0], 2: done[0] + APART_TURNS, 3: done[0] + 2 * APART_TURNS}


async def test_a_line_in_which_nobody_stands_costs_the_loop_nothing_and_begins_anew() -> None:
    slices = Slices()
    for _ in range(2):
        await slices.turn("key a")
        for _ in range(APART_TURNS + 1):
            await asyncio.sleep(0)
        assert not slices._is_turning and not slices._line._waiting


async def test_work_that_nobody_has_asked_for_stands_in_no_line(asked: Counter[str]) -> None:
    await pause()
    assert not asked

    SHARE.set(Share(Slices(), Worker(), "key a"))
    await pause()
    assert asked == {"key a": 1}


async def test_a_small_publish_waits_for_no_slice(client, orders, asked: Counter[str]) -> None:
    few = {"messages": [{"value": "v" * 100, "key": "k"}] * 100}
    assert len(json.dumps(few)) < SLICE_BYTES

    answer = await client.post(MESSAGES, few)
    page = await client.get("/topics/orders/messages")

    assert (answer.status, len(page.json["messages"])) == (200, 100)
    assert not asked


async def test_large_requests_and_pages_do_all_their_slices_in_line(
    client, put, asked: Counter[str]
) -> None:
    many = {"messages": [{"value": "v" * 1000}] * 1000}
    assert (await client.post(MESSAGES, many)).status == 200
    published = asked.total()
    await put(*[b"v" * 1000] * 1000)
    await client.get(f"{MESSAGES}?limit=1000")
    read = asked.total() - published
    await put(b"\0" * 2**20)
    await client.get("/topics/orders/partitions/0/messages?offset=2000")

    assert published >= len(json.dumps(many)) // SLICE_BYTES
    assert read >= 1_000_000 // SLICE_BYTES
    assert asked.keys() == {"address 127.0.0.1"}


async def test_a_small_body_of_many_messages_is_long_work(
    client, orders, asked: Counter[str]
) -> None:
    body = b'{"messages":[' + b",".join([b"{}"] * 20_000) + b"]}"
    assert len(body) <= SLICE_BYTES

    answer = await client.post(MESSAGES, data=body, headers={"Content-Type": "application/json"})

    assert len(answer.json["results"]) == 20_000
    assert asked.total() > 20_000 // STEP_ROWS


@pytest.mark.parametrize("size", [100, 5_000, 100_000, 16 * 2**20])
def test_names_are_counted_in_some_of_a_large_body(size: int) -> None:
    unit = b'{"value":"v","key":"k"},'
    body = unit * (size // len(unit))

    named = (rows_bytes(body, 10**9) - COPIES * len(body)) / ROW_BYTES

    assert 0.9 <= named / body.count(b'"value"') <= 1.1
    assert rows_bytes(body, 1) == COPIES * len(body) + ROW_BYTES


async def test_a_client_is_given_the_time_that_its_answer_stood_in_line(
    client, put, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    async def pause() -> float:
        return 7.0

    monkeypatch.setattr(answers, "pause", pause)
    monkeypatch.setattr(Connection, "waited", lambda _, seconds: given.append(seconds))
    await put(b"v" * 4 * SLICE_BYTES)

    await client.get("/topics/orders/partitions/0/messages")

    assert given and set(given) == {7.0}
    assert len(given) >= 4

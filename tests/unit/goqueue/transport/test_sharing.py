"""Calls that come while a request is on its way share the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextvars import ContextVar

import pytest

from goqueue.errors import BadRequest, Closed, GoQueueError, Timeout
from goqueue.transport.sharing import SharedRequests

NAME: ContextVar[str] = ContextVar("NAME", default="nobody")


class Server:
    """Answers each item with itself in capitals, once `open` is set; `refused` with an error."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.senders: list[str] = []
        self.cut: list[list[str]] = []
        self.refused: GoQueueError | None = None
        self.open = asyncio.Event()

    async def send(
        self, lane: str, items: Sequence[str], timeout_s: float
    ) -> list[str | GoQueueError]:
        self.requests.append(list(items))
        self.senders.append(NAME.get())
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cut.append(list(items))
            raise
        if "bug" in items:
            raise LookupError("bug")
        return [self.refused or item.upper() for item in items]


def three(items: Iterable[str]) -> int:
    return min(3, len(list(items)))


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
async def shared(server: Server) -> SharedRequests[str, str, str]:
    return SharedRequests(server.send, three, timeout_s=30.0)


async def begun(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_lone_call_is_a_request_in_its_own_context(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    server.open.set()
    NAME.set("me")

    assert await shared.call("a", "x") == "X"
    assert (server.requests, server.senders) == ([["x"]], ["me"])


async def test_calls_share_the_next_request_in_their_order_and_within_its_bounds(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(shared.call("a", name)) for name in "abcdef"]
        await begun()
        server.open.set()

    assert [call.result() for call in calls] == list("ABCDEF")
    assert server.requests == [["a"], ["b", "c", "d"], ["e", "f"]]


async def test_lanes_do_not_wait_for_each_other(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    async with asyncio.TaskGroup() as group:
        for lane in "ab":
            group.create_task(shared.call(lane, lane))
        await begun()
        server.open.set()

    assert server.requests == [["a"], ["b"]]


async def test_a_request_of_one_who_waited_is_in_its_context_and_others_are_in_none(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    async def named(name: str) -> object:
        NAME.set(name)
        return await shared.call("a", name)

    for names in (["one", "two"], ["one", "two", "three"]):
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(named(name))
            await begun()
            server.open.set()
        server.open.clear()

    assert server.senders == ["one", "two", "one", "nobody"]


async def test_each_caller_has_an_error_of_its_own(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    server.refused = BadRequest("no", limit=3)
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(shared.call("a", name)) for name in "abc"]
        await begun()
        server.open.set()

    errors = [call.result() for call in calls]
    assert all(isinstance(error, BadRequest) for error in errors)
    assert len(set(map(id, errors))) == 3


async def test_what_the_request_raises_is_raised_to_each_caller(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    first = asyncio.ensure_future(shared.call("a", "a"))
    others = [asyncio.ensure_future(shared.call("a", name)) for name in ("b", "bug")]
    await begun()
    server.open.set()

    assert await first == "A"
    for call in others:
        with pytest.raises(LookupError):
            await call
    assert await shared.call("a", "z") == "Z"


async def test_a_caller_that_is_cancelled_takes_nothing_from_the_others(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    calls = [asyncio.ensure_future(shared.call("a", name)) for name in "abc"]
    await begun()
    calls[0].cancel()
    await begun()
    assert server.requests == [["a"], ["b", "c"]]
    calls[1].cancel()
    await begun()
    server.open.set()

    assert await calls[2] == "C"
    assert server.cut == [["a"]]


async def test_who_is_cancelled_while_waiting_is_not_sent(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    calls = [asyncio.ensure_future(shared.call("a", name)) for name in "abc"]
    await begun()
    calls[1].cancel()
    await begun()
    server.open.set()

    assert [await calls[0], await calls[2]] == ["A", "C"]
    assert server.requests == [["a"], ["c"]]


async def test_a_request_that_nobody_waits_for_any_more_is_cut(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    calls = [asyncio.ensure_future(shared.call("a", name)) for name in "abcd"]
    await begun()
    calls[0].cancel()
    await begun()
    for call in calls[1:3]:
        call.cancel()
        await begun()
    assert server.cut == [["a"]]

    calls[3].cancel()
    await begun()

    assert server.cut == [["a"], ["b", "c", "d"]]
    server.open.set()
    assert await shared.call("a", "e") == "E"


async def test_a_call_whose_time_is_over_before_it_was_sent_has_not_happened(
    server: Server,
) -> None:
    shared = SharedRequests(server.send, three, timeout_s=0.01)
    first = asyncio.ensure_future(shared.call("a", "a"))
    await begun()

    told = await shared.call("a", "b")
    server.open.set()

    assert isinstance(told, Timeout)
    assert told.outcome == "none"
    assert await first == "A"
    assert server.requests == [["a"]]


async def test_a_call_whose_time_is_over_on_its_way_is_of_unknown_outcome(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    calls = [asyncio.ensure_future(shared.call("a", name)) for name in "abc"]
    await begun()
    early, _ = shared._lanes["a"].waiting
    calls[0].cancel()
    await begun()

    early.expire()
    server.open.set()

    told = await calls[1]
    assert isinstance(told, Timeout)
    assert told.outcome == "unknown"
    assert await calls[2] == "C"


async def test_closing_fails_what_waits_and_cuts_off_what_does_not_end(
    server: Server, shared: SharedRequests[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared._tasks, "_grace_s", 0.01)
    calls = [asyncio.ensure_future(shared.call("a", name)) for name in "abcdef"]
    await begun()
    calls[0].cancel()
    await begun()

    await shared.close()
    await shared.close()

    told = [await call for call in calls[1:]]
    assert all(isinstance(error, Closed) for error in told)
    outcomes = [error.outcome for error in told if isinstance(error, Closed)]
    assert outcomes == ["unknown"] * 3 + ["none"] * 2


async def test_those_that_may_go_abreast_pass_a_slow_request(
    server: Server, shared: SharedRequests[str, str, str]
) -> None:
    calls = [asyncio.ensure_future(shared.call("a", name, abreast=2)) for name in "abcde"]
    async with asyncio.timeout(30):
        while len(server.requests) < 2:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
    await begun()
    assert server.requests == [["a"], ["b", "c", "d"]]
    server.open.set()

    assert [await call for call in calls] == list("ABCDE")

"""Tails through the client: each message once, over whatever happens to servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import goqueue
from goqueue import AsyncClient, Client, RetryPolicy
from goqueue.errors import BadRequest, ConnectionFailed, ServerError, UnknownTopic
from goqueue.transport.sse import EVENT_BYTES_MAX, Event, Events
from node.http.server.app import HttpFront
from tests.one_node import one_node

QUICK = RetryPolicy(backoff_s=0.001, backoff_max_s=0.005)
SOON = {"retry": QUICK, "timeout_s": 0.1}


@asynccontextmanager
async def two_fronts() -> AsyncIterator[tuple[HttpFront, HttpFront]]:
    """Of one node, as if they were two nodes of a cluster."""
    async with one_node() as node:
        other = HttpFront(node.broker, port=0)
        await other.start()
        yield node.front, other
        await other.stop()


def url(front: HttpFront) -> str:
    return f"http://127.0.0.1:{front.port}"


async def test_a_tail_goes_on_at_another_server_and_tells_each_message_once() -> None:
    async with (
        two_fronts() as (first, second),
        AsyncClient([url(first), url(second)], retry=QUICK) as client,
    ):
        await client.create_topic("lines", partitions=3)
        await client.publish_many("lines", [str(n) for n in range(20)])
        seen = []
        async for message in client.tail("lines", offset="earliest"):
            seen.append(message.text)
            if len(seen) == 15:
                first.begin_stop()
                await first.stop()
                await client.publish_many("lines", [str(n) for n in range(20, 40)])
            if len(seen) == 40:
                break

    assert sorted(seen, key=int) == [str(n) for n in range(40)]


async def test_messages_come_as_they_were_published() -> None:
    async with two_fronts() as (front, _), AsyncClient(url(front), retry=QUICK) as client:
        await client.create_topic("lines", partitions=1)
        await client.publish("lines", "one", key="k", headers={"h": "x"}, priority="high")
        await client.publish("lines", b"\xff", key=b"\xfe", message_id="m", delay="1h")

        tailed = [m async for m in client.tail("lines", offset="earliest", wait="1ms")]
        keyed = [m.value async for m in client.tail("lines", 0, offset=0, key=b"\xfe", wait="1ms")]
        named = [
            m.text
            async for m in client.tail("lines", offsets={0: 0}, headers={"h": "x"}, wait="1ms")
        ]
        since = client.tail("lines", from_time=tailed[0].timestamp_ms, wait="1ms")
        timed = [m.offset async for m in since]
        read = [m async for m in client.messages("lines")]

    plain = [(m.id, m.value, m.key, m.headers, m.timestamp_ms, m.lane) for m in tailed]
    assert plain == [(m.id, m.value, m.key, m.headers, m.timestamp_ms, m.lane) for m in read]
    assert (tailed[1].message_id, tailed[1].deliver_at_ms) == ("m", read[1].deliver_at_ms)
    assert (keyed, named, timed) == ([b"\xff"], ["one"], [0, 1])


async def test_what_is_of_no_use_is_raised_at_once_and_an_outage_after_a_while() -> None:
    async with two_fronts() as (front, _), AsyncClient(url(front), **SOON) as client:
        with pytest.raises(UnknownTopic):
            await anext(client.tail("none"))
        await client.create_topic("lines", partitions=1)
        with pytest.raises(BadRequest):
            await anext(client.tail("lines", offset=-1))
    async with AsyncClient("http://127.0.0.1:1", **SOON) as client:
        with pytest.raises(ConnectionFailed):
            await anext(client.tail("lines"))


async def test_a_topic_that_is_deleted_ends_the_iteration_with_its_error() -> None:
    async with two_fronts() as (front, _), AsyncClient(url(front), retry=QUICK) as client:
        await client.create_topic("lines", partitions=1)
        await client.publish("lines", "last")
        with pytest.raises(UnknownTopic):
            async for _message in client.tail("lines", offset="earliest"):
                await client.delete_topic("lines")


async def test_a_program_that_blocks_tails_too() -> None:
    async with two_fronts() as (front, _):

        def work() -> list[str]:
            with Client(url(front)) as client:
                client.create_topic("lines", partitions=1)
                client.publish_many("lines", ["a", "b"])
                return [m.text for m in client.tail("lines", offset="earliest", wait="1ms")]

        assert await asyncio.to_thread(work) == ["a", "b"]


def test_a_directory_is_tailed_by_whoever_has_it_open_and_by_others(tmp_path: Path) -> None:
    with goqueue.open(tmp_path / "jobs") as owner, goqueue.open(tmp_path / "jobs") as other:
        owner.create_topic("lines", partitions=1)
        owner.publish_many("lines", ["a", "b"])

        for client in (owner, other):
            tailed = client.tail("lines", offset="earliest", wait="1ms")
            assert [message.text for message in tailed] == ["a", "b"]


def test_events_come_out_of_pieces_however_they_are_cut() -> None:
    stream = b"retry: 1\nid: 0:0\n\n: life\n\nid: 0:1\nevent: end\ndata: {}\n\n"
    expected = [
        Event(b"message", b"", "0:0"),
        Event(b"message", b"", ""),
        Event(b"end", b"{}", "0:1"),
    ]

    for size in range(1, len(stream) + 1):
        events = Events()
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert [event for piece in pieces for event in events.feed(piece)] == expected


def test_an_event_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goqueue.transport.sse.EVENT_BYTES_MAX", 100)
    events = Events()
    events.feed(b"x" * 100)

    with pytest.raises(ServerError):
        events.feed(b"x")
    assert EVENT_BYTES_MAX > 6 * 16 << 20

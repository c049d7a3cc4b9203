"""Streams of one node: what they are given is theirs until they settle it, or end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import NotInFlight
from log.levels import NotFinished
from node.api.claims import NOBODY, Claim
from node.api.queue import QueuedMessage, SettleRequest, SettleView
from node.api.streams import Stream
from node.assembly import NodeAssembly
from tests.one_node import eventually, one_node, partition_of


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with one_node() as started:
        await started.broker.topics.create_topic("t", {"partitions": 1})
        await started.broker.upgrade.finish_level()
        yield started


async def publish(node: NodeAssembly, *values: str) -> None:
    batch = encode_batch([Record(value.encode()) for value in values])
    await node.broker.records.append("t", 0, batch, deadline_s=30)


async def take(stream: Stream, limit: int = 10, wait_s: float = 0.0) -> list[QueuedMessage]:
    return await stream.receive(
        ["t"], limit=limit, bytes_max=1 << 20, wait_s=wait_s, visibility_ms=None
    )


async def received(node: NodeAssembly, claim: Claim = NOBODY) -> list[QueuedMessage]:
    return await node.broker.queue.receive(
        "g", ["t"], claim=claim, limit=10, wait_s=0.0, visibility_ms=None
    )


def requests(messages: Sequence[QueuedMessage], action: str = "ack") -> list[SettleRequest]:
    return [SettleRequest(message.receipt, action) for message in messages]


async def test_no_stream_is_opened_below_its_level() -> None:
    async with one_node() as node:
        with pytest.raises(NotFinished):
            await node.broker.streams.open("g")


async def test_a_stream_settles_what_it_was_given(node: NodeAssembly) -> None:
    await publish(node, "a", "b")
    stream = await node.broker.streams.open("g")

    messages = await take(stream)
    assert [m.value for m in messages] == [b"a", b"b"]
    assert stream.held == 2
    (first,) = await stream.settle(requests(messages[:1]))
    assert isinstance(first, SettleView)
    assert first.outcome == "acked"
    assert stream.held == 1

    await stream.end(returned=True)


async def test_a_stream_that_is_closed_gives_back_in_order_without_an_attempt(
    node: NodeAssembly,
) -> None:
    await publish(node, "a", "b", "c")
    stream = await node.broker.streams.open("g")
    messages = await take(stream, limit=2)

    await stream.end(returned=True)

    assert stream.held == 0
    again = await received(node)
    assert [(m.value, m.attempt, m.reason) for m in again] == [
        (b"a", 1, ""),
        (b"b", 1, ""),
        (b"c", 1, ""),
    ]
    (late,) = await stream.settle(requests(messages[:1]))
    assert not isinstance(late, SettleView)


async def test_a_stream_that_is_lost_costs_an_attempt(node: NodeAssembly) -> None:
    await publish(node, "a", "b")
    stream = await node.broker.streams.open("g")
    await take(stream, limit=1)

    await stream.end(returned=False)

    again = await received(node)
    assert [(m.value, m.attempt, m.reason) for m in again] == [
        (b"a", 2, "consumer lost"),
        (b"b", 1, ""),
    ]


async def test_a_receive_that_waits_ends_with_its_stream(node: NodeAssembly) -> None:
    stream = await node.broker.streams.open("g")
    waiting = asyncio.ensure_future(take(stream, wait_s=60))
    queue = partition_of(node.broker, "t", 0).queue
    await eventually(lambda: queue._waiters)

    await stream.end(returned=True)
    await stream.end(returned=False)  # the first one counts

    assert await waiting == []
    assert await take(stream) == []


async def test_what_others_settled_is_held_until_the_stream_learns_it(node: NodeAssembly) -> None:
    await publish(node, "a")
    stream = await node.broker.streams.open("g")
    messages = await take(stream)

    await node.broker.receipts.settle(requests(messages))
    assert stream.held == 1
    (end,) = await stream.settle(requests(messages))

    assert isinstance(end, NotInFlight)
    assert stream.held == 0

"""Streams of one node: what they are given is theirs until they settle it, or end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import NotInFlight, Unavailable
from log.levels import NotFinished
from node.api.auth.principal import OutOfScope, Principal, Role
from node.api.broker import Broker
from node.api.claims import NOBODY, Claim
from node.api.queue import QueuedMessage, SettleRequest, SettleView
from node.api.streams import Stream
from node.assembly import NodeAssembly
from node.broker.streams import NodeStream
from node.http.auth.scoped_broker import broker_for
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


async def test_a_node_that_stops_gives_back_what_its_streams_have(node: NodeAssembly) -> None:
    await publish(node, "a")
    stream = await node.broker.streams.open("g")
    await take(stream)

    await node.broker.streams.stop()
    await node.broker.streams.stop()

    assert [(m.value, m.attempt) for m in await received(node)] == [(b"a", 1)]
    with pytest.raises(Unavailable):
        await node.broker.streams.open("g")


async def test_what_nobody_was_told_of_comes_back_while_the_stream_goes_on(
    node: NodeAssembly,
) -> None:
    """As when an answer is lost, or what a leader gave back goes with its leadership."""
    await publish(node, "a", "b")
    stream = await node.broker.streams.open("g")
    assert isinstance(stream, NodeStream)
    told, untold = await take(stream)
    leases = stream._leases
    del leases.receipts[untold.receipt]
    leases.touched = dict.fromkeys(leases.touched)
    assert await take(stream) == []
    assert len(stream._former) == 1  # what is known of it is not settled

    await stream.settle(requests([told]))

    (again,) = await take(stream, wait_s=20)
    assert (again.offset, again.attempt) == (untold.offset, 1)
    assert (stream._former, stream.held) == ([], 1)
    await stream.end(returned=True)


async def test_a_lease_of_a_stream_says_so_and_may_have_a_visibility(node: NodeAssembly) -> None:
    await publish(node, "a", "b")
    stream = await node.broker.streams.open("g")
    (endless,) = await take(stream, limit=1)
    (timed,) = await stream.receive(
        ["t"], limit=1, bytes_max=1 << 20, wait_s=0.0, visibility_ms=5000
    )
    assert (endless.deadline_ms, timed.deadline_ms > 0) == (0, True)

    (extended,) = await stream.settle([SettleRequest(endless.receipt, "extend", visibility_ms=9)])

    assert isinstance(extended, SettleView)
    assert (extended.outcome, stream.held) == ("extended", 2)
    await stream.end(returned=True)


async def test_a_key_with_a_prefix_has_its_own_topics_and_groups_only(node: NodeAssembly) -> None:
    await publish(node, "a")
    await node.broker.topics.create_topic("team.t", {"partitions": 1})
    team = broker_for(cast(Broker, node.broker), Principal("team", Role.ADMIN, ("team.",)))
    stream = await team.streams.open("team.g")
    mine = await node.broker.streams.open("g")
    (message,) = await take(mine)

    with pytest.raises(OutOfScope):
        await take(stream)
    (refused,) = await stream.settle(requests([message]))
    assert isinstance(refused, OutOfScope)
    assert (
        await stream.receive(["team.t"], limit=1, bytes_max=9, wait_s=0.0, visibility_ms=None) == []
    )
    await stream.end(returned=True)
    await mine.end(returned=True)


async def test_a_stream_goes_on_at_a_deleted_topic_and_ends(node: NodeAssembly) -> None:
    await publish(node, "a")
    stream = await node.broker.streams.open("g")
    await take(stream)

    await node.broker.topics.delete_topic("t")
    await stream.end(returned=True)

    assert stream.held == 0

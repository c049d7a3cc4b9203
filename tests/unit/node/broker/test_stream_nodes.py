"""Streams among three nodes: whoever leads knows whose leases are whose, and who is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from goqueue.wire.batch import Record, encode_batch
from log.levels import Feature
from node.api.queue import QueuedMessage
from node.api.streams import Stream
from node.partition.host import PartitionHost
from node.peers.runs import LOST_LOOKS
from node.queue.stream_watch import StreamWatch
from tests.one_node import eventually, partition_of
from tests.unit.node.three_nodes import NAMES, ThreeNodes, three_nodes


@pytest.fixture
async def nodes() -> AsyncIterator[ThreeNodes]:
    async with three_nodes() as started:
        broker = started.broker("n1")
        await broker.topics.create_topic("t", {"partitions": 1, "replication_factor": 3})
        await broker.upgrade.finish_level()
        for each in started.brokers:
            levels = each.topics._cluster.levels
            await eventually(lambda levels=levels: levels.speaks(Feature.STREAMS))
        batch = encode_batch([Record(value.encode()) for value in "abcd"])
        await broker.records.append("t", 0, batch, deadline_s=30)
        yield started


async def leader_of(nodes: ThreeNodes) -> tuple[str, PartitionHost]:
    """Who leads the partition, and its replica."""

    def found() -> list[tuple[str, PartitionHost]]:
        hosts = [(name, partition_of(nodes.broker(name), "t", 0)) for name in nodes.running]
        return [(name, host) for name, host in hosts if host.is_leader and host.queue.is_open]

    await eventually(lambda: len(found()) == 1)
    return found()[0]


def follower(leader: str, number: int = 0) -> str:
    return [name for name in NAMES if name != leader][number]


async def take(stream: Stream, limit: int) -> list[QueuedMessage]:
    return await stream.receive(
        ["t"], limit=limit, bytes_max=1 << 20, wait_s=20, visibility_ms=None
    )


def told(messages: list[QueuedMessage]) -> list[tuple[bytes, int, str]]:
    return [(message.value, message.attempt, message.reason) for message in messages]


def watch_of(nodes: ThreeNodes, name: str) -> StreamWatch:
    (watch,) = [one for part, one in nodes.running[name].services._parts if part == "streams"]
    assert isinstance(watch, StreamWatch)
    return watch


async def look(nodes: ThreeNodes, name: str, times: int = 1) -> None:
    """The node's watch looks, as it does once a second."""
    for _ in range(times):
        await watch_of(nodes, name)._look()


async def kill(nodes: ThreeNodes, name: str) -> None:
    """The node goes without a word of its streams."""
    nodes.broker(name).streams._open.clear()
    await nodes.stop(name)


def in_flight(host: PartitionHost) -> int:
    return sum(len(group.leases) for group in host.state.queue.groups.values())


async def test_a_new_leader_has_the_streams_leases_and_ends_them_when_it_is_told(
    nodes: ThreeNodes,
) -> None:
    leader, _host = await leader_of(nodes)
    stream = await nodes.broker(follower(leader)).streams.open("g")
    other = await nodes.broker(follower(leader, 1)).streams.open("g")
    assert told(await take(stream, 2)) == [(b"a", 1, ""), (b"b", 1, "")]
    assert {m.deadline_ms for m in await take(other, 1)} == {0}

    await nodes.stop(leader)
    _new, host = await leader_of(nodes)
    assert in_flight(host) == 3
    await stream.end(returned=True)

    assert told(await take(other, 4)) == [(b"a", 1, ""), (b"b", 1, ""), (b"d", 1, "")]
    await other.end(returned=False)
    assert in_flight(host) == 0


async def test_a_node_that_is_gone_has_lost_its_streams(nodes: ThreeNodes) -> None:
    leader, host = await leader_of(nodes)
    first, second = follower(leader), follower(leader, 1)
    await take(await nodes.broker(first).streams.open("g"), 2)
    alive = await nodes.broker(second).streams.open("g")
    await take(alive, 1)

    # given a node that comes back: another run of it is seen at once
    await kill(nodes, first)
    await look(nodes, leader)
    assert in_flight(host) == 3
    await nodes.start(first)
    await eventually(lambda: watch_of(nodes, leader)._runs._former)
    await look(nodes, leader)
    await eventually(lambda: in_flight(host) == 1)

    # given one that stays away: so many looks, and no sooner
    lasting = await nodes.broker(leader).streams.open("g")
    assert told(await take(lasting, 2)) == [(b"a", 2, "consumer lost"), (b"b", 2, "consumer lost")]
    await kill(nodes, second)
    await eventually(lambda: second not in nodes.running[leader].link.connected())
    await look(nodes, leader, LOST_LOOKS)
    assert in_flight(host) == 3
    await look(nodes, leader, 2)
    await eventually(lambda: in_flight(host) == 2)
    assert told(await take(lasting, 1)) == [(b"c", 2, "consumer lost")]

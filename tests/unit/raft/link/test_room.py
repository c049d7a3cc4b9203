"""Large requests and answers wait for each other: no number of them makes a peer look stuck."""

from __future__ import annotations

import asyncio
import dataclasses

import msgspec
import pytest

from goqueue.wire.errors import Timeout
from goqueue.wire.types import NodeId
from raft.link import LinkDown
from raft.link.config import KIB, MIB
from raft.link.frames import Kind
from raft.link.room import Room
from tests.unit.raft.link.conftest import GROUP, QUICK, Cluster, Node
from tests.unit.raft.link.test_hostile import EVE, Insider
from tests.unit.raft.link.test_mesh import Frozen, relayed

A, B = NodeId("a"), NodeId("b")
LITTLE = dataclasses.replace(QUICK, backlog_bytes_max=4 * MIB, write_high_bytes=256 * KIB)
BODY = bytes(MIB)


async def size_of(_node: NodeId, payload: bytes) -> bytes:
    return str(len(payload)).encode()


async def body(_node: NodeId, _payload: bytes) -> bytes:
    return BODY


async def frozen(cluster: Cluster) -> tuple[Node, Node, Frozen]:
    """Two nodes whose link stands still, and bears being silent for long."""
    a, b, relay = await relayed(cluster, dataclasses.replace(LITTLE, silence_s=60))
    b.mesh.handle("size", size_of)
    relay.flowing.clear()
    return a, b, relay


async def test_many_large_requests_at_once_cut_no_link(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b", limits=LITTLE)
    b.mesh.handle("size", size_of)

    answers = await asyncio.gather(*(a.mesh.request(B, "size", BODY, 5) for _ in range(16)))

    assert answers == [str(MIB).encode()] * 16
    assert ("down", B) not in a.events


async def test_many_large_answers_at_once_cut_no_link(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b", limits=LITTLE)
    b.mesh.handle("body", body)

    answers = await asyncio.gather(*(a.mesh.request(B, "body", b"", 5) for _ in range(16)))

    assert answers == [BODY] * 16
    assert ("down", B) not in a.events


async def test_request_that_found_no_room_in_time_has_not_happened(cluster: Cluster) -> None:
    a, _b, relay = await frozen(cluster)
    waiting = [asyncio.create_task(a.mesh.request(B, "size", BODY, 0.3)) for _ in range(16)]

    ends = await asyncio.gather(*waiting, return_exceptions=True)

    assert all(isinstance(end, Timeout) for end in ends)
    outcomes = [end.outcome for end in ends if isinstance(end, Timeout)]
    assert 8 < outcomes.count("none") < 16
    assert a.mesh.backlog_bytes(B) < 3 * MIB
    relay.stop()


async def test_small_request_does_not_wait_behind_large_ones(cluster: Cluster) -> None:
    a, _b, relay = await frozen(cluster)
    waiting = [asyncio.create_task(a.mesh.request(B, "size", BODY, 5)) for _ in range(16)]
    await asyncio.sleep(0.05)

    small = asyncio.create_task(a.mesh.request(B, "size", b"x", 5))
    await asyncio.sleep(0)
    relay.flowing.set()
    await small

    assert not waiting[-1].done()
    await asyncio.gather(*waiting)
    relay.stop()


async def test_who_waits_for_room_on_a_link_that_breaks_has_sent_nothing(cluster: Cluster) -> None:
    a, _b, relay = await frozen(cluster)
    waiting = [asyncio.create_task(a.mesh.request(B, "size", BODY, 5)) for _ in range(16)]
    await asyncio.sleep(0.05)

    link = a.mesh._peers[B].link
    assert link is not None
    link.cut("a test")
    ends = await asyncio.gather(*waiting, return_exceptions=True)

    sent = [end.sent for end in ends if isinstance(end, LinkDown)]
    assert len(sent) == 16
    assert not sent[-1]
    relay.stop()


async def test_peer_that_speaks_and_reads_nothing_is_cut(cluster: Cluster) -> None:
    cluster.reserve("a", "eve")
    a = cluster.node("a", peers={EVE: ("127.0.0.1", 1)})
    await a.mesh.start()
    insider = await Insider.enter(a)
    for _ in range(40):  # more than buffers of the system hold, less than a backlog may be
        assert a.mesh.send(EVE, GROUP, [bytes(MIB)])

    async with asyncio.timeout(30):
        while EVE in a.mesh.connected():
            insider.say(Kind.STATUS, msgspec.msgpack.encode({}))
            await asyncio.sleep(0.05)

    insider.writer.close()


async def test_replication_that_waits_keeps_no_request_out(cluster: Cluster) -> None:
    a, _b, relay = await frozen(cluster)
    while a.mesh.backlog_bytes(B) < 2 * MIB:
        assert a.mesh.send(B, GROUP, [BODY])
        await asyncio.sleep(0.02)
    replication = a.mesh.backlog_bytes(B)

    asked = asyncio.create_task(a.mesh.request(B, "size", bytes(100 * KIB), 5))
    await asyncio.sleep(0.02)

    assert a.mesh.backlog_bytes(B) >= replication + 100 * KIB
    relay.flowing.set()
    assert await asked == str(100 * KIB).encode()
    relay.stop()


@pytest.mark.parametrize("leaves", [0, 1])
async def test_who_leaves_the_queue_lets_the_others_in(leaves: int) -> None:
    room, taken = Room(100), [0]
    room.open(lambda: taken[0])
    room.put(MIB, MIB)
    waiting = [asyncio.create_task(room.enter(MIB)) for _ in range(3)]
    await asyncio.sleep(0)

    taken[0] = MIB
    room.look()
    waiting[leaves].cancel()
    await asyncio.wait(waiting, timeout=5)

    assert [task.cancelled() for task in waiting] == [n == leaves for n in range(3)]
    assert room.is_free(MIB)

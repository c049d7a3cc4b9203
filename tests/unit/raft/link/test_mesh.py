"""The mesh on loopback: one connection a pair, quick return, honest back-pressure."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from typing import Any

import pytest

from goqueue.wire.types import NodeId
from log.levels import Spoken
from raft.link import LEVELS, InsecureListen, LinkLimits
from tests.unit.raft.link.conftest import GROUP, QUICK, Cluster, Node, eventually

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


async def test_three_nodes_link_every_pair_and_tell_their_hello(cluster: Cluster) -> None:
    a, b, c = await cluster.started("a", "b", "c", incarnation=2**64 - 1)

    assert a.mesh.connected() == {
        B: {"name": "b", "incarnation": 2**64 - 1, LEVELS: Spoken()},
        C: {"name": "c", "incarnation": 2**64 - 1, LEVELS: Spoken()},
    }
    # of two that dialled each other one connection is closed, which the other end sees later
    await eventually(lambda: {len(n.mesh._shaking) for n in (a, b, c)} == {0})


async def test_frames_arrive_in_order_and_whole_both_ways(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")
    sizes = [0, 1, 100, 300_000, 2_000_000, 5]

    for i, size in enumerate(sizes):
        assert a.mesh.send(B, GROUP, [bytes([i]), bytes(size)])
        assert b.mesh.send(A, GROUP, [bytes([i]) + bytes(size)])
    await eventually(lambda: len(a.frames) == len(b.frames) == len(sizes))

    expected = [bytes([i]) + bytes(size) for i, size in enumerate(sizes)]
    assert [f for _, _, f in a.frames] == [f for _, _, f in b.frames] == expected
    assert {(n, g) for n, g, _ in b.frames} == {(A, GROUP)}


async def test_what_goes_over_a_link_is_counted_over_all_its_connections(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")
    assert a.mesh.send(B, GROUP, [bytes(10_000)])
    await eventually(lambda: len(b.frames) == 1)
    link = a.mesh._peers[B].link
    assert link is not None
    link.cut("test")
    await eventually(lambda: a.ups == b.ups == 2)
    await eventually(lambda: a.mesh.traffic[B].heartbeats > 3)

    sent, received = a.mesh.traffic[B], b.mesh.traffic[A]
    assert sent.sent_bytes > 10_000 and received.received_bytes > 10_000
    assert sent.sent_frames > 3 and received.received_frames > 3
    before_sent, before = sent.sent_frames, received.received_frames
    for number in range(100):
        assert a.mesh.send(B, GROUP, [b"%d" % number])
    await eventually(lambda: len(b.frames) == 101)
    assert 1 <= sent.sent_frames - before_sent < 10  # one, and statuses that are sent meanwhile
    assert 1 <= received.received_frames - before < 10
    assert (sent.connects, sent.losses) == (received.connects, received.losses) == (2, 1)


async def test_one_connection_stands_however_often_both_dial_at_once(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    for times in range(1, 31):
        for node, other in ((a, B), (b, A)):
            link = node.mesh._peers[other].link
            if link is not None:
                link.cut("test")
        await eventually(lambda times=times: min(a.ups, b.ups) > times)
        await eventually(lambda: a.is_up(b) and b.is_up(a))

    ours = a.mesh._peers[B].link
    theirs = b.mesh._peers[A].link
    assert ours is not None and theirs is not None
    assert ours.extra("sockname") == theirs.extra("peername")
    await eventually(lambda: not a.mesh._shaking and not b.mesh._shaking)


async def test_ups_and_downs_alternate(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    for times in range(1, 11):
        link = b.mesh._peers[A].link
        assert link is not None
        link.cut("test")
        await eventually(lambda times=times: min(a.ups, b.ups) > times)
        await eventually(lambda: a.is_up(b) and b.is_up(a))

    for node in (a, b):
        kinds = [kind for kind, _ in node.events]
        assert kinds == ["up", "down"] * (len(kinds) // 2) + ["up"] * (len(kinds) % 2)


async def test_restarted_node_is_back_as_fast_as_it_dials(cluster: Cluster) -> None:
    slow = dataclasses.replace(QUICK, redial_first_s=600.0, redial_max_s=600.0)
    a, b = await cluster.started("a", "b", limits=slow)
    await b.mesh.stop()
    await eventually(lambda: not a.is_up(b))

    again = cluster.node("b", limits=slow, incarnation=2)
    await again.mesh.start()

    await eventually(lambda: a.is_up(again) and again.is_up(a))
    assert a.mesh.connected()[B]["incarnation"] == 2


async def test_node_that_comes_late_is_reached_by_redialing(cluster: Cluster) -> None:
    cluster.reserve("a", "b")
    a, b = cluster.node("a"), cluster.node("b", peers={})
    await a.mesh.start()
    await eventually(lambda: a.mesh._peers[B].complaint != "")

    await b.mesh.start()
    b.mesh.set_peers({A: ("127.0.0.1", 1)})

    await eventually(lambda: a.is_up(b) and b.is_up(a))


async def test_status_goes_on_being_told(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    b.hello["disk_low"] = True

    await eventually(lambda: bool(a.mesh.connected().get(B, {}).get("disk_low")))
    told = {"name": "b", "disk_low": True, "incarnation": 1, LEVELS: Spoken()}
    assert a.statuses[-1] == (B, told)


async def test_hello_that_fails_for_a_while_is_told_again_later(cluster: Cluster) -> None:
    patient = dataclasses.replace(QUICK, silence_s=10)
    a, b = await cluster.started("a", "b", limits=patient)
    told, asked = b.mesh._events, []

    def fail() -> dict[str, Any]:
        asked.append(len(a.statuses))
        raise RuntimeError("nothing to tell yet")

    b.mesh._events = dataclasses.replace(told, hello=fail)
    await eventually(lambda: len(asked) == 4)
    assert asked[1] == asked[3]

    b.mesh._events = told

    await eventually(lambda: len(a.statuses) > asked[3])
    assert a.ups == 1


async def test_address_that_makes_no_sense_is_dialed_again_and_replaced(cluster: Cluster) -> None:
    cluster.reserve("a", "b")
    b = cluster.node("b", peers={A: ("127.0.0.1", 1)})
    a = cluster.node("a", peers={B: ("x" * 300, 7000)})
    await a.mesh.start()
    await b.mesh.start()
    await eventually(lambda: a.mesh._peers[B].complaint != "")

    a.mesh.set_peers(cluster.addresses)

    await eventually(lambda: a.is_up(b) and b.is_up(a))


async def test_send_without_a_link_is_refused(cluster: Cluster) -> None:
    (a,) = await cluster.started("a")

    assert not a.mesh.send(B, GROUP, [b"x"])
    assert a.mesh.backlog_bytes(B) == 0


async def test_stopped_node_is_noticed_at_once_and_calls_nobody_back(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    await b.mesh.stop()
    await b.mesh.stop()

    await eventually(lambda: ("down", B) in a.events)
    assert b.events == [("up", A)]
    assert not b.mesh.send(A, GROUP, [b"x"])


async def test_peer_taken_from_the_table_is_cut_and_kept_out(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    a.mesh.set_peers({})
    await eventually(lambda: not a.is_up(b) and not b.is_up(a))
    await eventually(lambda: "not in this node's table" in b.mesh._peers[A].complaint)
    a.mesh.set_peers(cluster.addresses)

    await eventually(lambda: a.is_up(b) and b.is_up(a))


async def test_unlisted_node_joins_where_that_is_allowed(cluster: Cluster) -> None:
    cluster.reserve("a", "b")
    a = cluster.node("a", peers={}, limits=dataclasses.replace(QUICK, admit_unlisted=True))
    b = cluster.node("b")
    await a.mesh.start()
    await b.mesh.start()

    await eventually(lambda: a.is_up(b) and b.is_up(a))
    assert a.mesh.send(B, GROUP, [b"hello"])


async def test_unlisted_node_that_left_is_forgotten_and_may_come_again(cluster: Cluster) -> None:
    cluster.reserve("a", "b")
    a = cluster.node("a", peers={}, limits=dataclasses.replace(QUICK, admit_unlisted=True))
    b = cluster.node("b")
    await a.mesh.start()
    await b.mesh.start()
    await eventually(lambda: a.is_up(b))

    await b.mesh.stop()
    await eventually(lambda: not a.mesh._peers)
    again = cluster.node("b", incarnation=2)
    await again.mesh.start()

    await eventually(lambda: a.is_up(again) and again.is_up(a))


async def test_peer_taken_from_the_table_keeps_its_link_where_unlisted_ones_may_connect(
    cluster: Cluster,
) -> None:
    open_to_all = dataclasses.replace(QUICK, admit_unlisted=True)
    a, b = await cluster.started("a", "b", limits=open_to_all)

    a.mesh.set_peers({})
    assert a.is_up(b) and a.mesh._peers[B].dialer is None
    await b.mesh.stop()

    await eventually(lambda: not a.mesh._peers)
    assert a.ups == 1


async def test_unlisted_node_is_dialed_once_it_is_in_the_table(cluster: Cluster) -> None:
    open_to_all = dataclasses.replace(QUICK, admit_unlisted=True)
    cluster.reserve("a", "b")
    a, b = cluster.node("a", peers={}, limits=open_to_all), cluster.node("b", limits=open_to_all)
    await a.mesh.start()
    await b.mesh.start()
    await eventually(lambda: a.is_up(b) and b.is_up(a))

    a.mesh.set_peers(cluster.addresses)
    b.mesh.set_peers({})
    link = b.mesh._peers[A].link
    assert link is not None
    link.cut("as a broken network would")

    await eventually(lambda: a.ups == 2 and b.is_up(a))


class Frozen:
    """A relay between two nodes that can stop passing bytes on, as a cut cable does."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> tuple[str, int]:
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()
        return host, port

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection(*self.target)
        for source, sink in ((reader, onward_writer), (onward_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self.tasks.add(task)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(4096):
            await self.flowing.wait()
            sink.write(data)
            await sink.drain()
        sink.close()

    def stop(self) -> None:
        self.server.close()
        for task in self.tasks:
            task.cancel()


async def relayed(cluster: Cluster, limits: LinkLimits = QUICK) -> tuple[Node, Node, Frozen]:
    """Two nodes whose link goes through a relay."""
    cluster.reserve("a", "b")
    relay = Frozen(cluster.addresses[B])
    b = cluster.node("b", peers={A: ("127.0.0.1", 1)}, limits=limits)
    a = cluster.node("a", peers={B: await relay.start()}, limits=limits)
    await b.mesh.start()
    await a.mesh.start()
    await eventually(lambda: a.is_up(b) and b.is_up(a))
    return a, b, relay


async def test_silent_peer_is_cut_and_the_backlog_is_honest(cluster: Cluster) -> None:
    a, b, relay = await relayed(cluster)

    relay.flowing.clear()
    for _ in range(32):
        assert a.mesh.send(B, GROUP, [bytes(1_000_000)])
    await asyncio.sleep(0)
    backlog = a.mesh.backlog_bytes(B)

    assert 20_000_000 < backlog < 33_000_000
    await eventually(lambda: ("down", B) in a.events and ("down", A) in b.events)
    assert a.mesh.backlog_bytes(B) == 0
    relay.stop()


async def test_peer_that_does_not_read_is_cut_at_the_backlog_limit(cluster: Cluster) -> None:
    limits = dataclasses.replace(QUICK, backlog_bytes_max=10_000_000, silence_s=60)
    a, _b, relay = await relayed(cluster, limits)
    relay.flowing.clear()

    taken = 0
    while a.mesh.send(B, GROUP, [bytes(100_000)]):
        taken += 1
        assert ("down", B) not in a.events
        await asyncio.sleep(0)

    assert 10_000_000 <= taken * 100_000 < 25_000_000
    await eventually(lambda: ("down", B) in a.events)
    relay.stop()


async def test_after_a_silent_cut_the_next_dial_is_taken(cluster: Cluster) -> None:
    a, b, relay = await relayed(cluster)

    relay.flowing.clear()
    await eventually(lambda: ("down", B) in a.events)
    relay.flowing.set()

    await eventually(lambda: a.is_up(b) and b.is_up(a))
    relay.stop()


async def test_stall_of_this_node_cuts_nobody(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")
    link = a.mesh._peers[B].link
    assert link is not None

    link.heard_at -= 10
    a.mesh._cut_silent(link.heard_at + QUICK.silence_s / 2)

    assert a.is_up(b)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
async def test_without_a_secret_only_loopback_is_listened_on(cluster: Cluster, host: str) -> None:
    cluster.addresses[A] = (host, 0)
    node = cluster.node("a", secret=b"")

    with pytest.raises(InsecureListen, match="secret"):
        await node.mesh.start()


async def test_without_a_secret_loopback_works(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b", secret=b"")

    assert a.mesh.send(B, GROUP, [b"x"])
    await eventually(lambda: len(b.frames) == 1)


async def test_port_in_use_leaves_nothing_open(cluster: Cluster) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        cluster.addresses[A] = taken.getsockname()
        node = cluster.node("a")

        with pytest.raises(OSError):
            await node.mesh.start()

    assert not node.mesh._tasks


async def test_fault_of_a_receiver_does_not_cut_the_link(cluster: Cluster) -> None:
    a, b = await cluster.started("a", "b")

    def fail(*_: Any) -> None:
        raise RuntimeError("a bug above")

    events = b.mesh._events
    b.mesh._events = dataclasses.replace(events, on_frame=fail)
    assert a.mesh.send(B, GROUP, [b"one"])
    await eventually(lambda: a.mesh.backlog_bytes(B) == 0)
    status_count = len(b.statuses)
    await eventually(lambda: len(b.statuses) > status_count + 1)
    b.mesh._events = events
    assert a.mesh.send(B, GROUP, [b"two"])

    await eventually(lambda: [f for _, _, f in b.frames] == [b"two"])
    assert ("down", B) not in a.events


def test_defaults_notice_silence_in_three_seconds() -> None:
    limits = LinkLimits()

    assert (limits.status_interval_s, limits.silence_s, limits.redial_max_s) == (0.5, 3.0, 1.0)

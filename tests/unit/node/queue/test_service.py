"""Receives at the leader: what is granted is answered, once, or given back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from msgspec import structs

from delivery.entries.ops import RELEASE, Committed, Own, Settled
from goqueue.wire.batch import Record, encode_batch
from goqueue.wire.errors import NotLeader
from goqueue.wire.types import NodeId, PartitionId
from log.disk.memory import MemoryDisk
from node.api.queue import Received
from node.assembly import NodeAssembly
from node.partition.host import PartitionHost
from node.peers.link import NoPeers
from node.queue.group_admin import group_ref
from node.queue.service import QueueService
from node.queue_assembly import node_tasks
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import GroupRef, TakeAnswer, TakeRequest, WaitRequest
from tests.unit.node.queue.test_whole_node import publish, receive
from tests.unit.node.test_node import eventually, running

PEER = NodeId("peer")


@dataclass
class Scene:
    """A node with two partitions of which the first has messages, and its service."""

    node: NodeAssembly
    service: QueueService
    hosts: list[PartitionHost]
    ref: GroupRef

    def request(self, limit: int = 10, *, id: int = 1, max_bytes: int = 1 << 20) -> TakeRequest:
        partitions = [(host.id.pack(), id + at) for at, host in enumerate(self.hosts)]
        return TakeRequest(self.ref, partitions, "m", limit, max_bytes, 30_000)

    def in_flight(self) -> int:
        groups = (host.state.queue.groups.get(self.ref.id) for host in self.hosts)
        return sum(len(group.leases) for group in groups if group is not None)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with running(MemoryDisk()) as node:
        await node.broker.topics.create_topic("t", {"partitions": 2})
        await publish(node, *map(str, range(10)))
        replicas = node.broker.topics._replicas
        hosts = sorted(replicas.led(), key=lambda host: host.id)
        ref = group_ref(await node.broker.groups.ensure_group("g"))
        service = QueueService(
            NodeId("node-1"),
            replicas,
            NoPeers(),
            node.broker.records._partitions.service.confirmed,
            node_tasks(),
        )
        yield Scene(node, service, hosts, ref)


def offsets(answer: TakeAnswer) -> list[int]:
    return [grant.offset for taken in answer.taken for grant in taken.grants]


async def test_a_repeated_request_is_answered_as_the_first_one(scene: Scene) -> None:
    first = await scene.service.take(scene.request(3))
    again = await scene.service.take(scene.request(3))

    assert offsets(first) == offsets(again) == [0, 1, 2]
    assert [t.delivery for t in first.taken] == [t.delivery for t in again.taken]
    assert scene.in_flight() == 3


async def test_a_repeated_request_does_not_bring_back_what_was_given_back(scene: Scene) -> None:
    first = await scene.service.take(scene.request(2))
    released = Settled(scene.ref.id, RELEASE, [(first.taken[0].delivery, [0])])
    await scene.hosts[0].queue.submit([released])

    assert offsets(await scene.service.take(scene.request(2))) == [1]


async def test_a_link_that_breaks_leaves_the_leases_for_the_request_that_comes_again(
    scene: Scene,
) -> None:
    payload = rpc.encode(scene.request(2))
    serving = asyncio.ensure_future(scene.service._serve_take(PEER, payload))
    await asyncio.sleep(0)
    serving.cancel()
    await asyncio.wait([serving])

    again = queue_rpc.decode_answer(await scene.service._serve_take(PEER, payload), TakeAnswer)

    assert offsets(again) == [0, 1]
    assert scene.in_flight() == 2


async def on_its_way(scene: Scene) -> PartitionHost:
    """The first partition, once what a receive is to be granted there is proposed."""
    first = scene.hosts[0]
    while not first.queue._dispatcher or not first.queue._dispatcher._flying:  # noqa: ASYNC110
        await asyncio.sleep(0)
    return first


async def test_a_request_that_comes_again_is_told_of_a_grant_that_took_all_there_was(
    scene: Scene,
) -> None:
    """Told of nothing, its messages would wait for their visibility timeout, and fail by it."""
    taking = asyncio.ensure_future(scene.service.take(scene.request(10)))
    await on_its_way(scene)

    again = await scene.service.take(scene.request(10))

    assert offsets(again) == offsets(await taking) != []
    assert scene.in_flight() == len(offsets(again))


async def test_a_recalled_request_tells_what_it_was_granted_and_is_granted_nothing_more(
    scene: Scene,
) -> None:
    await scene.service.take(scene.request(2))

    recalled = await scene.service.take(scene.request(0))
    again = await scene.service.take(scene.request(2))

    assert offsets(recalled) == [0, 1]
    assert [taken.messages for taken in recalled.taken] == [[]]
    assert offsets(again) == []


async def test_recalling_what_was_granted_nothing_leases_nothing_so_others_keep_their_order(
    scene: Scene,
) -> None:
    """It took one message and gave it back: meanwhile others were given later ones."""
    recalling = asyncio.ensure_future(scene.service.take(scene.request(0, id=50)))
    taking = asyncio.ensure_future(scene.service.take(scene.request(3)))

    assert offsets(await taking) == [0, 1, 2]
    assert offsets(await recalling) == []
    assert scene.in_flight() == 3


async def test_a_recalled_request_that_is_on_its_way_is_to_be_asked_for_again(
    scene: Scene,
) -> None:
    taking = asyncio.ensure_future(scene.service.take(scene.request(2)))
    first = await on_its_way(scene)

    recalled = await scene.service.take(scene.request(0))

    assert recalled.moved == [(first.id.pack(), "node-1")]
    assert offsets(await taking) == [0, 1]
    assert offsets(await scene.service.take(scene.request(0))) == [0, 1]


async def test_partitions_share_the_bytes_of_an_answer_however_many_are_asked(
    scene: Scene,
) -> None:
    """The link takes no answer of any size: one that is too large is lost, time and again."""
    for host in scene.hosts:
        await host.queue.opened(scene.ref)
    large = encode_batch([Record(b"x" * 60_000)])
    first = scene.hosts[0].end_offset
    for host in scene.hosts:
        await scene.node.broker.records.append("t", host.id.partition, large, deadline_s=30)
    await scene.hosts[0].queue.submit([Committed(scene.ref.id, first)])

    answer = await scene.service.take(scene.request(100, max_bytes=100_000))
    again = await scene.service.take(scene.request(100, max_bytes=100_000))
    await eventually(lambda: scene.in_flight() == 1)
    other = await scene.service.take(scene.request(100, id=50, max_bytes=100_000))

    assert offsets(answer) == offsets(again) == [first]
    assert [taken.partition for taken in other.taken] == [scene.hosts[1].id.pack()]
    assert offsets(other) == [0]


async def test_a_leader_that_was_replaced_refuses_no_claim_newer_than_the_owner_it_knows(
    scene: Scene,
) -> None:
    """It stood still while another leader made the claimant the owner: so it asks first."""
    first = scene.hosts[0]
    await first.queue.submit([Own(scene.ref.id, "former", 3, fence=False)], scene.ref)
    asked = structs.replace(scene.request(3), partitions=[(first.id.pack(), 1)])
    newer = structs.replace(asked, generation=4)
    older = structs.replace(asked, generation=2)

    async def replaced(_partition_id: PartitionId) -> None:
        raise NotLeader(None)

    blocked = await scene.service.take(newer)
    scene.service._confirm = replaced
    moved = await scene.service.take(newer)

    assert [(packed, why) for packed, why, _ in blocked.blocked] == [(first.id.pack(), "stale")]
    assert (moved.blocked, moved.moved) == ([], [(first.id.pack(), None)])
    assert [why for _, why, _ in (await scene.service.take(older)).blocked] == ["stale"]


async def test_what_does_not_fit_into_the_answer_is_given_back(scene: Scene) -> None:
    for _ in range(3):
        await publish(scene.node, Record(b"x" * 10_000))
    await scene.service.take(scene.request(10))

    answer = await scene.service.take(scene.request(10, id=50, max_bytes=15_000))

    assert offsets(answer) == [10]
    again = await receive(scene.node, wait_s=5)
    assert [(m.offset, m.attempt) for m in again] == [(11, 1), (12, 1)]


async def test_a_damaged_message_is_set_aside_and_its_neighbours_are_delivered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = scene.hosts[0].messages
    read = messages.rows
    monkeypatch.setattr(
        messages,
        "rows",
        lambda *wanted, **how: [None if r and r.offset == 1 else r for r in read(*wanted, **how)],
    )

    damaged = scene.hosts[0].id.pack()
    first = await scene.service.take(scene.request(3))
    second = await scene.service.take(scene.request(9, id=50))
    assert (offsets(first), first.unread) == ([0, 2], [damaged])
    assert (offsets(second), second.unread) == (list(range(3, 10)), [damaged])
    told = await receive(scene.node, limit=9)
    others = await receive(scene.node, "other", limit=1)
    assert isinstance(told, Received)
    assert isinstance(others, Received)
    assert told.unanswered == [("t", 0)]
    assert (others[0].offset, others.unanswered) == (0, []), "it has met nothing of it yet"
    group = scene.hosts[0].state.queue.groups[scene.ref.id]
    assert list(group.waiting) == [1]
    assert group.attempts(1) == 0


async def test_partitions_that_are_not_led_here_are_named(scene: Scene) -> None:
    scene.hosts[1]._step_down(None)
    scene.hosts[1].raft_group.state.handing_over = True  # type: ignore[attr-defined]

    answer = await scene.service.take(scene.request(100))

    assert (len(offsets(answer)), answer.moved) == (10, [(scene.hosts[1].id.pack(), None)])


async def test_a_wait_that_is_left_ends_and_leases_nothing(scene: Scene) -> None:
    await scene.service.take(scene.request(10))
    request = WaitRequest(scene.ref.id, [host.id.pack() for host in scene.hosts], 60_000, 77)
    waiting = asyncio.ensure_future(scene.service.wait(request))
    await asyncio.sleep(0.05)
    assert not waiting.done()

    await scene.service._serve_leave(PEER, (77).to_bytes(8, "little"))

    assert (await waiting).ready == []
    assert all(not host.queue._waiters for host in scene.hosts)

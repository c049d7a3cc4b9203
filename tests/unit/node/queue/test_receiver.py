"""Receiving from partitions of several leaders: nothing is leased that is not answered."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from delivery.config import GroupConfig
from delivery.entries.ops import RELEASE, Grant, Op, Settled
from goqueue.wire.errors import (
    GroupHalted,
    NoQuorum,
    OverBudget,
    Timeout,
    TooManyInFlight,
    Unavailable,
    UnknownTopic,
)
from goqueue.wire.types import NodeId, PartitionId, TopicId
from node.api.receiving import TAKING
from node.metrics import Metrics
from node.peers.link import PeerLink
from node.queue import receiver as queue_receiver
from node.queue.calls import QueueCalls
from node.queue.leader_waits import LOOK_S
from node.queue.poll import Poll
from node.queue.receiver import QueueReceiver
from node.queue.service import QueueService
from node.queue_assembly import node_tasks
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import (
    GroupRef,
    MessageRow,
    TakeAnswer,
    Taken,
    TakeRequest,
    WaitAnswer,
    WaitRequest,
)
from raft.link import LinkDown

ME, B, C = NodeId("a"), NodeId("b"), NodeId("c")
P = [PartitionId(TopicId(1, 2), number) for number in range(3)]
REF = GroupRef(7, "g", 7, GroupConfig())


class Leader:
    """A node that leads some partitions: what is ready there, by partition."""

    def __init__(self, *led: PartitionId) -> None:
        self.led = list(led)
        self.ready: dict[PartitionId, int] = {}
        self.blocked: dict[PartitionId, tuple[str, str]] = {}
        self.takes: list[TakeRequest] = []
        self.waits: list[WaitRequest] = []
        self.left: list[int] = []
        self.hold: asyncio.Event | None = None
        self.loses_answers = 0
        self.granted: dict[int, Taken] = {}
        """By request id."""
        self.woken = asyncio.Event()

    async def take(self, request: TakeRequest) -> TakeAnswer:
        self.takes.append(request)
        if self.hold is not None:
            await self.hold.wait()
        answer = TakeAnswer([], [], [], [])
        left = request.limit
        for packed, request_id in request.partitions:
            partition_id = PartitionId.unpack(packed)
            if partition_id not in self.led:
                answer.moved.append((packed, None))
            elif request.limit == 0 and request_id not in self.granted:
                answer.empty.append(packed)
            elif request_id in self.granted:
                answer.taken.append(self.granted[request_id])
            elif partition_id in self.blocked:
                answer.blocked.append((packed, *self.blocked[partition_id]))
            elif self.ready.get(partition_id):
                count = min(left, self.ready[partition_id])
                self.ready[partition_id] -= count
                left -= count
                self.granted[request_id] = taken(partition_id, count)
                answer.taken.append(self.granted[request_id])
            else:
                answer.empty.append(packed)
        if self.loses_answers:
            self.loses_answers -= 1
            raise LinkDown(B, sent=True)
        return answer

    async def wait(self, request: WaitRequest) -> WaitAnswer:
        self.waits.append(request)
        try:
            async with asyncio.timeout(request.wait_ms / 1000):
                await self.woken.wait()
        except TimeoutError:
            return WaitAnswer([], [])
        groups = map(PartitionId.unpack, request.partitions)
        return WaitAnswer(
            [partition_id.pack() for partition_id in groups if self.ready.get(partition_id)], []
        )


def taken(partition_id: PartitionId, count: int) -> Taken:
    rows = [MessageRow(n, 1, b"x", None, (), 2, None, None, None) for n in range(count)]
    return Taken(partition_id.pack(), 5, 1000, [Grant(n, 1) for n in range(count)], rows)


class World:
    """A front with its node, two peers, and where it believes the leaders to be."""

    def __init__(self) -> None:
        self.leaders = {ME: Leader(P[0]), B: Leader(P[1]), C: Leader(P[2])}
        self.believed: dict[PartitionId, NodeId] = dict(zip(P, (ME, B, C), strict=True))
        self.present = 3
        self.exists = True
        self.submitted: list[tuple[PartitionId, Op]] = []
        self.background_tasks = node_tasks()
        self.receiver = QueueReceiver(
            ME,
            service=cast(QueueService, self.leaders[ME]),
            calls=cast(QueueCalls, self),
            topology=cast(Topology, self),
            link=cast(PeerLink, self),
            background_tasks=self.background_tasks,
            rng=random.Random(1),
            metrics=Metrics(),
        )

    # as the topology

    def leader(self, partition_id: PartitionId) -> NodeId | None:
        return self.believed.get(partition_id)

    def learn(self, partition_id: PartitionId, leader: NodeId | None, asked: NodeId) -> None:
        if leader is not None:
            self.believed[partition_id] = leader

    def replicas(self, _partition_id: PartitionId) -> tuple[NodeId, ...]:
        return (ME, B, C) if self.exists else ()

    def reachable(self, _partition_id: PartitionId) -> int:
        return self.present

    async def changed(self, _partition_id: PartitionId, timeout_s: float) -> None:
        await asyncio.sleep(min(timeout_s, 0.001))

    # as the link, and as the calls

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        leader = self.leaders[node]
        if method == queue_rpc.LEAVE:
            leader.left.append(int.from_bytes(payload, "little"))
            return b""
        if method == queue_rpc.TAKE:
            return rpc.encode(await leader.take(rpc.decode_request(payload, TakeRequest)))
        return rpc.encode(await leader.wait(rpc.decode_request(payload, WaitRequest)))

    @property
    def operations(self) -> World:
        return self

    async def put(
        self, partition_id: PartitionId, ops: list[Op], *, deadline_s: float, patience_s: float
    ) -> None:
        assert deadline_s == patience_s == queue_receiver.RECOVER_S, "as the others, it waits"
        self.submitted += [(partition_id, op) for op in ops]

    def receive(self, limit: int = 10, wait_s: float = 0.0) -> asyncio.Task[list[Taken]]:
        poll = Poll(REF, list(P), "m", limit, 30_000, 1 << 20)
        return asyncio.ensure_future(self.receiver.receive(poll, wait_s))


@pytest.fixture
async def world() -> World:
    return World()


async def eventually(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - any condition: there is no event to wait for
            await asyncio.sleep(0.001)


async def test_leaders_are_asked_at_once_and_those_that_have_more_for_the_rest(
    world: World,
) -> None:
    world.leaders[ME].ready = {P[0]: 1}
    world.leaders[B].ready = {P[1]: 9}

    found = await world.receive(limit=5)

    gave = [(PartitionId.unpack(taken.partition), len(taken.grants)) for taken in found]
    assert sorted(gave) == [(P[0], 1), (P[1], 2), (P[1], 2)]
    asked = [[take.limit for take in world.leaders[node].takes] for node in (ME, B, C)]
    assert asked == [[2], [2, 2], [1]]


async def test_fewer_messages_than_leaders_are_asked_for_in_turn(world: World) -> None:
    world.leaders[B].ready = {P[1]: 9}
    world.leaders[C].ready = {P[2]: 9}

    (found,) = await world.receive(limit=1)

    assert PartitionId.unpack(found.partition) == P[1]
    assert world.leaders[C].takes == []


async def test_while_a_receive_waits_nothing_is_leased_for_it(world: World) -> None:
    polling = world.receive(wait_s=30)
    await eventually(lambda: all(leader.waits for leader in world.leaders.values()))
    assert [len(leader.takes) for leader in world.leaders.values()] == [1, 1, 1]

    world.leaders[C].ready = {P[2]: 1}
    world.leaders[C].woken.set()
    (found,) = await polling

    assert PartitionId.unpack(found.partition) == P[2]
    assert [len(leader.takes) for leader in world.leaders.values()] == [1, 1, 2]
    await eventually(lambda: world.leaders[B].left == [world.leaders[B].waits[0].ticket])


async def test_a_receive_ends_empty_when_its_time_is_over(world: World) -> None:
    assert await world.receive(wait_s=0.05) == []


async def test_an_answer_that_comes_after_its_caller_left_is_given_back(world: World) -> None:
    world.leaders[B].ready = {P[1]: 2}
    world.leaders[B].hold = held = asyncio.Event()
    polling = world.receive()
    await eventually(lambda: world.leaders[B].takes)
    polling.cancel()
    await asyncio.wait([polling])

    held.set()

    await eventually(lambda: world.submitted)
    assert world.submitted == [(P[1], Settled(REF.id, RELEASE, [(5, [0, 1])]))]


async def test_what_one_leader_granted_is_given_back_when_the_caller_leaves_at_the_next(
    world: World,
) -> None:
    world.leaders[ME].ready = {P[0]: 1}
    world.leaders[B].hold = asyncio.Event()
    polling = world.receive()
    await eventually(lambda: world.leaders[B].takes)
    polling.cancel()

    await eventually(lambda: world.submitted)
    assert world.submitted == [(P[0], Settled(REF.id, RELEASE, [(5, [0])]))]


async def test_a_lost_answer_is_asked_for_under_the_same_request_id(world: World) -> None:
    world.leaders[B].ready = {P[1]: 2}
    world.leaders[B].loses_answers = 1
    polling = world.receive(wait_s=5)
    await eventually(lambda: len(world.leaders[B].takes) >= 2)
    polling.cancel()

    first, second = world.leaders[B].takes[:2]
    assert first.partitions == second.partitions
    local = world.leaders[ME].takes
    assert len({request.partitions[0][1] for request in local}) == len(local)


async def test_what_a_lost_answer_granted_is_given_back_when_others_had_enough(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_receiver, "PAUSE_MAX_S", 0.001)
    world.leaders[ME].ready = {P[0]: 1}
    world.leaders[B].ready = {P[1]: 2}
    world.leaders[B].loses_answers = 1

    (found,) = await world.receive()

    assert PartitionId.unpack(found.partition) == P[0]
    await eventually(lambda: world.submitted)
    assert world.submitted == [(P[1], Settled(REF.id, RELEASE, [(5, [0, 1])]))]


async def test_nothing_is_taken_to_find_out_whether_a_lost_answer_granted_something(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_receiver, "PAUSE_MAX_S", 0.001)
    world.leaders[ME].ready = {P[0]: 1}
    world.leaders[B].loses_answers = 1
    await world.receive()
    world.leaders[B].ready = {P[1]: 2}

    await eventually(lambda: len(world.leaders[B].takes) == 2)

    assert world.leaders[B].takes[1].limit == 0
    assert world.leaders[B].takes[1].partitions == world.leaders[B].takes[0].partitions
    assert world.submitted == []


async def test_a_receive_knows_whose_answers_did_not_come(world: World) -> None:
    world.leaders[ME].ready = {P[0]: 1}
    world.leaders[B].loses_answers = 1
    poll = Poll(REF, list(P), "m", 10, 30_000, 1 << 20)

    await world.receiver.receive(poll, 0.0)

    assert poll.doubtful == {P[1]}


async def test_what_a_leader_granted_before_it_died_is_given_back_at_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_receiver, "PAUSE_MAX_S", 0.001)
    world.leaders[ME].ready = {P[0]: 1}
    world.leaders[B].ready = {P[1]: 2}
    world.leaders[B].loses_answers = 1
    await world.receive()

    world.leaders[C].granted = world.leaders[B].granted
    world.leaders[B].led, world.leaders[C].led = [], [P[1], P[2]]
    world.believed[P[1]] = C

    await eventually(lambda: world.submitted)
    assert world.submitted == [(P[1], Settled(REF.id, RELEASE, [(5, [0, 1])]))]


async def test_what_was_granted_is_given_back_also_after_a_long_while_without_a_leader(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_receiver, "PAUSE_MAX_S", 0.001)
    monkeypatch.setattr(queue_receiver, "RECOVER_PAUSE_MAX_S", 0.005)
    world.leaders[ME].ready = {P[0]: 1}
    world.leaders[B].ready = {P[1]: 2}
    world.leaders[B].loses_answers = 1
    await world.receive()

    asked: list[PartitionId] = []
    believed = world.believed
    monkeypatch.setattr(world, "leader", asked.append)
    await eventually(lambda: len(asked) > 25)
    assert world.submitted == []
    monkeypatch.setattr(world, "leader", believed.get)

    await eventually(lambda: world.submitted)
    assert world.submitted == [(P[1], Settled(REF.id, RELEASE, [(5, [0, 1])]))]


async def test_what_need_not_be_given_back_any_more_is_not_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_receiver, "PAUSE_MAX_S", 0.001)
    world.leaders[ME].ready = {P[0]: 1}
    world.leaders[B].loses_answers = 1
    poll = Poll(REF, list(P), "m", 10, 20, 1 << 20)
    await world.receiver.receive(poll, 0.0)

    world.believed.clear()
    await eventually(lambda: not world.background_tasks._tasks)


async def test_a_partition_that_moved_is_found_at_its_new_leader(world: World) -> None:
    world.leaders[B].led = []
    world.leaders[C].led = [P[1], P[2]]
    world.leaders[C].ready = {P[1]: 1}
    polling = world.receive(wait_s=10)
    await eventually(lambda: world.leaders[B].takes)
    world.believed[P[1]] = C

    (found,) = await polling
    assert PartitionId.unpack(found.partition) == P[1]


async def test_what_is_to_be_given_back_is_given_back_before_the_node_stops(world: World) -> None:
    world.leaders[B].ready = {P[1]: 2}
    world.leaders[B].hold = held = asyncio.Event()
    polling = world.receive()
    await eventually(lambda: world.leaders[B].takes)
    polling.cancel()
    await asyncio.wait([polling])

    stopping = asyncio.ensure_future(world.background_tasks.stop())
    await asyncio.sleep(0)
    held.set()
    await stopping

    assert world.submitted == [(P[1], Settled(REF.id, RELEASE, [(5, [0, 1])]))]


async def test_a_group_that_no_partition_may_deliver_to_is_told_why(world: World) -> None:
    for node, partition_id in zip((ME, B, C), P, strict=True):
        world.leaders[node].blocked = {partition_id: (queue_rpc.HALTED, "poison")}
    with pytest.raises(GroupHalted) as halted:
        await world.receive(wait_s=30)
    assert halted.value.data["reason"] == "poison"

    world.leaders[C].blocked = {P[2]: (queue_rpc.FULL, "10")}
    with pytest.raises(TooManyInFlight):
        await world.receive(wait_s=30)


async def test_where_nobody_leads_a_receive_says_so_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_receiver, "LEADERLESS_S", 0.05)
    world.believed = {}

    with pytest.raises(Unavailable):
        await world.receive()
    world.present = 1
    with pytest.raises(NoQuorum):
        await world.receive()


async def test_a_receive_that_waits_on_a_deleted_topic_ends_at_once(world: World) -> None:
    world.believed = {}
    world.exists = False

    with pytest.raises(UnknownTopic):
        await world.receive(wait_s=60)


async def test_a_peer_that_fails_does_not_keep_others_from_answering(world: World) -> None:
    async def fails(_request: TakeRequest) -> TakeAnswer:
        raise Timeout

    world.leaders[B].take = cast(  # type: ignore[method-assign]
        Callable[[TakeRequest], Awaitable[TakeAnswer]], fails
    )
    world.leaders[C].ready = {P[2]: 1}

    (found,) = await world.receive()
    assert PartitionId.unpack(found.partition) == P[2]


async def test_where_a_leader_is_silent_thousands_look_less_often_than_a_few(world: World) -> None:
    assert world.receiver._look_s() == LOOK_S
    world.receiver._waiting = 10_000
    assert all(5.0 <= world.receiver._look_s() <= 15.0 for _ in range(100))


class Rooms:
    """Tells how much may be taken, one time after the other; nothing where it is None."""

    def __init__(self, *sizes: int | None) -> None:
        self.sizes = list(sizes)
        self.held = False

    async def begin(self, bytes_max: int) -> int:
        assert bytes_max == 1 << 20
        size = self.sizes.pop(0)
        if size is None:
            raise OverBudget("answers", "holder", 1)
        self.held = True
        return size

    def end(self) -> None:
        self.held = False


async def test_no_more_is_taken_than_there_is_room_for(world: World) -> None:
    rooms = Rooms(999)
    TAKING.set(rooms)
    world.leaders[B].ready = {P[1]: 1}

    found = await world.receive()

    assert len(found) == 1
    assert rooms.held
    asked = [request.max_bytes for leader in world.leaders.values() for request in leader.takes]
    assert asked
    assert sum(asked) <= 2 * 999  # at once, and in turn of who had more


async def test_a_receive_that_waits_holds_no_room_and_takes_nothing_without(world: World) -> None:
    rooms = Rooms(999, None)
    TAKING.set(rooms)

    receiving = world.receive(wait_s=30)
    await eventually(lambda: all(leader.waits for leader in world.leaders.values()))
    assert not rooms.held
    world.leaders[C].ready = {P[2]: 1}
    world.leaders[C].woken.set()

    with pytest.raises(OverBudget):
        await receiving
    assert [len(leader.takes) for leader in world.leaders.values()] == [1, 1, 1]

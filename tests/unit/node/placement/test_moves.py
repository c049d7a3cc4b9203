"""Three whole nodes whose partitions move: nothing is lost, nothing stays where it came from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import cast

import pytest

from coordinator.cluster.state import ClusterState, Topic
from coordinator.commands.codec import Command
from coordinator.commands.placement import (
    AddPartitions,
    CancelReassignment,
    DrainBroker,
    Reassign,
    ReassignResult,
    Row,
    SetReplicationFactor,
    UndrainBroker,
)
from coordinator.errors import Overtaken
from coordinator.placement.steps import REMOVE, TRANSFER, Step, refusal
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import NotLeader
from goqueue.wire.types import Index, NodeId, Offset, PartitionId, TopicId
from node.api.claims import Claim
from node.metrics import Metrics
from node.partition.host import PartitionHost
from node.peers.forwarding import Forwarder
from node.peers.link import NoPeers
from node.placement.steps import MovingPartitions
from node.placement.views import MoveProgress
from node.storage.copying import copies
from node.storage.disks import REPLAYING
from node.storage.repair.healer import Healer
from tests.unit.node.groups.test_members import beat, join
from tests.unit.node.storage.copying.test_transfer_nodes import SMALL_SEGMENTS, SmallNodes
from tests.unit.node.test_node import append, eventually
from tests.unit.node.three_nodes import NAMES, ThreeNodes, all_ready, three_nodes

MOVED_S = 20.0
SETTLED_LOOKS = 40


@pytest.fixture
async def nodes() -> AsyncIterator[ThreeNodes]:
    async with three_nodes() as found:
        yield found


def state(nodes: ThreeNodes, name: str = "") -> ClusterState:
    running = name or next(iter(nodes.running))
    return nodes.broker(running).topics._cluster.state


def topic(nodes: ThreeNodes) -> Topic:
    return state(nodes).topics["t"]


def host(nodes: ThreeNodes, name: str, number: int = 0) -> PartitionHost | None:
    return nodes.broker(name).topics._replicas.find(PartitionId(topic(nodes).id, number))


async def do(nodes: ThreeNodes, command: Command) -> object:
    name = next(iter(nodes.running))
    return await nodes.broker(name).topics._cluster.command(command, 10.0)


async def create(nodes: ThreeNodes, factor: int, partitions: int = 1) -> None:
    settings = {"partitions": partitions, "replication_factor": factor}
    await nodes.broker("n1").topics.create_topic("t", settings)


def row(nodes: ThreeNodes, replicas: Sequence[str], number: int = 0) -> Row:
    before = topic(nodes).partitions[number].nodes
    return Row(topic(nodes).id.index, number, list(before), list(replicas))


async def move(nodes: ThreeNodes, replicas: Sequence[str], number: int = 0) -> int:
    made = await do(nodes, Reassign([row(nodes, replicas, number)]))
    assert isinstance(made, ReassignResult)
    return made.id


def is_settled(nodes: ThreeNodes) -> bool:
    """Whether every node knows that all replicas are where they should be, and runs those."""
    for name in nodes.running:
        layout = state(nodes, name).layout
        if layout.moving or layout.unequal or layout.reassignments.running():
            return False
        wanted = {
            partition_id
            for partition_id in layout.held_by(nodes.broker(name).topics._replicas._me)
            if partition_id.topic.index
        }
        hosts = nodes.broker(name).topics._replicas.all()
        if {one.id for one in hosts} != wanted:
            return False
        if any(one.raft_group.membership.configuration.learners for one in hosts):
            return False
    return True


async def settled(nodes: ThreeNodes) -> None:
    """A step that is late may yet add a learner, which goes again: so it has to stay like that."""
    seen = 0

    def stays() -> bool:
        nonlocal seen
        seen = seen + 1 if is_settled(nodes) else 0
        return seen >= SETTLED_LOOKS

    await eventually(stays, MOVED_S)


async def published(nodes: ThreeNodes, count: int, number: int = 0, at: int = 0) -> None:
    name = next(iter(nodes.running))
    for value in range(at, at + count):
        await append(nodes.running[name], f"{value}", partition=number)


async def values(nodes: ThreeNodes, name: str, number: int = 0) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while True:
        page = await nodes.broker(name).records.read(
            "t", number, Offset(offset), max_records=1000, max_bytes=1 << 20, wait_s=0
        )
        for stored in page.batches:
            found += RecordBatch.parse(stored.batch).values()
        if page.next_offset <= offset:
            return found
        offset = page.next_offset


def only(nodes: ThreeNodes, name: str, number: int = 0) -> PartitionHost:
    found = host(nodes, name, number)
    assert found is not None
    return found


async def test_a_partition_moves_to_another_node_with_all_it_holds(nodes: ThreeNodes) -> None:
    await create(nodes, 1)
    await published(nodes, 20)
    first = topic(nodes).partitions[0].preferred
    to = next(name for name in NAMES if name != first)

    await move(nodes, [to])
    await settled(nodes)

    assert [voter.node for voter in only(nodes, to).voters] == [to]
    assert host(nodes, first) is None
    await published(nodes, 5, at=20)
    for name in NAMES:
        assert await values(nodes, name) == [b"%d" % value for value in range(25)]


async def test_a_node_without_a_replica_finds_who_leads_after_each_move(
    nodes: ThreeNodes,
) -> None:
    await create(nodes, 1)
    first = topic(nodes).partitions[0].preferred
    to, other = [name for name in NAMES if name != first]
    for value, wanted in enumerate((to, first, to, other, first)):
        await append(nodes.running[other], f"{value}")
        await move(nodes, [wanted])
        await settled(nodes)
    assert await values(nodes, other) == [b"%d" % value for value in range(5)]
    broker = nodes.broker(other)
    assert [
        offsets.is_leader
        for offsets in (await broker.topics._offsets_collector.confirmed(topic(nodes))).values()
    ]


async def test_publishing_goes_on_while_a_partition_moves_there_and_back(
    nodes: ThreeNodes,
) -> None:
    await create(nodes, 2)
    before = list(topic(nodes).partitions[0].nodes)
    spare = next(name for name in NAMES if name not in before)
    stop, acked = asyncio.Event(), list[bytes]()

    async def publish(name: str) -> None:
        while not stop.is_set():
            value = f"{name}-{len(acked)}"
            await append(nodes.running[name], value)
            acked.append(value.encode())
            await asyncio.sleep(0.002)

    async with asyncio.TaskGroup() as tasks:
        for name in NAMES:
            tasks.create_task(publish(name))
        for wanted in ([before[0], spare], [spare, before[1]], before):
            await move(nodes, wanted)
            await settled(nodes)
        stop.set()

    for name in NAMES:
        found = await values(nodes, name)
        assert len(found) == len(set(found)) == len(acked)
        assert set(found) == set(acked)
    assert host(nodes, spare) is None


async def test_a_move_goes_on_when_the_clusters_leader_and_the_source_stop(
    nodes: ThreeNodes,
) -> None:
    await create(nodes, 1, partitions=6)
    for number in range(6):
        await published(nodes, 5, number)
    lead = nodes.leader()
    assert lead is not None

    rows = [row(nodes, [NAMES[(number + 1) % 3]], number) for number in range(6)]
    await do(nodes, Reassign(rows))
    await nodes.stop(lead)
    await eventually(lambda: nodes.leader() is not None)
    await nodes.start(lead)
    await settled(nodes)

    for number in range(6):
        assert await values(nodes, "n1", number) == [b"%d" % value for value in range(5)]
        assert host(nodes, NAMES[(number + 1) % 3], number) is not None


async def test_a_cancelled_move_leaves_no_learner_and_no_orphan(nodes: ThreeNodes) -> None:
    await create(nodes, 2)
    await published(nodes, 5)
    before = list(topic(nodes).partitions[0].nodes)
    spare = next(name for name in NAMES if name not in before)
    for pause_s in (0.0, 0.05, 0.3, 0.6):
        id = await move(nodes, [before[0], spare])
        await asyncio.sleep(pause_s)
        if not is_settled(nodes):
            await do(nodes, CancelReassignment(id))
        await settled(nodes)
        if list(topic(nodes).partitions[0].nodes) != before:
            await move(nodes, before)
            await settled(nodes)
        assert host(nodes, spare) is None
    assert await values(nodes, "n1") == [b"%d" % value for value in range(5)]


async def test_a_replica_that_moved_away_comes_back_on_its_old_term(nodes: ThreeNodes) -> None:
    await create(nodes, 1)
    await published(nodes, 3)
    first = topic(nodes).partitions[0].preferred
    to = next(name for name in NAMES if name != first)
    await move(nodes, [to])
    await settled(nodes)
    term = (
        nodes.broker(first)
        .topics._replicas._store.partition_log(PartitionId(topic(nodes).id, 0))
        .hard_state.term
    )
    assert term >= 1

    await move(nodes, [first])
    await settled(nodes)
    assert only(nodes, first).raft_group.term > term
    assert await values(nodes, to) == [b"0", b"1", b"2"]


async def test_a_node_that_slept_through_a_move_lets_go_of_its_replica(nodes: ThreeNodes) -> None:
    await create(nodes, 3)
    await published(nodes, 3)
    away = topic(nodes).partitions[0].nodes[2]
    await nodes.stop(away)
    await do(nodes, SetReplicationFactor("t", "", 2))

    def is_lowered() -> bool:
        placement = topic(nodes).partitions[0]
        known = state(nodes).layout.configuration(PartitionId(topic(nodes).id, 0))
        return known is not None and len(placement.replicas) == len(known.voters) == 2

    while away in topic(nodes).partitions[0].nodes:
        with suppress(Overtaken):  # the plan that the new factor asks for may come in between
            await move(nodes, sorted(nodes.running))
    await eventually(is_lowered, MOVED_S)
    await nodes.start(away)
    await settled(nodes)
    assert await values(nodes, away) == [b"0", b"1", b"2"]


async def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(nodes: ThreeNodes) -> None:
    for pause_s in (0.0, 0.3, 0.7):
        await create(nodes, 2, partitions=3)
        for number in range(3):
            await published(nodes, 3, number)
        rows = [row(nodes, _rotated(nodes, number), number) for number in range(3)]
        await do(nodes, Reassign(rows))
        await asyncio.sleep(pause_s)
        gone = topic(nodes).id
        await nodes.broker("n1").topics.delete_topic("t")

        def is_gone(gone: TopicId = gone) -> bool:
            stores = [nodes.broker(name).topics._replicas._store for name in NAMES]
            return not any(
                partition_id.topic == gone
                for store in stores
                for partition_id in store.partition_ids()
            )

        await eventually(is_gone)
        await settled(nodes)


def _rotated(nodes: ThreeNodes, number: int) -> list[str]:
    after = dict(zip(NAMES, (*NAMES[1:], NAMES[0]), strict=True))
    return [after[name] for name in topic(nodes).partitions[number].nodes]


async def test_a_drained_node_holds_nothing_and_can_be_removed(nodes: ThreeNodes) -> None:
    await create(nodes, 1, partitions=6)
    for number in range(6):
        await published(nodes, 3, number)
    leaving = NodeId("n3")
    await do(nodes, DrainBroker(leaving))

    def is_empty() -> bool:
        return state(nodes).layout.held[leaving] == 0

    await eventually(is_empty, MOVED_S)
    await settled(nodes)
    assert not nodes.broker(leaving).topics._replicas.all()
    for number in range(6):
        assert await values(nodes, leaving, number) == [b"0", b"1", b"2"]

    await do(nodes, UndrainBroker(leaving))
    assert state(nodes).brokers[leaving].takes


async def test_a_replication_factor_is_raised_and_lowered(nodes: ThreeNodes) -> None:
    await create(nodes, 1, partitions=2)
    await published(nodes, 5)
    for factor in (3, 2, 1, 2):
        await do(nodes, SetReplicationFactor("t", "", factor))
        await settled(nodes)
        for number in range(2):
            placed = topic(nodes).partitions[number].nodes
            assert len(placed) == factor
            running = [name for name in NAMES if host(nodes, name, number) is not None]
            assert sorted(placed) == running
    assert await values(nodes, "n1") == [b"%d" % value for value in range(5)]


async def until_told(nodes: ThreeNodes, holds: Callable[[MoveProgress], bool]) -> None:
    """Return once this holds of a partition on its way, as any node tells."""
    async with asyncio.timeout(MOVED_S):
        while True:
            found = await nodes.broker("n1").placement._placement.progress()
            if any(map(holds, found.values())):
                return
            await asyncio.sleep(0.02)


def small_nodes() -> AbstractAsyncContextManager[SmallNodes]:
    """Nodes whose logs are in many segments soon."""
    return all_ready(SmallNodes())


async def filled(nodes: SmallNodes) -> tuple[str, str]:
    """One partition with about a megabyte; who has it, and who will."""
    await create(nodes, 1)
    for value in range(20):
        await append(nodes.running["n1"], f"{value}" * 25_000)
    first = topic(nodes).partitions[0].preferred
    log = nodes.stores[first].partition_log(PartitionId(topic(nodes).id, 0))
    await eventually(lambda: log.size_bytes > copies.COPIED_BYTES)
    return first, next(name for name in NAMES if name != first)


async def test_a_new_replica_of_a_large_log_is_copied_at_the_rate_of_its_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "COPIED_BYTES", 100_000)
    async with small_nodes() as nodes:
        first, to = await filled(nodes)
        began_s = asyncio.get_running_loop().time()
        await do(nodes, Reassign([row(nodes, [to])], throttle_bytes_s=400_000))
        await append(nodes.running["n1"], "beside")
        await until_told(nodes, lambda one: 0 < one.bytes_left < 400_000 and one.rate_bytes_s > 0)
        await settled(nodes)

        took_s = asyncio.get_running_loop().time() - began_s
        received = nodes.transferred(to)
        assert received > 400_000
        assert took_s > 0.8 * received / 400_000 - 0.7  # the first chunk is not waited for
        assert host(nodes, first) is None
        assert len(await values(nodes, "n1")) == 21


async def test_a_copy_that_does_not_fit_waits_until_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(copies, "COPIED_BYTES", 100_000)
    async with small_nodes() as nodes:
        first, to = await filled(nodes)
        disk = nodes.disks[to]
        free, capacity = disk.space("/data")
        leaves = (SMALL_SEGMENTS.watermark_bytes + 50_000, capacity)
        monkeypatch.setattr(disk, "space", lambda _path: leaves)
        others = [nodes.broker(name).topics._cluster.hellos for name in nodes.running if name != to]
        await eventually(
            lambda: all(told[NodeId(to)].get("room_bytes") == 50_000 for told in others)
        )
        await move(nodes, [to])
        await until_told(nodes, lambda one: "no room" in one.waiting)
        assert only(nodes, first).raft_group.membership.configuration.learners == ()
        await append(nodes.running[to], "not endangered")
        monkeypatch.setattr(disk, "space", lambda _path: (free, capacity))
        await settled(nodes)
        assert len(await values(nodes, "n1")) == 21


async def no_healing(_healer: Healer) -> None:
    """The damage stays."""


@pytest.mark.parametrize("whose", ["the leader's own", "another's"])
async def test_no_sound_replica_is_taken_away_while_one_that_stays_is_damaged(
    nodes: ThreeNodes, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    # given three replicas in sync, of which two are wanted, and one of those two is damaged
    monkeypatch.setattr(Healer, "heal", no_healing)  # it finds nothing wrong, and says so
    await create(nodes, 3)
    await eventually(lambda: any_leader(nodes, 0))
    leader = next(name for name in NAMES if only(nodes, name).is_leader)
    broker, host = nodes.broker(leader), only(nodes, leader)
    moving = MovingPartitions(
        broker.topics._cluster,
        broker.records._partitions.service,
        cast(Forwarder, None),
        NoPeers(),
        Metrics(),
        next(voter for voter in host.raft_group.membership.voters if voter.node == leader),
    )
    await eventually(lambda: len(moving.seen(host).in_sync) == 3)
    leaves, stays = (voter for voter in host.raft_group.membership.voters if voter.node != leader)
    damaged = leader if whose == "the leader's own" else stays.node
    log = only(nodes, damaged).log
    monkeypatch.setattr(log, "damaged", (Index(1), Index(1)))

    # when it is known, or told
    await eventually(lambda: damaged not in moving.seen(host).in_sync)

    # then the third is not taken away
    step = Step(host.id, REMOVE, leaves, host.raft_group.membership.before.index, 2)
    assert refusal(step, moving.seen(host)) == "only 1 of the 2 that would stay are in sync"
    monkeypatch.setattr(log, "damaged", None)
    await eventually(lambda: refusal(step, moving.seen(host)) is None)


async def test_leadership_does_not_move_to_a_node_that_still_applies_its_log(
    nodes: ThreeNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(nodes, 3)
    await eventually(lambda: any_leader(nodes, 0))
    leader = next(name for name in NAMES if only(nodes, name).is_leader)
    broker, raft_group = nodes.broker(leader), only(nodes, leader).raft_group
    hellos = broker.topics._cluster.hellos
    moving = MovingPartitions(
        broker.topics._cluster,
        broker.records._partitions.service,
        cast(Forwarder, None),
        NoPeers(),
        Metrics(),
        next(voter for voter in raft_group.membership.voters if voter.node == leader),
    )
    heir = next(voter for voter in raft_group.membership.voters if voter.node != leader)
    step = Step(raft_group.id, TRANSFER, heir, raft_group.membership.before.index, 3)
    told = hellos[heir.node]
    monkeypatch.setitem(hellos, heir.node, {**told, REPLAYING: True})

    await moving.take(step)

    assert raft_group.is_leader
    monkeypatch.setitem(hellos, heir.node, {**told, REPLAYING: False})
    with pytest.raises(NotLeader):
        async with asyncio.timeout(MOVED_S):
            while True:  # an heir that has no time is no heir yet
                await moving.take(step)


async def test_groups_begin_added_partitions_with_their_first_message(nodes: ThreeNodes) -> None:
    await create(nodes, 2, partitions=1)
    broker = nodes.broker("n1")
    await broker.groups.put_group("late", {"start": "latest"})
    member = await join(broker, group="members")
    hears = asyncio.create_task(beat(broker, member, wait_s=20))
    await do(nodes, AddPartitions("t", 3))
    assert len(topic(nodes).partitions) == 3
    await eventually(lambda: all(any_leader(nodes, number) for number in range(3)))
    for number in range(1, 3):
        await published(nodes, 2, number)
    await broker.groups.put_group("later", {"start": "latest"})

    told = await hears
    while len(told.assigned) < 3:
        told = await beat(broker, told)
    causes = [
        rebalance.cause for rebalance in (await broker.members.membership("members")).rebalances
    ]
    assert "partition_count" in causes
    assert await received(nodes, "late") == 4
    assert await received(nodes, "later") == 0


def any_leader(nodes: ThreeNodes, number: int) -> bool:
    hosts = [host(nodes, name, number) for name in NAMES]
    return any(one is not None and one.is_leader for one in hosts)


async def received(nodes: ThreeNodes, group: str) -> int:
    got = 0
    while True:
        found = await nodes.broker("n2").queue.receive(
            group, ["t"], claim=Claim("m"), limit=100, wait_s=0.5, visibility_ms=None
        )
        if not found:
            return got
        got += len(found)

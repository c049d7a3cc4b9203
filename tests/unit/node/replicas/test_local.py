"""Replicas start and stop with the cluster state, and none in the way of another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import CreateTopic, DeleteTopic, RegisterBroker
from coordinator.commands.placement import Reassign, ReplicasChanged, Reported, Row
from coordinator.topics.partitions import Configuration
from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, Voter
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import EntryKind, make_entry
from log.errors import EntryDamaged, StoreFailed
from log.store.directory import Store
from node.metrics import Metrics
from node.partition.append_queue import ByteBudget
from node.partition.host import NodeParts, PartitionSettings
from node.partition.reading.message_reader import BatchCache
from node.placement.maintenance import Maintenance
from node.replicas.local import Replicas, partition_hosts
from node.storage.disks import REPLAYING, Disks
from node.storage.flusher import Flusher
from node.storage.space_watch import ROOM_BYTES, SpaceWatch
from raft.group import RaftGroup
from raft.host import RaftHost

ME = NodeId("n1")
DIRTY = "goqueue_storage_compaction_dirty_ratio"


class Group:
    """A replica that runs; it does nothing."""

    def __init__(self, id: PartitionId) -> None:
        self.id = id
        self.leader: NodeId | None = None
        self.failed: Exception | None = None
        self.applied_index = 0
        self.rests = self.is_ready_leader = False
        self.membership = SimpleNamespace()


class Raft:
    """Starts every group but those whose logs are said to be bad."""

    def __init__(self) -> None:
        self.bad: dict[PartitionId, Exception] = {}
        self.attempts: list[PartitionId] = []
        self.retired: list[PartitionId] = []

    def start_raft_group(self, id: PartitionId, *_: Any, **__: Any) -> Group:
        self.attempts.append(id)
        if id in self.bad:
            raise self.bad[id]
        return Group(id)

    def stop_raft_group(self, id: PartitionId) -> None:
        return None

    def retire_raft_group(self, id: PartitionId) -> None:
        self.retired.append(id)


class Node:
    """Three partitions of one topic, all with a replica here."""

    def __init__(self) -> None:
        self.raft = Raft()
        self.elsewhere: set[Voter] = set()
        """Voters whose name is there with another data directory."""
        self.store = store = Store.open(MemoryDisk(), "/data", StorageConfig(watermark_percent=0))
        me = Voter(ME, Incarnation(7))
        parts = NodeParts(
            node=ME,
            budget=ByteBudget(1 << 20),
            metrics=Metrics(),
            workers=cast(ThreadPoolExecutor, None),
            lacks_room=lambda _voters: False,
            least_room=lambda _voters: (1 << 62, ME),
            is_stuck=lambda _voters: False,
            disk_behind=lambda: False,
            on_leader=lambda _partition_id, _leader: None,
            batches=BatchCache(1 << 20),
            is_there=lambda voter: voter not in self.elsewhere,
        )
        self.replicas = Replicas(
            me,
            store=store,
            raft=cast(RaftHost, self.raft),
            make=partition_hosts(PartitionSettings(1 << 20, 1 << 20, 10), parts),
        )
        self.state = ClusterState(9)
        register = RegisterBroker(ME, me.incarnation, "a:1", "http://a", "", "1", {})
        self.state.apply(Index(2), 0, register)
        self.create("t", Index(3))

    def create(self, name: str, index: Index) -> None:
        config = {"partitions": 3, "replication_factor": 1}
        self.state.apply(index, 0, CreateTopic(name, config, []))

    def partition_id(self, number: int) -> PartitionId:
        return PartitionId(self.state.topics["t"].id, number)


async def test_what_is_led_here_follows_roused_replicas_at_the_cost_of_these() -> None:
    node = Node()
    await node.replicas.reconcile(node.state)
    first, second, third = node.replicas.all()
    group = cast(Any, first.raft_group)
    assert node.replicas.led() == []

    for host in (first, second, third):
        cast(Any, host.raft_group).rests = True
    node.replicas.led()
    cast(Any, third.raft_group).is_ready_leader = True  # a resting one is not asked
    assert node.replicas.led() == []

    node.replicas.roused(first.id)
    group.is_ready_leader, group.rests = True, False
    assert node.replicas.led() == [first]
    group.rests = True
    assert node.replicas.led() == node.replicas.led() == [first]

    node.replicas.roused(first.id)
    group.is_ready_leader = False
    assert node.replicas.led() == []


async def test_the_first_partition_without_a_leader_is_found_from_where_one_looks() -> None:
    node = Node()
    topic, replicas = node.state.topics["t"], node.replicas
    assert replicas.first_unled(topic) == 0  # none has been started

    await replicas.reconcile(node.state)
    groups = [
        cast(Group, cast(Any, replicas.find(node.partition_id(n))).raft_group) for n in range(3)
    ]
    for group in groups:
        group.membership.voters = [Voter(ME, Incarnation(7))]
    groups[0].leader = groups[2].leader = NodeId("n2")
    assert replicas.first_unled(topic) == 1
    assert replicas.first_unled(topic, 2) is None

    groups[1].leader = ME  # and does not serve yet
    assert replicas.first_unled(topic) == 1
    groups[1].is_ready_leader = True
    assert replicas.first_unled(topic) is None

    groups[0].leader = None
    assert replicas.first_unled(topic) == 0
    groups[0].membership.voters = [Voter(NodeId("n2"), Incarnation(8))]  # it only learns here
    assert replicas.first_unled(topic) is None


async def test_a_replica_that_cannot_be_started_keeps_no_other_from_starting() -> None:
    node = Node()
    bad = node.partition_id(0)
    node.raft.bad[bad] = EntryDamaged(str(bad), 1, 1, "flipped")

    await node.replicas.reconcile(node.state)
    assert [host.id for host in node.replicas.all()] == [node.partition_id(1), node.partition_id(2)]
    assert list(node.replicas.refused) == [bad]
    assert "flipped" in node.replicas.refused[bad]

    node.create("u", Index(4))
    await node.replicas.reconcile(node.state)
    assert len(node.replicas.all()) == 5
    assert node.raft.attempts.count(bad) == 1

    node.state.apply(Index(5), 0, DeleteTopic("t", str(bad.topic)))
    await node.replicas.reconcile(node.state)
    assert node.replicas.refused == {}


async def test_none_is_founded_while_the_state_may_be_older_than_it_was() -> None:
    """It may tell of a topic whose deletion this node has seen, and removed its files for."""
    node = Node()
    held = node.partition_id(1)
    node.store.create_log(held).append(
        [make_entry(index=1, term=1, time_ms=1, kind=EntryKind.NOOP)]
    )

    await node.replicas.reconcile(node.state, may_found=False)
    assert node.raft.attempts == [held]
    assert node.replicas.waiting == [node.partition_id(0), node.partition_id(2)]

    await node.replicas.reconcile(node.state, may_found=True)
    assert sorted(node.raft.attempts) == [node.partition_id(n) for n in range(3)]
    assert node.replicas.waiting == []


async def test_a_held_replica_of_a_deleted_topic_goes_and_is_held_no_more() -> None:
    node = Node()
    await node.replicas.reconcile(node.state)
    partition_id = node.partition_id(0)
    assert node.replicas.hold(partition_id)

    node.state.apply(Index(5), 0, DeleteTopic("t", str(partition_id.topic)))
    await node.replicas.reconcile(node.state)

    assert not node.store.has_log(partition_id)
    assert not node.replicas.is_held(partition_id)


async def test_a_failed_disk_starts_nothing_and_is_told() -> None:
    node = Node()
    node.raft.bad[node.partition_id(1)] = StoreFailed("storage failed")
    with pytest.raises(StoreFailed):
        await node.replicas.reconcile(node.state)


async def test_a_replica_that_nobody_names_and_that_holds_newer_entries_is_a_stray() -> None:
    node, other = Node(), Voter(NodeId("n2"), Incarnation(7))
    await node.replicas.reconcile(node.state)
    partition_id = node.partition_id(0)
    host = node.replicas.find(partition_id)
    assert host is not None
    host.log.append(
        [make_entry(index=n, term=1, time_ms=n, kind=EntryKind.NOOP) for n in range(1, 7)]
    )
    host.raft_group.membership.configuration = Configuration(Index(6), (other,))
    register = RegisterBroker(other.node, other.incarnation, "b:1", "http://b", "", "1", {})
    away = Row(partition_id.topic.index, 0, [ME], [other.node])
    known = Reported(partition_id.topic.index, 0, 5, (other,))
    for at, command in enumerate((register, Reassign([away]), ReplicasChanged([known]))):
        node.state.apply(Index(10 + at), 0, command)

    await node.replicas.reconcile(node.state)

    assert node.replicas.orphans(node.state) == [partition_id]
    assert node.raft.retired == []
    node.replicas.retire(partition_id)
    assert node.raft.retired == [partition_id]
    assert node.replicas.find(partition_id) is None
    assert node.replicas.orphans(node.state) == []


class Follower(Group):
    """A replica of a partition with these other voters, all connected."""

    is_ready_leader = False

    def __init__(self, id: PartitionId, *others: Voter) -> None:
        super().__init__(id)
        self.membership.voters = (Voter(ME, Incarnation(7)), *others)
        self.peers = {voter.node: SimpleNamespace(connected=True) for voter in others}


async def test_a_voter_that_came_back_with_another_data_directory_is_not_in_sync() -> None:
    node = Node()
    await node.replicas.reconcile(node.state)
    host = node.replicas.all()[0]
    wiped, whole = Voter(NodeId("b"), Incarnation(8)), Voter(NodeId("c"), Incarnation(9))
    host.attach(cast(RaftGroup, Follower(host.id, wiped, whole)))
    assert host.in_sync() == ["b", "c", ME]

    node.elsewhere.add(wiped)

    assert host.in_sync() == ["c", ME]


async def test_a_node_is_behind_until_it_has_met_all_that_the_state_names_here() -> None:
    node = Node()
    assert node.replicas.are_behind(node.state)

    await node.replicas.reconcile(node.state)

    assert not node.replicas.are_behind(node.state)
    assert node.replicas.hold(node.partition_id(0))
    assert not node.replicas.are_behind(node.state), "it waits for another log"
    node.replicas.release(node.partition_id(0))
    assert node.replicas.are_behind(node.state)


async def test_a_node_is_replaying_until_it_has_applied_what_its_replicas_found() -> None:
    node = Node()
    log = node.store.create_log(node.partition_id(0))
    log.append([make_entry(index=n, term=1, time_ms=n, kind=EntryKind.NOOP) for n in (1, 2, 3)])
    assert node.replicas.are_replaying, "nothing is known yet of what is here"

    await node.replicas.reconcile(node.state)
    group = cast(Group, node.replicas.all()[0].raft_group)
    assert node.replicas.are_replaying

    group.applied_index = 2
    assert node.replicas.are_replaying
    group.failed = EntryDamaged("1", 1, 1, "a replica that has stopped is waited for by nobody")
    assert not node.replicas.are_replaying

    group.failed, group.applied_index = None, 3
    assert not node.replicas.are_replaying


def test_others_leave_no_leadership_to_a_node_that_is_replaying() -> None:
    hellos: dict[NodeId, dict[str, Any]] = {ME: {}, NodeId("n2"): {REPLAYING: True}}
    disks = Disks(
        ME,
        cast(Store, SimpleNamespace(stalled=None)),
        cast(Flusher, SimpleNamespace(pace=SimpleNamespace(is_slow=False))),
        cast(SpaceWatch, SimpleNamespace(is_low=False)),
        lambda: hellos,
        Metrics(),
    )
    disks.look()
    assert not disks.should_lead(NodeId("n2"))
    assert not disks.lack_room([ME, NodeId("n2")])

    hellos[NodeId("n2")] = {REPLAYING: False}
    disks.look()
    assert disks.should_lead(NodeId("n2"))


def test_the_least_room_of_some_disks_is_named_with_whose_it_is() -> None:
    hellos: dict[NodeId, dict[str, Any]] = {NodeId("n2"): {ROOM_BYTES: 5}, NodeId("n3"): {}}
    space = SimpleNamespace(is_low=False, room_bytes=7)
    nothing: Any = SimpleNamespace()
    disks = Disks(ME, nothing, nothing, cast(SpaceWatch, space), lambda: hellos, Metrics())

    assert disks.least_room([ME, NodeId("n2"), NodeId("n3"), NodeId("gone")]) == (5, "n2")
    assert disks.least_room([ME, NodeId("n3")]) == (7, ME)
    hellos[NodeId("n2")] = {ROOM_BYTES: 9}
    assert disks.least_room([ME, NodeId("n2")]) == (7, ME)


async def test_a_node_that_leaves_hands_over_to_one_that_serves_at_once() -> None:
    given: list[NodeId | None] = []

    def transfer(to: NodeId | None, callback: Callable[[bool], None]) -> None:
        given.append(to)
        callback(True)

    names = [NodeId("n2"), NodeId("n3")]
    group = SimpleNamespace(
        membership=SimpleNamespace(voters=(ME, *names)),
        is_leader=True,
        is_ready_leader=True,
        peers={name: SimpleNamespace(voter=True, connected=True) for name in names},
        replication=SimpleNamespace(matches=lambda: {"n1": 9, "n2": 9, "n3": 8}),
        transfer=SimpleNamespace(start=transfer),
    )
    parts: dict[str, Any] = dict.fromkeys(("config", "flusher", "metrics"))
    parts["cluster"] = SimpleNamespace(raft_group=None)
    parts["replicas"] = SimpleNamespace(
        led=lambda: [SimpleNamespace(raft_group=group)], looks=lambda: None
    )
    replaying = {NodeId("n2")}
    maintenance = Maintenance(ME, **parts, should_lead=lambda node: node not in replaying)

    await maintenance.hand_over_all(5)
    replaying.add(NodeId("n3"))
    await maintenance.hand_over_all(5)

    assert given == ["n3", None]


async def test_a_topic_is_told_as_dirty_as_a_run_finds_it_and_clean_once_others_lead_it() -> None:
    class Partition:
        """Of which every run takes all that another has left."""

        topic, ratio = "prices", 0.7
        config = SimpleNamespace(is_compacted=True)

        @property
        def compactor(self) -> Partition:
            return self

        def standing(self) -> Partition:
            return self

        async def run(self) -> None:
            self.ratio = 0.0

    async def told_after(led: list[Any]) -> float:
        parts["replicas"].led = lambda: led
        parts["replicas"].all = led.copy
        await maintenance.compact()
        return metrics.storage.compaction_dirty_ratio.labels("prices").value

    metrics = Metrics()
    parts: dict[str, Any] = {"config": None, "cluster": None, "flusher": None, "metrics": metrics}
    parts["replicas"] = SimpleNamespace(looks=lambda: None)
    maintenance = Maintenance(ME, **parts, should_lead=lambda _: True)

    assert await told_after([Partition()]) == 0.7
    assert await told_after([Partition(), Partition()]) == 0.7
    assert await told_after([]) == 0.0

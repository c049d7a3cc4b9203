"""Brokers, desire and truth: what commands change, what they refuse, and who may found what."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.brokers import registry as brokers
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import BrokerRegistered, CreateTopic, DeleteTopic
from coordinator.commands.members import JoinGroup
from coordinator.commands.placement import (
    AddPartitions,
    BrokerResult,
    CancelReassignment,
    DrainBroker,
    PartitionsAdded,
    Reassign,
    ReassignResult,
    RemoveBroker,
    ReplicasChanged,
    ReplicasNoted,
    Reported,
    Row,
    SetReplicationFactor,
    UndrainBroker,
)
from coordinator.commands.queue import PutGroup
from coordinator.errors import (
    BadConfig,
    BrokerGone,
    BrokerNotEmpty,
    BrokerWiped,
    ClusterFull,
    Overtaken,
    TooFewBrokers,
    UnknownBroker,
    UnknownReassignment,
)
from coordinator.placement import reassignments
from coordinator.placement.planner import plan_drain
from coordinator.placement.steps import CONFIRM, Seen, Step, next_step
from coordinator.topics.partitions import Configuration
from goqueue.wire.errors import Busy, Conflict, UnknownPartition, UnknownTopic
from goqueue.wire.types import CLUSTER_GROUP, Incarnation, Index, NodeId, PartitionId, Voter
from tests.unit.coordinator.cluster_group import Cluster, broker


def voter(node: str, incarnation: int = 7) -> Voter:
    return Voter(NodeId(node), Incarnation(incarnation))


def row(cluster: Cluster, topic: str, number: int, *nodes: str, seen: bool = True) -> Row:
    found = cluster.topic(topic)
    before = list(found.partitions[number].nodes) if seen else []
    return Row(found.id.index, number, list(before), list(nodes))


def told(cluster: Cluster, topic: str, number: int, index: int, *voters: Voter) -> Reported:
    return Reported(cluster.topic(topic).id.index, number, index, voters)


def arrive(cluster: Cluster, index: int = 100) -> None:
    """Every partition's leader tells that truth has followed desire."""
    rows = [
        Reported(topic.id.index, number, index, placement.replicas, (), cluster.state.layout.epoch)
        for topic in cluster.state.topics.values()
        for number, placement in enumerate(topic.partitions)
    ]
    cluster.do(ReplicasChanged(rows))


def moved(partitions: int = 1) -> tuple[Cluster, ReassignResult]:
    """A topic whose first partition is to move from n0 to n3."""
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": partitions}, avoid=["n3"]))
    begun = cluster.do(Reassign([row(cluster, "orders", 0, "n1", "n2", "n3")]))
    assert isinstance(begun, ReassignResult)
    return cluster, begun


# brokers


def test_a_broker_with_a_new_directory_is_wanted_where_it_was_and_the_old_one_never_again() -> None:
    cluster = Cluster(3)
    cluster.do(CreateTopic("orders", {"partitions": 2}))

    replaced = cluster.do(broker("n1", incarnation=8, replaces=True))

    assert replaced == BrokerRegistered("n1", True, True)
    placement = cluster.topic("orders").partitions[0]
    assert voter("n1", 8) in placement.replicas
    assert voter("n1", 7) in placement.creators
    assert not placement.may_found(voter("n1", 8))
    assert placement.may_found(voter("n0"))
    assert len(cluster.state.layout.moving) == 2
    cluster.refuses(broker("n1", incarnation=7, replaces=True), BrokerWiped)
    cluster.refuses(broker("n1", incarnation=9), BrokerWiped)


def test_a_removed_broker_is_let_in_again_with_an_empty_directory_only() -> None:
    cluster = Cluster(4)
    assert cluster.do(DrainBroker("n3")) == BrokerResult("n3", "drained")

    assert cluster.do(RemoveBroker("n3")) == BrokerResult("n3", "gone")

    cluster.refuses(RemoveBroker("n3"), UnknownBroker)
    cluster.refuses(broker("n3"), BrokerGone)
    assert cluster.do(broker("n3", incarnation=8)) == BrokerRegistered("n3", True)


def test_removed_directories_and_brokers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "GONE_MAX", 1)
    monkeypatch.setattr(brokers, "BROKERS_MAX", 4)
    cluster = Cluster(4)
    cluster.refuses(broker("n4"), ClusterFull)
    for node in ("n2", "n3"):
        cluster.do(DrainBroker(node))
        cluster.do(RemoveBroker(node))

    assert list(cluster.state.layout.brokers.gone) == [voter("n3")]


def test_a_broker_is_drained_once_nothing_is_or_should_be_there() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 1}, avoid=["n3"]))
    assert cluster.do(DrainBroker("n0")) == BrokerResult("n0", "draining", 1)
    cluster.refuses(RemoveBroker("n0"), BrokerNotEmpty)

    rows = plan_drain(cluster.state.layout.picture(), [NodeId("n0")])
    cluster.do(Reassign(rows, "drain", ["n0"]))
    assert cluster.state.brokers[NodeId("n0")].state == "draining"
    arrive(cluster)

    assert cluster.state.brokers[NodeId("n0")].state == "drained"
    cluster.do(CreateTopic("more", {"partitions": 8}))
    assert all("n0" not in placement.nodes for placement in cluster.topic("more").partitions)
    assert cluster.do(UndrainBroker("n0")) == BrokerResult("n0", "active")


def test_a_broker_is_not_drained_while_what_was_decided_for_it_may_yet_arrive() -> None:
    """n3 was to get a replica, which was called off before it began. A step that is late may add it
    all the same, until the partition's log has seen that it is not wanted."""
    cluster, begun = moved()
    partition_id = PartitionId(cluster.topic("orders").id, 0)
    layout, three = cluster.state.layout, [voter(f"n{at}") for at in range(3)]
    cluster.do(CancelReassignment(begun.id))
    assert (layout.moving, layout.to_be_confirmed(partition_id)) == ({}, 0)

    assert cluster.do(DrainBroker("n3")) == BrokerResult("n3", "draining", 0)

    cluster.refuses(RemoveBroker("n3"), BrokerNotEmpty)
    assert list(layout.moving) == [partition_id]
    wanted = layout.to_be_confirmed(partition_id)
    assert wanted == layout.epoch > 1
    seen = Seen(Configuration(Index(1), tuple(three)), NodeId("n0"), frozenset())
    step = next_step(partition_id, three, seen, epoch=layout.epoch, confirmed=wanted)
    assert isinstance(step, Step)
    assert (step.kind, step.epoch) == (CONFIRM, layout.epoch)

    early = told(cluster, "orders", 0, 5, *three)
    cluster.do(ReplicasChanged([early]))
    assert cluster.state.brokers[NodeId("n3")].state == "draining", "told of an earlier epoch"
    stored = cluster.state.snapshot()
    assert ClusterState.restore(stored).snapshot() == stored
    assert ClusterState.restore(stored).layout.to_be_confirmed(partition_id) == wanted
    late = Reported(early.topic, 0, 6, early.voters, (), wanted)
    cluster.do(ReplicasChanged([late]))
    assert layout.moving == {}
    assert cluster.do(RemoveBroker("n3")) == BrokerResult("n3", "gone")


def test_a_broker_that_is_undrained_needs_no_confirmation() -> None:
    cluster, begun = moved()
    cluster.do(CancelReassignment(begun.id))
    cluster.do(DrainBroker("n3"))
    assert cluster.state.layout.moving

    assert cluster.do(UndrainBroker("n3")) == BrokerResult("n3", "active")

    assert not cluster.state.layout.moving


def test_a_broker_is_drained_when_the_topic_that_might_come_to_it_is_deleted() -> None:
    cluster, begun = moved()
    cluster.do(CancelReassignment(begun.id))
    cluster.do(DrainBroker("n3"))

    cluster.do(DeleteTopic("orders"))

    assert cluster.state.brokers[NodeId("n3")].state == "drained"


def test_a_voter_of_the_cluster_group_is_not_drained_yet() -> None:
    cluster = Cluster(4)
    three = tuple(voter(f"n{at}") for at in range(3))
    cluster.do(ReplicasChanged([Reported(0, 0, 1, three)]))

    assert cluster.do(DrainBroker("n0")) == BrokerResult("n0", "draining", 0)
    others = tuple(voter(f"n{at}") for at in (1, 2, 3))
    cluster.do(ReplicasChanged([Reported(0, 0, 9, others)]))

    assert cluster.state.brokers[NodeId("n0")].state == "drained"
    found = cluster.state.layout.configuration(CLUSTER_GROUP)
    assert found is not None
    assert found.voters == others


def test_a_drain_that_leaves_too_few_brokers_is_refused() -> None:
    cluster = Cluster(3)
    cluster.do(CreateTopic("orders"))

    cluster.refuses(DrainBroker("n0"), TooFewBrokers)
    cluster.refuses(DrainBroker("n9"), UnknownBroker)


def test_a_broker_that_another_drain_needs_is_not_drained_though_it_has_no_replica_yet() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 1}, avoid=["n3"]))
    assert cluster.do(DrainBroker("n0")) == BrokerResult("n0", "draining", 1)

    cluster.refuses(DrainBroker("n3"), TooFewBrokers)

    cluster.do(UndrainBroker("n0"))
    assert cluster.do(DrainBroker("n3")) == BrokerResult("n3", "drained", 0)


def test_a_broker_that_a_raised_factor_needs_is_not_drained_though_it_has_no_replica_yet() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 1}, avoid=["n3"]))
    cluster.do(SetReplicationFactor("orders", "", 4))

    cluster.refuses(DrainBroker("n3"), TooFewBrokers)


def test_a_drain_that_is_asked_for_again_goes_on_at_the_new_rate() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 1}, avoid=["n3"]))
    cluster.do(DrainBroker("n0", 1_000))
    rows = plan_drain(cluster.state.layout.picture(), [NodeId("n0")])
    begun = cluster.do(Reassign(rows, "drain", ["n0"], 1_000))
    assert isinstance(begun, ReassignResult)

    cluster.do(DrainBroker("n0", 5_000_000))

    layout = cluster.state.layout
    assert cluster.state.brokers[NodeId("n0")].drain_bytes_s == 5_000_000
    assert layout.reassignments.numbered(begun.id).throttle_bytes_s == 5_000_000


def test_what_an_undrained_broker_still_has_stays_there() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 2}, avoid=["n3"]))
    before = cluster.topic("orders").partitions
    cluster.do(DrainBroker("n0"))
    rows = plan_drain(cluster.state.layout.picture(), [NodeId("n0")])
    begun = cluster.do(Reassign(rows, "drain", ["n0"]))
    assert isinstance(begun, ReassignResult)
    cluster.refuses(CancelReassignment(begun.id), Conflict)

    cluster.do(UndrainBroker("n0"))

    after = cluster.topic("orders").partitions
    assert [one.replicas for one in after] == [one.replicas for one in before]
    assert cluster.state.layout.reassignments.by_id[begun.id].state == "cancelled"


# desire and truth


def test_a_plan_is_desire_until_the_partition_tells_that_it_is_so() -> None:
    cluster, begun = moved()
    layout = cluster.state.layout
    partition_id = PartitionId(cluster.topic("orders").id, 0)

    assert list(layout.moving) == [partition_id]
    assert {one.node for one in layout.holders(partition_id)} == {"n0", "n1", "n2", "n3"}
    half = (voter("n0"), voter("n1"), voter("n2"), voter("n3"))
    assert cluster.do(ReplicasChanged([told(cluster, "orders", 0, 5, *half)])) == ReplicasNoted(1)
    assert list(layout.moving) == [partition_id]
    assert cluster.do(ReplicasChanged([told(cluster, "orders", 0, 4, *half[1:])])) == ReplicasNoted(
        0
    )
    cluster.do(ReplicasChanged([told(cluster, "orders", 0, 6, *half[1:])]))

    assert not layout.moving
    assert {one.node for one in layout.holders(partition_id)} == {"n1", "n2", "n3"}
    done = layout.reassignments.by_id[begun.id]
    assert (done.state, done.left, [move.state for move in done.moves]) == ("done", 0, ["arrived"])


def test_who_was_named_after_the_creation_never_founds_the_partition() -> None:
    cluster, _ = moved()
    cluster.do(Reassign([row(cluster, "orders", 0, "n0", "n1", "n2")]))

    placement = cluster.topic("orders").partitions[0]

    assert sorted(one.node for one in placement.creators) == ["n0", "n1", "n2"]
    assert [placement.may_found(voter(f"n{at}")) for at in range(4)] == [False, True, True, False]


def test_every_creator_founds_until_a_leader_has_told_that_it_votes_no_more() -> None:
    """Of the founders n0 was drained before it ever started, and n1's disk was lost: n2 alone would
    wait for good, whether or not it has already added the replica that is to replace n0's."""
    cluster, _ = moved()
    partition_id = PartitionId(cluster.topic("orders").id, 0)
    placement, layout = cluster.topic("orders").partitions[0], cluster.state.layout
    index = cluster.topic("orders").id.index

    def founders() -> list[str]:
        names = [f"n{at}" for at in range(4)]
        votes = {name: layout.votes(partition_id, voter(name)) for name in names}
        return [name for name in names if placement.may_found(voter(name), votes=votes[name])]

    assert founders() == ["n0", "n1", "n2"]
    assert not placement.may_found(voter("n1", 8), votes=True)

    three, new = (voter("n0"), voter("n1"), voter("n2")), (voter("n3"),)
    cluster.do(ReplicasChanged([Reported(index, 0, 5, three, new)]))

    assert founders() == ["n0", "n1", "n2"]

    cluster.do(ReplicasChanged([Reported(index, 0, 6, (*three[1:], *new))]))

    assert founders() == ["n1", "n2"]


def test_a_plan_that_is_overtaken_or_makes_no_sense_changes_nothing() -> None:
    cluster, _ = moved()
    good = row(cluster, "orders", 0, "n0", "n1", "n2")
    topic = cluster.topic("orders").id.index

    stale = Row(topic, 0, ["n0", "n1", "n2"], ["n0", "n1", "n3"])
    cluster.refuses(Reassign([stale]), Overtaken)
    cluster.refuses(Reassign([good, good]), BadConfig)
    cluster.refuses(Reassign([]), BadConfig)
    cluster.refuses(Reassign([row(cluster, "orders", 0, "n0", "n1")]), BadConfig)
    cluster.refuses(Reassign([row(cluster, "orders", 0, "n0", "n0", "n1")]), BadConfig)
    cluster.refuses(Reassign([row(cluster, "orders", 0, "n0", "n1", "n9")]), BadConfig)
    cluster.refuses(Reassign([Row(topic, 1, [], ["n0", "n1", "n2"])]), UnknownPartition)
    cluster.refuses(Reassign([Row(999, 0, [], ["n0", "n1", "n2"])]), UnknownTopic)
    cluster.refuses(Reassign([good], throttle_bytes_s=-1), BadConfig)
    cluster.refuses(CancelReassignment(999), UnknownReassignment)


def test_a_plan_is_checked_without_being_made() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 1, "replication_factor": 1}))
    layout = cluster.state.layout

    fine = Reassign([row(cluster, "orders", 0, "n3")])
    assert list(layout.check_reassign(fine)) == [PartitionId(cluster.topic("orders").id, 0)]
    with pytest.raises(BadConfig):
        layout.check_reassign(Reassign([row(cluster, "orders", 0, "n9")]))

    assert not layout.moving
    assert not layout.reassignments.by_id


def test_a_plan_gives_nothing_to_a_broker_that_is_drained() -> None:
    cluster = Cluster(5)
    cluster.do(CreateTopic("orders", {"partitions": 1}, avoid=["n3", "n4"]))
    cluster.do(DrainBroker("n4"))

    cluster.refuses(Reassign([row(cluster, "orders", 0, "n0", "n1", "n4")]), BadConfig)


def test_a_plan_sent_again_is_the_one_that_was_made() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 1}, avoid=["n3"]))
    plan = Reassign([row(cluster, "orders", 0, "n1", "n2", "n3")], request=77)

    begun = cluster.do(plan)

    assert cluster.do(plan) == begun


def test_a_later_plan_takes_over_and_its_cancelling_returns_to_the_earlier_one() -> None:
    cluster, first = moved()
    known = cluster.state.layout.reassignments.by_id
    second = cluster.do(Reassign([row(cluster, "orders", 0, "n0", "n1", "n3")]))
    assert isinstance(second, ReassignResult)
    assert (known[first.id].state, known[first.id].moves[0].state) == ("done", "overtaken")

    cluster.do(CancelReassignment(second.id))

    assert cluster.topic("orders").partitions[0].nodes == ("n1", "n2", "n3")
    assert known[second.id].state == "cancelling"
    arrive(cluster)
    assert (known[second.id].state, known[second.id].moves[0].state) == ("cancelled", "returned")
    assert cluster.do(CancelReassignment(second.id)) == ReassignResult(second.id, "cancelled", 1)


def test_what_cannot_return_to_a_removed_broker_goes_on() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 1}, avoid=["n3"]))
    cluster.do(Reassign([row(cluster, "orders", 0, "n1", "n2", "n3")]))
    arrive(cluster)
    cluster.do(DrainBroker("n0"))
    cluster.do(RemoveBroker("n0"))
    cluster.do(broker("n4"))
    second = cluster.do(Reassign([row(cluster, "orders", 0, "n1", "n2", "n4")]))
    assert isinstance(second, ReassignResult)
    cluster.do(DrainBroker("n3"))

    cluster.do(CancelReassignment(second.id))

    assert cluster.topic("orders").partitions[0].nodes == ("n1", "n2", "n3")  # it is there still


def test_deleting_a_topic_ends_its_moves() -> None:
    cluster, begun = moved()

    cluster.do(DeleteTopic("orders"))

    layout = cluster.state.layout
    assert not layout.moving
    assert layout.reassignments.by_id[begun.id].moves[0].state == "deleted"
    assert +layout.held == {}


def test_reassignments_are_bounded_and_the_last_ones_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reassignments, "RUNNING_MAX", 1)
    monkeypatch.setattr(reassignments, "FINISHED_MAX", 1)
    cluster, first = moved(2)
    other = Reassign([row(cluster, "orders", 1, "n1", "n2", "n3")])
    cluster.refuses(other, Busy)
    arrive(cluster)
    second = cluster.do(other)
    arrive(cluster, 200)

    assert isinstance(second, ReassignResult)
    assert list(cluster.state.layout.reassignments.by_id) == [second.id]
    cluster.refuses(CancelReassignment(first.id), UnknownReassignment)


def test_everything_is_in_a_snapshot_and_goes_on_after_it() -> None:
    cluster, begun = moved(3)
    cluster.do(CreateTopic("single", {"partitions": 1, "replication_factor": 1}))
    cluster.do(SetReplicationFactor("single", "", 2))
    cluster.do(broker("n2", incarnation=8, replaces=True))
    before = cluster.state.snapshot()

    cluster.state = ClusterState.restore(before)

    assert cluster.state.snapshot() == before
    layout = cluster.state.layout
    assert len(layout.unequal) == 1
    assert layout.reassignments.by_id[begun.id].left == 1
    arrive(cluster)
    assert layout.reassignments.by_id[begun.id].state == "done"


def test_a_snapshot_from_before_replicas_moved_is_read() -> None:
    cluster = Cluster(3)
    cluster.do(CreateTopic("orders", {"partitions": 2}))
    fields = msgspec.msgpack.decode(cluster.state.snapshot())
    added = {"founders", "joined", "created", "created_ms"}
    for topic in fields[4]:
        del topic["raised"]
        topic["partitions"] = [
            {name: value for name, value in one.items() if name not in added}
            for one in topic["partitions"]
        ]
    for one in fields[3]:
        for name in ("state", "former", "drain_ms", "drain_replicas"):
            del one[name]
    fields[0] = 2

    restored = ClusterState.restore(msgspec.msgpack.encode(fields[:12]))

    restored.time_ms = cluster.state.time_ms
    assert restored.snapshot() == cluster.state.snapshot()


# the replication factor and the number of partitions


def test_the_replication_factor_is_desire_of_its_own() -> None:
    cluster = Cluster(3)
    cluster.do(CreateTopic("orders", {"partitions": 2, "replication_factor": 1}))

    cluster.do(SetReplicationFactor("orders", "", 3))

    assert len(cluster.state.layout.unequal) == 2
    cluster.refuses(SetReplicationFactor("orders", "", 4), TooFewBrokers)
    cluster.refuses(SetReplicationFactor("orders", "", 0), BadConfig)
    cluster.refuses(SetReplicationFactor("orders", "other", 2), UnknownTopic)


def test_added_partitions_leave_the_others_as_they_are() -> None:
    cluster = Cluster(3)
    cluster.do(CreateTopic("orders", {"partitions": 2}))
    before = cluster.topic("orders")

    added = cluster.do(AddPartitions("orders", 5))

    after = cluster.topic("orders")
    assert added == PartitionsAdded("orders", str(before.id), 2, 5)
    assert after.partitions[:2] == before.partitions
    assert (after.config.partitions, after.raised) == (5, ((2, cluster.now_ms),))
    assert {one.created for one in after.partitions[2:]} == {cluster.index}
    assert after.founded_ms(4) == cluster.now_ms
    assert after.founded_ms(0) == before.created_ms
    assert sorted(cluster.state.layout.leaders.values()) == [1, 2, 2]
    assert cluster.do(AddPartitions("orders", 5)) == PartitionsAdded("orders", str(before.id), 5, 5)
    assert cluster.topic("orders") == after


def test_what_cannot_be_added_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(3)
    cluster.do(CreateTopic("orders", {"partitions": 3}))

    cluster.refuses(AddPartitions("orders", 2), BadConfig)
    cluster.refuses(AddPartitions("orders", 10_001), BadConfig)
    cluster.refuses(AddPartitions("missing", 4), UnknownTopic)
    cluster.refuses(AddPartitions("orders", 4, "other"), UnknownTopic)
    cluster.refuses(AddPartitions("orders", 4, assignments=[["n0", "n1", "n9"]]), BadConfig)
    cluster.refuses(AddPartitions("orders", 5, assignments=[["n0", "n1", "n2"]]), BadConfig)
    monkeypatch.setattr("coordinator.placement.partition_count.PARTITIONS_TOTAL_MAX", 4)
    cluster.refuses(AddPartitions("orders", 5), ClusterFull)


def test_added_partitions_go_where_they_are_told_to() -> None:
    cluster = Cluster(4)
    cluster.do(CreateTopic("orders", {"partitions": 1}))

    cluster.do(AddPartitions("orders", 2, assignments=[["n3", "n1", "n0"]]))

    assert cluster.topic("orders").partitions[1].nodes == ("n3", "n1", "n0")


def test_members_of_groups_learn_of_added_partitions_and_keep_what_they_have() -> None:
    cluster = Cluster(3)
    cluster.do(CreateTopic("orders", {"partitions": 2}))
    cluster.do(PutGroup("pay", {"start": "latest"}))
    group = cluster.state.groups["pay"]
    for member in ("m1", "m2"):
        cluster.do(JoinGroup("pay", group.id, member, topics=["orders"]))
    membership = cluster.state.members.of(group)
    before = dict(membership.target)

    cluster.do(AddPartitions("orders", 6))

    assert len(membership.target) == 6
    assert {partition: membership.target[partition] for partition in before} == before
    assert list(membership.rebalances.known)[-1].cause == "partition_count"

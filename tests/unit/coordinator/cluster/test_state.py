"""The cluster's state: commands in, the same state everywhere, refusals change nothing."""

from __future__ import annotations

import msgspec
import pytest

from coordinator.cluster import state
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import (
    AllocateProducer,
    AlterTopic,
    BrokerRegistered,
    CreateTopic,
    DeleteTopic,
    ProducerAllocated,
    RegisterBroker,
    TopicResult,
    decode_command,
    decode_result,
    encode_command,
    encode_result,
)
from coordinator.errors import (
    BadConfig,
    BrokerWiped,
    ClusterFull,
    CommandUnreadable,
    SnapshotUnreadable,
    TooFewBrokers,
)
from coordinator.topics import producers
from goqueue.wire.errors import (
    BadName,
    BadRequest,
    NotFound,
    ProducerFenced,
    TopicExists,
    UnknownTopic,
)
from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, TopicId, Voter
from tests.unit.coordinator.cluster_group import CLUSTER, START_MS, Cluster, broker

# brokers


def test_a_broker_registers_and_registers_again() -> None:
    cluster = Cluster(0)

    assert cluster.do(broker("a")) == BrokerRegistered("a", True)
    assert cluster.do(broker("a")) == BrokerRegistered("a", False)
    assert cluster.do(broker("a", zone="z1")) == BrokerRegistered("a", True)

    known = cluster.state.brokers[NodeId("a")]
    assert (known.zone, known.incarnation, known.joined_at_ms) == ("z1", 7, START_MS + 2)


def test_a_wiped_broker_is_recognised_and_keeps_out() -> None:
    cluster = Cluster()

    error = cluster.refuses(broker("n1", incarnation=8), BrokerWiped)

    assert error.code == "broker_wiped"
    assert cluster.state.brokers[NodeId("n1")].incarnation == 7


def test_a_broker_with_a_bad_name_is_refused() -> None:
    Cluster().refuses(broker("../evil"), BadName)


# topics


def test_a_topic_gets_an_id_replicas_and_leaders() -> None:
    cluster = Cluster()

    result = cluster.do(CreateTopic("orders", {"partitions": 6}))

    topic = cluster.topic("orders")
    assert topic.id == TopicId(CLUSTER, cluster.index)
    assert result == TopicResult("orders", str(topic.id), 6, [])
    assert topic.created_ms == START_MS + cluster.index
    assert all(len(placement.replicas) == 3 for placement in topic.partitions)
    leaders = [placement.preferred for placement in topic.partitions]
    assert sorted(leaders) == ["n0", "n0", "n1", "n1", "n2", "n2"]
    assert Voter(NodeId("n0"), Incarnation(7)) in topic.partitions[0].replicas


def test_two_brokers_give_two_replicas_and_a_warning() -> None:
    cluster = Cluster(2)

    result = cluster.do(CreateTopic("orders"))

    assert isinstance(result, TopicResult)
    assert "stops publishing" in result.warnings[0]
    assert cluster.topic("orders").config.replication_factor == 2


def test_brokers_believed_down_are_avoided_where_others_are_enough() -> None:
    cluster = Cluster(4)

    cluster.do(CreateTopic("orders", avoid=["n1"]))
    cluster.do(CreateTopic("wide", {"replication_factor": 4}, avoid=["n1"]))

    holders = {voter.node for p in cluster.topic("orders").partitions for voter in p.replicas}
    assert holders == {"n0", "n2", "n3"}
    assert len(cluster.topic("wide").partitions[0].replicas) == 4


def test_topics_spread_over_the_cluster_together() -> None:
    cluster = Cluster(4)

    for number in range(5):
        cluster.do(CreateTopic(f"t{number}", {"partitions": 1, "replication_factor": 1}))

    homes = [cluster.topic(f"t{number}").partitions[0].preferred for number in range(5)]
    assert sorted(homes) == ["n0", "n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("name", ["../../evil", "", ".a", "a/b", "a" * 250, "x\n", "orders.dlq"])
def test_an_illegal_or_reserved_name_is_refused(name: str) -> None:
    Cluster().refuses(CreateTopic(name), BadName)


def test_what_cannot_be_created_changes_nothing() -> None:
    cluster = Cluster(2)
    cluster.do(CreateTopic("orders"))

    cluster.refuses(CreateTopic("orders"), TopicExists)
    cluster.refuses(CreateTopic("wide", {"replication_factor": 3}), TooFewBrokers)
    cluster.refuses(CreateTopic("bad", {"partitions": -1}), BadConfig)
    cluster.refuses(AlterTopic("missing", {}), UnknownTopic)
    cluster.refuses(AlterTopic("orders", {"partitions": 7}), BadConfig)
    cluster.refuses(DeleteTopic("missing"), UnknownTopic)


def test_the_number_of_partitions_in_all_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.placement.partition_count.PARTITIONS_TOTAL_MAX", 10)
    cluster = Cluster()
    cluster.do(CreateTopic("a", {"partitions": 6}))

    cluster.refuses(CreateTopic("b", {"partitions": 5}), ClusterFull)
    assert isinstance(cluster.do(CreateTopic("b", {"partitions": 4})), TopicResult)


def test_an_altered_topic_keeps_its_id_and_replicas() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic("orders"))
    before = cluster.topic("orders")

    cluster.do(AlterTopic("orders", {"retention_ms": 1000, "labels": {"team": "pay"}}))

    after = cluster.topic("orders")
    assert (after.config.retention_ms, after.config.labels) == (1000, {"team": "pay"})
    assert (after.id, after.partitions) == (before.id, before.partitions)
    assert cluster.state.topic_of(after.id) is after


def test_a_recreated_topic_is_another_one() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic("orders"))
    old = cluster.topic("orders")

    cluster.do(DeleteTopic("orders"))
    assert cluster.state.is_deleted(old.id)
    cluster.do(CreateTopic("orders"))
    new = cluster.topic("orders")

    assert new.id != old.id
    assert cluster.state.is_deleted(old.id)
    assert not cluster.state.is_deleted(new.id)
    assert cluster.state.placement(PartitionId(old.id, 0)) is None
    assert cluster.state.placement(PartitionId(new.id, 0)) == new.partitions[0]
    assert cluster.state.placement(PartitionId(new.id, 99)) is None


def test_a_deletion_sent_again_spares_a_new_topic_of_the_same_name() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic("orders"))
    old = cluster.state.topics["orders"]
    deletion = DeleteTopic("orders", str(old.id))
    cluster.do(deletion)
    cluster.do(CreateTopic("orders"))
    new = cluster.state.topics["orders"]

    cluster.refuses(deletion, UnknownTopic)

    assert cluster.state.topics["orders"] is new


def test_a_deletion_sent_twice_spares_the_topic_that_got_the_name_meanwhile() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic("orders"))
    deletion = DeleteTopic("orders", str(cluster.topic("orders").id))
    cluster.do(deletion)
    cluster.do(CreateTopic("orders"))

    cluster.refuses(deletion, UnknownTopic)

    assert "orders" in cluster.state.topics


def test_a_topic_yet_to_be_heard_of_is_not_deleted() -> None:
    cluster = Cluster()

    assert not cluster.state.is_deleted(TopicId(CLUSTER, cluster.index + 1))
    assert not cluster.state.is_deleted(TopicId(CLUSTER + 1, 1))


def test_tombstones_are_bounded_and_safety_does_not_hang_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state, "TOMBSTONES_MAX", 2)
    cluster = Cluster()
    ids = []
    for name in ("a", "b", "c"):
        cluster.do(CreateTopic(name))
        ids.append(cluster.topic(name).id)
        cluster.do(DeleteTopic(name))

    assert list(cluster.state.deleted) == ids[1:]
    assert all(map(cluster.state.is_deleted, ids))


# producers


def test_producer_ids_are_never_given_twice() -> None:
    cluster = Cluster()

    given = [cluster.do(AllocateProducer()) for _ in range(3)]

    assert given == [ProducerAllocated(number, 0) for number in (1, 2, 3)]


def test_a_transactional_id_keeps_its_producer_id_and_fences_the_last() -> None:
    cluster = Cluster()
    cluster.do(AllocateProducer("pay"))
    cluster.do(AllocateProducer())

    assert cluster.do(AllocateProducer("pay")) == ProducerAllocated(1, 1)

    cluster.state.check_producer(1, 1)
    cluster.state.check_producer(2, 0)
    with pytest.raises(ProducerFenced):
        cluster.state.check_producer(1, 0)
    for producer_id, epoch in ((1, 2), (3, 0), (0, 0), (2, 1)):
        with pytest.raises(NotFound):
            cluster.state.check_producer(producer_id, epoch)


def test_a_worn_out_epoch_brings_a_new_producer_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "EPOCH_MAX", 2)
    cluster = Cluster()

    given = [cluster.do(AllocateProducer("pay")) for _ in range(4)]

    assert [(each.producer_id, each.epoch) for each in given] == [(1, 0), (1, 1), (1, 2), (2, 0)]  # type: ignore[attr-defined]
    with pytest.raises(NotFound):
        cluster.state.check_producer(1, 2)


def test_transactional_ids_are_bounded_and_idle_ones_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(producers, "TRANSACTIONAL_IDS_MAX", 2)
    cluster = Cluster()
    cluster.do(AllocateProducer("a"))
    cluster.do(AllocateProducer("b"))

    cluster.refuses(AllocateProducer("c"), ClusterFull)
    cluster.refuses(AllocateProducer(""), BadRequest)
    cluster.index += producers.REMEMBERED_MS
    cluster.do(AllocateProducer("a"))
    assert cluster.do(AllocateProducer("c")) == ProducerAllocated(3, 0)
    cluster.refuses(AllocateProducer("b"), ClusterFull)


# snapshots and encodings


def test_a_snapshot_brings_everything_back() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic("orders", {"labels": {"b": "2", "a": "1"}}))
    cluster.do(CreateTopic("gone"))
    cluster.do(DeleteTopic("gone"))
    cluster.do(AllocateProducer("pay"))

    restored = ClusterState.restore(cluster.state.snapshot())

    assert restored.snapshot() == cluster.state.snapshot()
    assert restored.topics == cluster.state.topics
    assert restored.brokers == cluster.state.brokers
    assert restored.deleted == cluster.state.deleted
    following = AllocateProducer("pay")
    index = Index(cluster.index + 1)
    assert restored.apply(index, 0, following) == cluster.state.apply(index, 0, following)


def test_a_snapshot_from_before_there_were_groups_is_read() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic("orders"))
    fields = msgspec.msgpack.decode(cluster.state.snapshot())
    older = msgspec.msgpack.encode([1, *fields[1:7]])

    restored = ClusterState.restore(older)

    assert restored.time_ms == 0
    restored.time_ms = cluster.state.time_ms
    assert restored.snapshot() == cluster.state.snapshot()


def test_log_time_is_in_the_snapshot_and_missing_in_one_of_an_earlier_release() -> None:
    cluster = Cluster()
    cluster.do(CreateTopic("orders"))
    assert cluster.state.time_ms > 0
    snapshot = cluster.state.snapshot()

    assert ClusterState.restore(snapshot).time_ms == cluster.state.time_ms

    fields = msgspec.msgpack.decode(snapshot)
    older = ClusterState.restore(msgspec.msgpack.encode(fields[:13]))
    assert older.time_ms == 0
    assert older.topics == cluster.state.topics


@pytest.mark.parametrize("damaged", [b"", b"\x91\x63", b"\x90", b"text"])
def test_a_snapshot_that_is_not_one_is_refused(damaged: bytes) -> None:
    with pytest.raises(SnapshotUnreadable):
        ClusterState.restore(damaged)


@pytest.mark.parametrize("damaged", [b"", b"\xc1", encode_result(ProducerAllocated(1, 2))])
def test_a_command_of_another_version_is_refused_by_name(damaged: bytes) -> None:
    with pytest.raises(CommandUnreadable):
        decode_command(damaged)
    with pytest.raises(CommandUnreadable):
        decode_result(damaged + b"\x00")


def test_results_come_back_from_the_wire() -> None:
    for result in (
        BrokerRegistered("a", True),
        TopicResult("t", "1-2", 3, ["careful"]),
        ProducerAllocated(4, 5),
    ):
        assert decode_result(encode_result(result)) == result


def test_labels_in_any_order_encode_alike() -> None:
    one = RegisterBroker("a", 1, labels={"x": "1", "y": "2"})
    other = RegisterBroker("a", 1, labels={"y": "2", "x": "1"})

    assert encode_command(one) == encode_command(other)

"""Nodes tell each other which of their replicas are damaged, in no more bytes than a bound."""

from __future__ import annotations

from goqueue.wire.types import PartitionId, TopicId
from log.disk.memory import MemoryDisk
from log.wal.install import UNKNOWN_END
from node.replicas.damaged import ALL, DAMAGED, TOLD_MAX, damaged_replicas, is_damaged
from tests.unit.log.stores import open_store


def partition_id(number: int) -> PartitionId:
    return PartitionId(TopicId(0xABC, 1), number)


def test_damaged_replicas_are_told_by_name_and_all_of_them_beyond_the_bound() -> None:
    store = open_store(MemoryDisk())
    for number in range(TOLD_MAX + 2):
        store.create_log(partition_id(number))
    assert damaged_replicas(store) == []

    store.partition_log(partition_id(1)).quarantine(1, UNKNOWN_END, "differs")
    told = {DAMAGED: damaged_replicas(store)}
    assert is_damaged(told, partition_id(1))
    assert not is_damaged(told, partition_id(2))

    for number in range(TOLD_MAX + 1):
        store.partition_log(partition_id(number)).quarantine(1, UNKNOWN_END, "differs")
    assert damaged_replicas(store) == [ALL]
    assert is_damaged({DAMAGED: [ALL]}, partition_id(TOLD_MAX + 1))


def test_a_node_that_tells_nothing_or_nonsense_has_no_damaged_replica() -> None:
    for told in ({}, {DAMAGED: None}, {DAMAGED: 3}, {DAMAGED: str(partition_id(1))}):
        assert not is_damaged(told, partition_id(1))

"""The cluster state after a restart or damage: when it is as new as it was."""

from __future__ import annotations

from typing import cast

from goqueue.wire.types import CLUSTER_GROUP, Index
from log.config import StorageConfig
from log.disk.memory import MemoryDisk
from log.entry import EntryKind, make_entry
from log.partition.log import PartitionLog
from log.store.directory import Store
from node.cluster.newest_state import NewestState
from raft.group import RaftGroup


class Group:
    """A cluster group that has applied so much."""

    def __init__(self, applied_index: int = 0) -> None:
        self.applied_index = applied_index


def log_of(entries: int) -> PartitionLog:
    store = Store.open(MemoryDisk(), "/data", StorageConfig(watermark_percent=0))
    log = store.create_log(CLUSTER_GROUP)
    append(log, entries)
    return log


def append(log: PartitionLog, entries: int) -> None:
    log.append(
        [
            make_entry(index=log.last_index + n, term=1, time_ms=n, kind=EntryKind.NOOP)
            for n in range(1, entries + 1)
        ]
    )


def newest_of(group: Group, log: PartitionLog) -> NewestState:
    return NewestState(cast(RaftGroup, group), log)


def test_what_the_log_held_at_the_start_is_to_be_applied_first() -> None:
    group, log = Group(3), log_of(5)
    newest = newest_of(group, log)
    append(log, 9)

    assert not newest.is_reached
    group.applied_index = 4
    assert not newest.is_reached
    group.applied_index = 5
    assert newest.is_reached


def test_what_a_leader_has_cut_off_is_not_waited_for() -> None:
    group, log = Group(3), log_of(5)
    newest = newest_of(group, log)
    log.truncate_from(Index(4))

    assert newest.is_reached


def test_a_log_that_may_lack_something_is_waited_for_until_it_is_whole_and_applied() -> None:
    group, log = Group(5), log_of(5)
    log.mark_suspect()
    newest = newest_of(group, log)
    assert not newest.is_reached

    append(log, 2)
    log.clear_suspect()

    assert not newest.is_reached, "the two that were lacking are not applied yet"
    group.applied_index = 7
    assert newest.is_reached


def test_a_log_cut_at_damage_is_waited_for_until_it_is_whole_and_applied() -> None:
    group, log = Group(5), log_of(5)
    newest = newest_of(group, log)
    assert newest.is_reached
    log.quarantine(6, 7, "test")
    assert not newest.is_reached

    append(log, 2)
    log.lift_quarantine()

    assert not newest.is_reached
    group.applied_index = 7
    assert newest.is_reached

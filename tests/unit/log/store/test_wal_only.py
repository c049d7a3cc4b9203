"""Logs of partitions to which nothing was published: in the write-ahead log alone, until then."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from goqueue.wire.types import CLUSTER_GROUP, Index, PartitionId, Term
from log.disk.memory import MemoryDisk
from log.entry import Entry, EntryKind, make_entry
from log.errors import EntryMissing
from log.partition.log import PartitionLog
from log.partition.tail import BARE_ENTRIES_MAX, BARE_FRAME_BYTES_MAX
from log.store.directory import Store
from log.store.wal_only import AGAIN_A_TURN
from tests.unit.log.stores import (
    GROUP,
    OTHER,
    SMALL,
    append,
    checkpoint,
    entry,
    everything,
    flush,
    frames,
    group_of,
    open_store,
)


def bare(first: int, count: int, term: int = 1) -> list[Entry]:
    """Entries that elections leave."""
    return [entry(index, term, records=0) for index in range(first, first + count)]


def files_of(disk: MemoryDisk, log: PartitionLog) -> Sequence[str]:
    return disk.list_directory(log.disk_segments.directory)


def reopened(disk: MemoryDisk) -> Store:
    """After the power went."""
    return open_store(disk.crash(random.Random(1), keep=0.0), SMALL, seed=2)


def test_elections_alone_make_no_files_and_are_there_after_a_power_cut() -> None:
    disk = MemoryDisk()
    store = open_store(disk, SMALL)
    log = group_of(store)
    log.append(bare(1, 2))
    flush(store)
    other = group_of(store, OTHER)
    for _ in range(30):  # many write-ahead files come and go meanwhile
        append(other, 3)
        flush(store)
        checkpoint(store)

    assert files_of(disk, log) == []
    assert store.wal_files <= 3
    for _ in range(3):
        store = reopened(disk)
        log = store.partition_log(GROUP)
        assert frames(everything(log)) == frames(bare(1, 2))
        assert files_of(disk, log) == [] and log.wal_only
        assert not log.quarantined


def test_the_write_ahead_log_goes_round_though_no_segment_ever_changes() -> None:
    store = open_store(MemoryDisk(), SMALL)
    log = group_of(store)
    log.append(bare(1, 2))
    for term in range(2, 400):
        log.save_hard_state(Term(term), "n1")
        flush(store)
        checkpoint(store)

    assert store.wal_files <= 3
    assert log.wal_only and frames(everything(log)) == frames(bare(1, 2))


@pytest.mark.parametrize(
    "more",
    [
        [entry(3)],
        bare(3, BARE_ENTRIES_MAX - 1),
        [entry(3, records=0, size=BARE_FRAME_BYTES_MAX)],
        [make_entry(index=3, term=1, time_ms=1, kind=EntryKind.TRIM)],
    ],
    ids=["a message", "too many", "a large one", "another kind"],
)
def test_what_is_more_than_a_few_elections_goes_to_segments_with_all_before_it(
    more: list[Entry],
) -> None:
    disk = MemoryDisk()
    store = open_store(disk, SMALL)
    log = group_of(store)
    log.append(bare(1, 2))
    flush(store)
    checkpoint(store)

    log.append(more)
    flush(store)

    assert not log.wal_only and log.spilled_index == log.last_index
    assert sum(s.last_index - s.first_index + 1 for s in log.segments()) == log.last_index
    for checkpointed in (False, True):
        if checkpointed:
            checkpoint(store)
        after = reopened(disk).partition_log(GROUP)
        assert frames(everything(after)) == frames([*bare(1, 2), *more])
        assert not after.wal_only and not after.quarantined


def test_a_message_that_comes_while_a_checkpoint_is_made_has_all_before_it_with_it() -> None:
    disk = MemoryDisk()
    store = open_store(disk, SMALL)
    log, other = group_of(store), group_of(store, OTHER)
    log.append(bare(1, 2))
    append(other)
    flush(store)
    job = store.take_checkpoint()
    assert job is not None

    log.append([entry(3)])
    job.run()
    store.complete_checkpoint(job)
    flush(store)

    after = reopened(disk).partition_log(GROUP)
    assert frames(everything(after)) == frames([*bare(1, 2), entry(3)])
    assert not after.quarantined


def test_many_are_logged_again_in_turns_while_the_checkpoint_is_made() -> None:
    disk = MemoryDisk()
    store = open_store(disk, SMALL)
    ids = [PartitionId(GROUP.topic, number) for number in range(AGAIN_A_TURN + 10)]
    for partition_id in ids:
        group_of(store, partition_id).append(bare(1, 1))
    flush(store)
    append(store.create_log(PartitionId(GROUP.topic, 9999)))
    flush(store)
    job = store.take_checkpoint()
    assert job is not None
    job.run()

    assert store.log_again(job), "the last ten are left for the next turn"
    assert not store.log_again(job)
    store.complete_checkpoint(job)
    flush(store)

    after = reopened(disk)
    assert all(after.partition_log(one).last_index == 1 for one in ids)


def test_one_that_is_copied_gets_segments_first() -> None:
    store = open_store(MemoryDisk(), SMALL)
    log = group_of(store)
    log.append(bare(1, 2))
    flush(store)

    with pytest.raises(EntryMissing):
        log.export(Index(2)).open()
    flush(store)

    export = log.export(Index(2))
    assert export.open().last_index == 2
    log.release(export)


def test_one_that_was_removed_is_not_logged_again() -> None:
    disk = MemoryDisk()
    store = open_store(disk, SMALL)
    group_of(store).append(bare(1, 2))
    other = group_of(store, OTHER)
    flush(store)

    store.remove_log(GROUP)
    append(other)
    flush(store)
    checkpoint(store)

    assert reopened(disk).partition_ids() == [OTHER]


def test_the_clusters_own_group_always_has_segments() -> None:
    disk = MemoryDisk()
    store = open_store(disk, SMALL)
    log = group_of(store, CLUSTER_GROUP)
    log.append(bare(1, 1))
    flush(store)

    assert files_of(disk, log), "else a store without its write-ahead log would look like a new one"

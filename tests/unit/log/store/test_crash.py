"""The power goes after every single operation, mid-write too: what recovers is always legal."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from goqueue.wire.types import Index, PartitionId, Term
from log.disk.memory import MemoryDisk
from log.entry import Entry
from log.store.directory import Store
from tests.unit.log.stores import (
    GROUP,
    OTHER,
    SMALL,
    WHOLE,
    append,
    checkpoint,
    entry,
    everything,
    flush,
    frames,
    group_of,
    open_store,
    seal,
)

BARE = PartitionId(GROUP.topic, 2)
"""Of a partition to which nothing is published until the end."""
GROUPS = (GROUP, OTHER, BARE)
CONFIG = replace(SMALL, wal_file_bytes=900, segment_bytes=300)


class Workload:
    """A run of the store that notes, at points of the trace, what must and what may be found."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.must: list[tuple[int, dict[PartitionId, list[bytes]], dict[PartitionId, Term]]] = []
        self.may: dict[PartitionId, list[list[bytes]]] = {id: [[]] for id in GROUPS}
        self.store = open_store(self.disk, CONFIG)
        for partition_id in GROUPS:
            group_of(self.store, partition_id)
        self.flush()

    def change(
        self, partition_id: PartitionId, entries: list[Entry], *, truncate: int | None = None
    ) -> None:
        log = self.store.partition_log(partition_id)
        if truncate is not None:
            log.truncate_from(Index(truncate))
        log.append(entries)
        self.may[partition_id].append(frames(everything(log, WHOLE)))

    def flush(self) -> None:
        flush(self.store)
        self.acked()

    def acked(self) -> None:
        """From here on in the trace, the current content may not be lost."""
        logs = {partition_id: self.store.partition_log(partition_id) for partition_id in GROUPS}
        durable = {
            partition_id: frames(everything(log, WHOLE)) for partition_id, log in logs.items()
        }
        terms = {partition_id: log.hard_state.term for partition_id, log in logs.items()}
        self.must.append((len(self.disk.trace), durable, terms))

    def check(self, store: Store, operations: int, what: object) -> None:
        past = [state for state in self.must if state[0] <= operations]
        for partition_id in GROUPS:
            if not store.has_log(partition_id):
                assert not past, what
                continue
            log = store.partition_log(partition_id)
            assert not log.quarantined, what
            found = frames(everything(log))
            states = self.may[partition_id]
            assert found in states, what
            if past:
                oldest = max(
                    n for n, state in enumerate(states) if state == past[-1][1][partition_id]
                )
                assert any(found == state for state in states[oldest:]), what
                assert log.hard_state.term >= past[-1][2][partition_id], what


def workload() -> Workload:
    work = Workload()
    log = work.store.partition_log(GROUP)
    for number in range(1, 9):
        work.change(GROUP, [entry(log.last_index + 1, 1)])
        if number % 2 == 0:
            work.flush()
    log.save_hard_state(Term(2), "n3")
    work.flush()
    work.change(OTHER, [entry(1, 2), entry(2, 2)])
    work.change(BARE, [entry(1, records=0), entry(2, records=0)])
    checkpoint(work.store)
    work.acked()
    job = work.store.take_checkpoint()
    work.change(GROUP, [entry(5, 3)], truncate=5)
    work.change(BARE, [entry(2, 3, records=0), entry(3, 3, records=0)], truncate=2)
    if job is not None:
        job.run()
        work.store.complete_checkpoint(job)
    work.flush()
    seal(work.store)
    checkpoint(work.store)
    work.change(GROUP, [entry(6, 3), entry(7, 3)])
    work.change(GROUP, [entry(7, 4, size=150)], truncate=7)
    work.flush()
    checkpoint(work.store)
    checkpoint(work.store)
    work.acked()
    work.change(OTHER, [entry(3, 4)])
    work.change(BARE, [entry(4, 4, records=0)])
    work.store.close()
    work.acked()
    work.store = open_store(work.disk, CONFIG, seed=9)
    work.acked()
    assert not work.store.partition_log(BARE).segments()
    work.change(OTHER, [entry(4, 5)])
    work.flush()
    checkpoint(work.store)
    work.acked()
    work.change(BARE, [entry(5, 5)])
    work.flush()
    checkpoint(work.store)
    work.acked()
    return work


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
def test_a_power_cut_after_any_operation_loses_nothing_acknowledged(keep: float) -> None:
    work = workload()
    rng = random.Random(int(keep * 10) + 1)
    trace = list(work.disk.trace)

    for operations in range(len(trace) + 1):
        disk = MemoryDisk.replay(trace[:operations])
        for attempt in range(2):
            after = disk.crash(rng, keep=keep)
            store = open_store(after, CONFIG, seed=operations)
            work.check(store, operations, (operations, attempt, trace[operations - 1][0]))


def test_a_second_power_cut_during_recovery_loses_nothing_either() -> None:
    work = workload()
    rng = random.Random(5)
    trace = list(work.disk.trace)

    for operations in range(0, len(trace) + 1, 7):
        crashed = MemoryDisk.replay(trace[:operations]).crash(rng)
        base = crashed.clone()
        open_store(base, CONFIG, seed=3)
        recovery = list(base.trace)
        for done in range(len(recovery)):
            again = crashed.clone()
            for name, arguments in recovery[:done]:
                again._do(name, *arguments)
            store = open_store(again.crash(rng), CONFIG, seed=4)
            work.check(store, operations, (operations, done))


@pytest.mark.parametrize("cut", range(0, 90, 7))
def test_a_torn_last_block_is_cut_and_the_log_goes_on(cut: int) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 2)
    flush(store)
    before = len(disk.trace)
    append(log)
    flush(store)
    trace = list(disk.trace)
    at = next(n for n in range(before, len(trace)) if trace[n][0] == "write")
    number, offset, data = trace[at][1]
    assert isinstance(data, bytes)

    torn = MemoryDisk.replay(trace[:at])
    torn._do("write", number, offset, data[:cut])
    rebooted = torn.clone()
    reopened = open_store(rebooted, seed=2)

    log = reopened.partition_log(GROUP)
    assert log.last_index == 2
    append(log, 3, 2)
    flush(reopened)
    again = open_store(rebooted.clone(), seed=3).partition_log(GROUP)
    assert [e.term for e in everything(again)] == [1, 1, 2, 2, 2]


def test_a_renamed_file_whose_directory_was_not_synced_is_not_relied_upon() -> None:
    disk = MemoryDisk()
    store = open_store(disk, CONFIG)
    log = group_of(store)
    append(log, 30)
    flush(store)

    syncs = [n for n, (name, _) in enumerate(disk.trace) if name == "sync_directory"]
    for at in syncs:
        crashed = MemoryDisk.replay(disk.trace[:at]).crash(random.Random(at), keep=0.0)
        reopened = open_store(crashed, CONFIG, seed=at)
        for partition_id in reopened.partition_ids():
            assert not reopened.partition_log(partition_id).quarantined


def test_a_snapshot_is_whole_or_absent_wherever_the_power_goes() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 3)
    flush(store)
    log.save_snapshot(Index(1), b"one" * 50).run()
    middle = len(disk.trace)
    log.save_snapshot(Index(3), b"three" * 50).run()

    for operations in range(middle, len(disk.trace) + 1):
        crashed = MemoryDisk.replay(disk.trace[:operations]).crash(random.Random(operations))
        snapshot = open_store(crashed, seed=operations).partition_log(GROUP).latest_snapshot()
        assert snapshot in [(1, b"one" * 50), (3, b"three" * 50)]
        if operations == len(disk.trace):
            assert snapshot == (3, b"three" * 50)


def test_a_segment_removed_by_truncation_does_not_come_back_with_the_power() -> None:
    disk = MemoryDisk()
    store = open_store(disk, CONFIG)
    log = group_of(store)
    log.append([entry(1, size=69), entry(2, size=69), entry(3, size=30)])
    flush(store)
    checkpoint(store)
    assert [info.first_index for info in log.segments()] == [1, 3]

    log.truncate_from(Index(3))
    log.append([entry(3, 2, size=10)])
    flush(store)
    checkpoint(store)
    checkpoint(store)
    assert [info.first_index for info in log.segments()] == [1]

    after = open_store(disk.crash(random.Random(1), keep=0.0), CONFIG, seed=2)
    assert after.partition_log(GROUP).entry(Index(3)) == entry(3, 2, size=10)


def test_a_new_file_is_begun_only_behind_a_synced_one() -> None:
    disk = MemoryDisk()
    store = open_store(disk, CONFIG)
    log = group_of(store)
    log.relaxed = True
    flush(store)

    while store.wal_files < 3:
        append(log)
        job = store.take_flush(1000)
        assert job is not None
        assert not job.synced
        job.sync()
        store.complete_flush(job)

        after = open_store(disk.crash(random.Random(1), keep=0.0), CONFIG, seed=2)
        assert not after.partition_log(GROUP).quarantined

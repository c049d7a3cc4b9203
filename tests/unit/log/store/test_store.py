"""What raft and the shell rely on: durability by LSN, relaxed groups, checkpoints, trims, reads."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from goqueue.wire.types import Index, Lsn, Offset, Term
from log.disk.memory import MemoryDisk
from log.entry import EntryKind, make_entry
from log.errors import EntryMissing
from log.wal.format import BLOCK_BYTES
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
    seal,
    write,
)

# -- durability


def test_an_entry_is_durable_only_once_its_flush_has_completed() -> None:
    store = open_store(MemoryDisk())
    log = group_of(store)
    flush(store)
    lsn = log.append([entry(1)])
    job = store.take_flush()
    assert job is not None
    later = log.append([entry(2)])

    assert (log.durable_index, store.durable_lsn < lsn) == (0, True)
    job.sync()
    assert log.durable_index == 0
    store.complete_flush(job)

    assert log.durable_index == 1
    assert lsn <= store.durable_lsn < later


def test_a_replaced_entry_is_durable_under_the_lsn_of_its_current_append() -> None:
    store = open_store(MemoryDisk())
    log = group_of(store)
    append(log, 3)
    flush(store)

    log.truncate_from(Index(2))
    log.append([entry(2, 5)])

    assert log.durable_index == 1
    flush(store)
    assert log.durable_index == 2
    assert log.last_term == 5


def test_hard_state_is_durable_after_its_flush() -> None:
    store = open_store(MemoryDisk())
    log = group_of(store)
    flush(store)

    log.save_hard_state(Term(4), "n2")

    assert not log.hard_state_durable
    flush(store)
    assert log.hard_state_durable
    assert (log.hard_state.term, log.hard_state.vote) == (4, "n2")


def test_the_shell_is_told_once_a_block_and_may_flush_at_once() -> None:
    store = open_store(MemoryDisk())
    told: list[str] = []
    store.on_dirty = lambda: told.append("dirty")
    store.on_durable = lambda lsn: told.append("durable")
    log = group_of(store)
    append(log, 3)
    assert told == ["dirty"]
    flush(store)
    assert told == ["dirty", "durable"]

    store.on_dirty = lambda: flush(store)  # type: ignore[assignment]
    append(log)

    assert log.durable_index == log.spilled_index == 4
    assert frames(everything(log)) == frames([entry(n) for n in (1, 2, 3, 4)])


def test_one_flush_is_one_write_and_one_sync_for_all_groups() -> None:
    disk = MemoryDisk()
    store = open_store(disk, replace(SMALL, wal_file_bytes=1 << 16))
    logs = [group_of(store, GROUP), group_of(store, OTHER)]
    flush(store)
    before = len(disk.trace)

    for log in logs * 5:
        append(log)
    job = store.take_flush()
    assert job is not None
    job.sync()

    done = disk.trace[before:]
    assert [name for name, _ in done] == ["write", "sync", "write"]
    *_, vouching = done[-1][1]
    assert len(vouching) == BLOCK_BYTES  # an empty block says that the one before it was synced


# -- relaxed groups


def test_relaxed_appends_are_written_at_once_and_synced_within_the_interval() -> None:
    disk = MemoryDisk()
    store = open_store(disk, replace(SMALL, wal_file_bytes=1 << 16, relaxed_sync_ms=50))
    relaxed, strict = group_of(store, GROUP), group_of(store, OTHER)
    relaxed.relaxed = True
    flush(store)
    syncs = disk.syncs

    append(relaxed)
    job = write(store, 1000)

    assert (job.synced, disk.syncs) == (False, syncs)
    assert relaxed.durable_index == 1
    assert store.durable_lsn < store.written_lsn
    assert store.sync_due_ms() == 1050
    assert store.take_flush(1049) is None

    write(store, 1050)
    assert store.durable_lsn == store.written_lsn
    assert (disk.syncs, store.sync_due_ms()) == (syncs + 1, None)

    append(relaxed)
    append(strict)
    both = store.take_flush(1051)
    assert both is not None
    assert both.synced


def test_a_relaxed_entry_of_a_strict_group_counts_once_it_is_written_and_all_before_it_counts() -> (
    None
):
    disk = MemoryDisk()
    store = open_store(disk, replace(SMALL, wal_file_bytes=1 << 16, relaxed_sync_ms=50))
    group = group_of(store, GROUP)
    flush(store)

    append(group)
    job = store.take_flush(1000)
    assert job is not None
    group.append([entry(group.last_index + 1)], relaxed=True)
    job.sync()
    store.complete_flush(job)
    assert (job.synced, group.durable_index) == (True, 1)

    assert (write(store, 1001).synced, group.durable_index) == (False, 2)
    append(group)
    assert group.durable_index == 2
    job = store.take_flush(1002)
    assert job is not None
    assert job.synced
    group.append([entry(group.last_index + 1)], relaxed=True)
    assert group.durable_index == 2
    job.sync()
    store.complete_flush(job)
    assert group.durable_index == 3
    cut = open_store(disk.crash(random.Random(1), keep=0.0), SMALL)
    assert group_of(cut, GROUP).last_index == 3


def test_no_more_than_so_many_relaxed_bytes_are_unsynced() -> None:
    disk = MemoryDisk()
    store = open_store(disk, replace(SMALL, wal_file_bytes=1 << 20, relaxed_sync_bytes=1000))
    group = group_of(store, GROUP)
    group.relaxed = True
    flush(store)

    synced = []
    for _ in range(5):
        append(group, size=300)
        synced.append(write(store, 1000).synced)

    assert synced == [False, False, True, False, False]


def test_each_relaxed_group_is_synced_within_its_own_interval() -> None:
    store = open_store(MemoryDisk(), replace(SMALL, wal_file_bytes=1 << 16, relaxed_sync_ms=50))
    slow, quick = group_of(store, GROUP), group_of(store, OTHER)
    slow.relaxed = quick.relaxed = True
    slow.flush_interval_ms, quick.flush_interval_ms = 400, 20
    flush(store)

    append(slow)
    write(store, 1000)
    alone = store.sync_due_ms()
    append(quick)
    write(store, 1100)

    assert (alone, store.sync_due_ms()) == (1400, 1120)


def test_terms_and_votes_of_relaxed_groups_are_always_synced() -> None:
    store = open_store(MemoryDisk())
    log = group_of(store)
    log.relaxed = True
    flush(store)

    lsn = log.save_hard_state(Term(2), "n1")
    job = store.take_flush(1000)

    assert job is not None
    assert job.synced
    assert not log.hard_state_durable
    job.sync()
    store.complete_flush(job)
    assert log.hard_state_durable
    assert store.durable_lsn >= lsn


def test_close_syncs_what_relaxed_groups_wrote() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    log.relaxed = True
    flush(store)
    append(log, 2)
    job = write(store, 1000)
    job.spill()
    store.complete_spill(job)
    store.close()

    lost_all_unsynced = disk.crash(random.Random(1), keep=0.0)
    assert open_store(lost_all_unsynced, seed=2).partition_log(GROUP).last_index == 2


# -- seals, files, checkpoints


def test_an_idle_log_is_sealed_once() -> None:
    store = open_store(MemoryDisk(), replace(SMALL, seal_after_ms=20))
    append(group_of(store))
    flush(store)

    assert store.take_seal(19) is None
    assert seal(store)
    assert not seal(store)
    append(store.partition_log(GROUP))
    assert store.take_seal(1000) is None
    flush(store)
    assert seal(store)


def test_files_are_dropped_once_a_checkpoint_past_them_is_durable() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    while not store.backpressure:
        append(log)
        flush(store)
    assert store.wal_files == 4
    assert store.checkpoint_due

    assert checkpoint(store)
    assert store.wal_files >= 4
    assert checkpoint(store)

    assert store.wal_files <= 2
    assert not store.backpressure
    assert len([path for path in disk.paths() if path.endswith(".wal")]) == store.wal_files
    assert frames(everything(open_store(disk.clone(), seed=2).partition_log(GROUP))) == frames(
        everything(log)
    )


def test_reopening_leaves_one_log_file_and_all_entries_in_segments() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store), 50)
    flush(store)
    expected = frames(everything(store.partition_log(GROUP)))
    incarnation = store.incarnation
    store.close()

    store = open_store(disk, seed=2)

    assert store.wal_files == 1
    assert store.incarnation == incarnation
    assert (
        store.partition_log(GROUP).durable_index == store.partition_log(GROUP).spilled_index == 50
    )
    assert frames(everything(store.partition_log(GROUP))) == expected


def test_a_block_larger_than_a_file_gets_a_file_of_its_own() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    log.append([entry(1, size=10_000)])
    flush(store)
    append(log)
    flush(store)

    assert frames(everything(open_store(disk.clone(), seed=2).partition_log(GROUP))) == frames(
        [entry(1, size=10_000), entry(2)]
    )


def test_removed_group_stays_gone_and_its_files_too() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store, GROUP), 3)
    append(group_of(store, OTHER), 3)
    flush(store)
    checkpoint(store)
    store.remove_log(GROUP)
    flush(store)

    assert store.partition_ids() == [OTHER]
    assert not [path for path in disk.paths() if f"/{GROUP}/" in path]
    checkpoint(store)
    reopened = open_store(disk.clone(), seed=2)
    assert reopened.partition_ids() == [OTHER]
    fresh = reopened.create_log(GROUP)
    assert (fresh.first_index, fresh.last_index, fresh.last_term) == (1, 0, 0)


def test_group_made_again_under_the_same_id_sees_nothing_of_the_old_one() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 30)
    flush(store)
    log.save_snapshot(Index(2), b"old").run()
    log.save_snapshot(Index(20), b"old").run()
    checkpoint(store)
    store.remove_log(GROUP)
    append(store.create_log(GROUP), 3, 5)
    job = store.take_flush()
    assert job is not None
    job.sync()
    store.complete_flush(job)

    unspilled = open_store(disk.clone(), seed=2).partition_log(GROUP)
    job.spill()
    store.complete_spill(job)
    cut = disk.crash(random.Random(1), keep=0.0)

    for found in (unspilled, open_store(cut, seed=3).partition_log(GROUP)):
        assert frames(everything(found)) == frames([entry(n, 5) for n in (1, 2, 3)])
        assert found.latest_snapshot() is None
        assert not found.quarantined
        found.save_snapshot(Index(1), b"new").run()
        assert found.latest_snapshot() == (1, b"new")


# -- segments


def segment_hashes(disk: MemoryDisk, flushes: int) -> list[str]:
    config = replace(SMALL, segment_bytes=500)
    store = open_store(disk, config, seed=flushes)
    log = group_of(store)
    for index in range(1, 41):
        log.append([entry(index, size=index * 3 % 70)])
        if index % flushes == 0:
            flush(store)
    log.truncate_from(Index(20))
    for index in range(20, 41):
        log.append([entry(index, 2, size=index * 5 % 70)])
    flush(store)
    return [log.disk_segments.hash(info.first_index) for info in log.segments() if info.sealed]


def test_segments_of_replicas_are_equal_however_they_were_flushed() -> None:
    once = segment_hashes(MemoryDisk(), 40)

    assert len(once) > 4
    assert once == segment_hashes(MemoryDisk(), 1) == segment_hashes(MemoryDisk(), 7)


def test_segments_roll_by_log_time() -> None:
    store = open_store(MemoryDisk(), replace(SMALL, segment_time_ms=100, segment_bytes=1 << 20))
    log = group_of(store)
    for index, time_ms in enumerate((0, 50, 99, 100, 150, 400), start=1):
        log.append([entry(index, time_ms=time_ms)])
    flush(store)

    assert [info.first_index for info in log.segments()] == [1, 4, 6]


@pytest.mark.parametrize("ram", [0, 3000, 1 << 20])
def test_reads_by_offset_and_time_find_the_same_entries_in_ram_and_segments(ram: int) -> None:
    store = open_store(MemoryDisk(), replace(SMALL, ram_tail_bytes=ram))
    log = group_of(store)
    offset = 0
    entries = []
    for index in range(1, 61):
        count = (0, 3, 1)[index % 3]
        new = make_entry(
            index=index,
            term=1,
            time_ms=index // 4 * 10,
            kind=EntryKind.RECORDS if count else EntryKind.NOOP,
            base_offset=offset if count else 0,
            record_count=count,
            body=b"x" * (index % 17),
        )
        offset += count
        entries.append(new)
        log.append([new])
        if index % 5 == 0:
            flush(store)
    flush(store)

    assert log.ram_bytes <= ram
    assert (log.ram_bytes > 0) == (ram > 0)
    for wanted in range(-1, offset + 2):
        holding = [e.index for e in entries if e.record_count and e.base_offset <= wanted]
        assert log.locate_offset(Offset(wanted)) == (holding[-1] if holding else None)
    for time_ms in range(-5, 170, 5):
        after = [e.index for e in entries if e.time_ms >= time_ms]
        assert log.locate_time(time_ms) == (after[0] if after else None)
    assert everything(log) == entries


def test_reads_keep_their_bounds_and_give_one_entry_at_least() -> None:
    store = open_store(MemoryDisk(), replace(SMALL, ram_tail_bytes=1 << 20))
    log = group_of(store)
    append(log, 10)

    assert [e.index for e in log.entries(Index(3), max_count=2)] == [3, 4]
    assert [e.index for e in log.entries(Index(3), max_bytes=1)] == [3]
    size = len(entry(1).frame)
    assert [e.index for e in log.entries(Index(3), max_bytes=3 * size)] == [3, 4, 5]
    for outside in (0, 11):
        with pytest.raises(EntryMissing):
            log.entries(Index(outside))
    assert (log.term_at(Index(0)), log.term_at(Index(10)), log.term_at(Index(11))) == (0, 1, None)


def test_appending_with_a_gap_is_refused() -> None:
    log = group_of(open_store(MemoryDisk()))

    with pytest.raises(ValueError, match="5 does not follow 0"):
        log.append([entry(5)])


# -- trims and snapshots


def test_trim_deletes_segments_only_behind_the_snapshots() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 40)
    flush(store)
    log.trim_to(Index(30))
    checkpoint(store)
    assert (log.first_index, log.trim_index) == (1, 30)

    log.save_snapshot(Index(25), b"state at 25").run()
    checkpoint(store)
    checkpoint(store)

    assert 1 < log.first_index <= 26
    kept = log.first_index
    assert log.term_at(Index(kept - 1)) == 1
    assert not [p for p in disk.paths() if p.endswith("0001.segment")]
    store = open_store(disk.clone(), seed=2)
    log = store.partition_log(GROUP)
    assert (log.first_index, log.term_at(Index(kept - 1)), log.quarantined) == (kept, 1, False)
    assert log.latest_snapshot() == (25, b"state at 25")
    assert [e.index for e in everything(log)] == list(range(kept, 41))


@pytest.mark.parametrize("snapshot", ["late", "damaged"])
def test_what_a_state_machine_that_begins_anew_has_yet_to_apply_is_kept(snapshot: str) -> None:
    """It begins behind a snapshot of its predecessor, which is stored only then, or damaged."""
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 40)
    flush(store)
    log.trim_to(Index(30))
    job = log.save_snapshot(Index(35), b"state")
    if snapshot == "damaged":
        job.run()
        disk.content(next(p for p in disk.paths() if p.endswith(".snapshot")))[-1] ^= 1

    assert log.latest_snapshot() is None
    if snapshot == "late":
        job.run()
    checkpoint(store)
    checkpoint(store)
    assert [e.index for e in everything(log)] == list(range(1, 41))

    log.trim_to(Index(30))
    checkpoint(store)
    assert 1 < log.first_index <= 30


def test_damaged_snapshot_falls_back_to_the_one_before() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 9)
    flush(store)
    for index in (3, 6, 9):
        log.save_snapshot(Index(index), f"state {index}".encode()).run()
    assert len([path for path in disk.paths() if path.endswith(".snapshot")]) == 2

    newest = max(path for path in disk.paths() if path.endswith(".snapshot"))
    disk.content(newest)[-1] ^= 1

    assert log.latest_snapshot() == (6, b"state 6")
    assert store.damaged_entries == 1


def test_a_snapshot_ahead_of_the_log_is_not_used() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 3)
    flush(store)
    append(log, 2)
    log.save_snapshot(Index(2), b"2").run()
    log.save_snapshot(Index(5), b"5").run()

    reopened = open_store(disk.clone(), seed=2)

    assert reopened.partition_log(GROUP).last_index == 3
    assert reopened.partition_log(GROUP).latest_snapshot() == (2, b"2")


def test_trimmed_log_without_a_sound_snapshot_is_quarantined() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 40)
    flush(store)
    log.trim_to(Index(30))
    log.save_snapshot(Index(35), b"state").run()
    checkpoint(store)
    checkpoint(store)
    assert log.first_index > 1
    snapshot = next(path for path in disk.paths() if path.endswith(".snapshot"))
    disk.content(snapshot)[20] ^= 1

    assert log.latest_snapshot() is None
    assert log.quarantined


def test_lsn_of_an_append_is_past_everything_before_it() -> None:
    store = open_store(MemoryDisk())
    log = group_of(store)
    lsns: list[Lsn] = []
    for index in range(1, 30):
        lsns.append(log.append([entry(index)]))
        if index % 7 == 0:
            flush(store)
            seal(store)

    assert lsns == sorted(set(lsns))


@pytest.mark.parametrize("moment", ["before the job", "while it runs"])
def test_truncation_past_a_checkpoint_is_replayed_from_the_checkpoint(moment: str) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 3)
    flush(store)

    append(log, 2)
    if moment == "before the job":
        log.truncate_from(Index(2))
        append(log, 1, 2)
    job = store.take_checkpoint()
    assert job is not None
    job.run()
    if moment == "while it runs":
        log.truncate_from(Index(2))
        append(log, 1, 2)
    store.complete_checkpoint(job)
    flush(store)

    recovered = open_store(disk.clone(), seed=2).partition_log(GROUP)
    assert not recovered.quarantined
    assert frames(everything(recovered)) == frames([entry(1), entry(2, 2)])

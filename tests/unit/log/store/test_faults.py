"""Disks that fail, fill up, are held by another process, or were written by a newer release."""

from __future__ import annotations

import errno
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from goqueue.wire.types import Index, Term
from log.disk.files import OsDisk, SyncFailed
from log.disk.memory import MemoryDisk
from log.errors import (
    DirectoryLocked,
    EntryDamaged,
    NewerFormat,
    ReadOnly,
    StoreFailed,
    WalDamaged,
)
from log.segments.segment import TERM, TERMS_SUFFIX
from log.store.directory import Store
from tests.unit.log.stores import (
    GROUP,
    ROOT,
    SMALL,
    append,
    checkpoint,
    entry,
    everything,
    flush,
    frames,
    group_of,
    open_store,
    refused,
    repair,
    seal,
)

PROJECT = Path(__file__).resolve().parents[4]


def failing(operation: str, part: str, number: int = errno.EIO) -> Callable[..., OSError | None]:
    """Every such operation on a path that holds `part` fails."""
    return lambda name, path: (
        OSError(number, os.strerror(number), path) if name == operation and part in path else None
    )


@pytest.mark.parametrize("operation", ["fdatasync", "pwritev"])
def test_first_error_of_the_log_stops_the_store_for_good(operation: str) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log)
    flush(store)
    durable = store.durable_lsn
    told: list[int] = []
    store.on_durable = told.append

    append(log)
    disk.fault = failing(operation, ".wal")
    job = store.take_flush()
    assert job is not None
    with pytest.raises(OSError) as caught:
        job.sync()
    store.complete_flush(job, caught.value)
    disk.fault = None

    assert store.failed is caught.value
    assert store.take_flush() is None
    assert (store.durable_lsn, told, log.durable_index) == (durable, [], 1)
    with pytest.raises(StoreFailed):
        append(log)
    assert log.entry(Index(1)).index == 1
    store.close()


def test_first_error_of_a_segment_sync_stops_the_store() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store))
    flush(store)
    job = store.take_checkpoint()
    assert job is not None

    disk.fault = failing("fdatasync", ".segment")
    with pytest.raises(OSError) as caught:
        job.run()
    store.complete_checkpoint(job, caught.value)

    assert store.failed is caught.value
    assert store.take_flush() is None
    assert store.take_checkpoint() is None


def test_first_write_error_of_a_segment_stops_the_store() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store))
    disk.fault = failing("pwritev", ".segment")

    flush(store)

    assert isinstance(store.failed, OSError)


def test_full_disk_during_a_spill_loses_nothing_and_heals_by_itself() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    disk.fault = failing("pwritev", ".segment", errno.ENOSPC)
    append(log, 3)
    flush(store)

    assert store.failed is None
    assert log.durable_index == 3
    assert log.spilled_index == 0
    assert frames(everything(log)) == frames([entry(n) for n in (1, 2, 3)])
    assert open_store(disk.clone(), seed=2).partition_log(GROUP).last_index == 3

    disk.fault = None
    append(log)
    flush(store)

    assert log.spilled_index == 4
    assert frames(everything(log)) == frames([entry(n) for n in (1, 2, 3, 4)])


def test_full_disk_gives_up_the_reserve_before_anything_fails() -> None:
    config = replace(SMALL, wal_file_bytes=1000, reserve_bytes=5000)
    disk = MemoryDisk(capacity=12_000)
    store = open_store(disk, config)
    assert disk.exists(f"{ROOT}/RESERVE")
    log = group_of(store)

    while disk.exists(f"{ROOT}/RESERVE"):
        append(log)
        flush(store)
        assert store.failed is None

    assert log.durable_index == log.last_index > 10


def test_full_disk_at_a_new_log_file_fails_cleanly_and_reopens_with_all_acked() -> None:
    disk = MemoryDisk(capacity=6000)
    store = open_store(disk, replace(SMALL, wal_file_bytes=1000))
    log = group_of(store)
    acked = 0
    while store.failed is None:
        append(log)
        job = store.take_flush()
        assert job is not None
        try:
            job.sync()
        except OSError as error:
            assert error.errno == errno.ENOSPC
            store.complete_flush(job, error)
            break
        store.complete_flush(job)
        acked = log.durable_index
    store.close()

    roomy = disk.clone()
    roomy.capacity = 1 << 40
    assert open_store(roomy, seed=2).partition_log(GROUP).last_index >= acked > 3


def test_watermark_is_told_before_the_disk_is_full() -> None:
    disk = MemoryDisk(capacity=10_000)
    roomy = open_store(disk, replace(SMALL, watermark_bytes=1000, watermark_percent=2))
    assert not roomy.space().low
    roomy.close()

    assert open_store(disk, replace(SMALL, watermark_bytes=9000)).space().low
    assert open_store(disk.clone(), replace(SMALL, watermark_percent=95)).space().low


def test_second_process_is_told_who_holds_the_directory(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; sys.path[:0] = ['.', 'client']\n"
            "from log.config import StorageConfig\nfrom log.disk.files import OsDisk\n"
            "from log.store.directory import Store\n"
            "config = StorageConfig(node='broker-7', wal_file_bytes=4096, reserve_bytes=0)\n"
            "store = Store.open(OsDisk(), sys.argv[1], config)\n"
            "print('ready', flush=True)\nsys.stdin.readline()\nstore.close()",
            str(tmp_path / "deep" / "data"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=PROJECT,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n"
        with pytest.raises(DirectoryLocked, match=f"pid {holder.pid}, node broker-7"):
            open_store(OsDisk(), root=str(tmp_path / "deep" / "data"))
    finally:
        holder.communicate("\n", timeout=20)
    open_store(OsDisk(), root=str(tmp_path / "deep" / "data")).close()


def newer(content: bytearray, crc_at: int, length: int) -> None:
    """Makes the file claim format 2, with its checksum right."""
    content[crc_at + 4 : crc_at + 6] = struct.pack("<H", 2)
    crc = crc32c(bytes(content[crc_at + 4 : length]))
    content[crc_at : crc_at + 4] = struct.pack("<I", crc)


@pytest.mark.parametrize("suffix", [".wal", ".segment", ".terms", ".snapshot"])
def test_newer_format_is_refused_by_name(suffix: str) -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 2)
    flush(store)
    checkpoint(store)
    log.save_snapshot(Index(1), b"state").run()
    store.close()
    path = next(path for path in disk.paths() if path.endswith(suffix))
    content = disk.content(path)
    header = int.from_bytes(content[16:20], "little") if suffix == ".wal" else 48
    newer(content, 8, len(content) if suffix == ".snapshot" else header)

    with pytest.raises(NewerFormat, match=path):
        open_store(disk.clone(), seed=2).partition_log(GROUP).latest_snapshot()


def test_read_only_open_writes_nothing() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 5)
    flush(store)
    checkpoint(store)
    append(log, 5)
    flush(store)
    expected = everything(log)
    before = len(disk.trace)

    reader = open_store(disk, read_only=True)

    assert everything(reader.partition_log(GROUP)) == expected
    with pytest.raises(ReadOnly):
        append(reader.partition_log(GROUP))
    reader.close()
    assert len(disk.trace) == before


def test_descriptors_stay_bounded_with_many_segments() -> None:
    config = replace(SMALL, segment_bytes=200, descriptors_max=4)
    disk = MemoryDisk()
    store = open_store(disk, config)
    log = group_of(store)
    append(log, 100)
    flush(store)
    checkpoint(store)
    disk.open_handles_most = disk.open_handles

    assert len(log.segments()) > 30
    assert len(everything(log)) == 100
    assert disk.open_handles_most <= 4 + 1
    store.close()
    assert disk.open_handles == 0


def damaged_log() -> tuple[MemoryDisk, str]:
    disk = MemoryDisk()
    store = open_store(disk, replace(SMALL, segment_bytes=1 << 20))
    log = group_of(store)
    append(log, 10)
    log.save_hard_state(Term(3), "n2")
    flush(store)
    store.close()
    open_store(disk, replace(SMALL, segment_bytes=1 << 20), seed=2).close()
    return disk.clone(), next(path for path in disk.paths() if path.endswith(".segment"))


def test_damaged_entry_quarantines_its_group_and_the_others_stay_readable() -> None:
    disk, path = damaged_log()
    content = disk.content(path)
    content[bytes(content).find(b"4.1:")] ^= 1
    store = open_store(disk, seed=3)
    log = store.partition_log(GROUP)
    identity = log.identity(Index(4))

    with pytest.raises(EntryDamaged, match="entries 4 to 4"):
        log.entry(Index(4))

    assert log.quarantined
    assert log.damaged == (4, 4)
    assert store.damaged_entries == 1
    assert identity == (1, entry(4).crc)
    assert log.entry(Index(5)) == entry(5)
    assert [e.index for e in log.entries(Index(1))] == [1, 2, 3]
    flush(store)
    assert open_store(disk.clone(), seed=4).partition_log(GROUP).damaged == (4, 4)


def test_log_cut_by_damage_is_whole_again_when_a_leader_has_sent_it_all() -> None:
    disk, path = damaged_log()
    content = disk.content(path)
    at = bytes(content).find(b"7.1:")
    del content[at:]
    store = open_store(disk, seed=3)
    log = store.partition_log(GROUP)
    assert (log.last_index, log.damaged) == (6, (7, 10))
    assert log.hard_state.term == 3

    for index in (7, 8, 9):
        log.append([entry(index)])
        assert log.quarantined
    flush(store)
    store.close()
    store = open_store(disk, seed=4)
    log = store.partition_log(GROUP)
    assert log.damaged == (10, 10)
    log.append([entry(10)])

    assert not log.quarantined
    flush(store)
    assert not open_store(disk.clone(), seed=5).partition_log(GROUP).quarantined


def test_damaged_write_ahead_log_costs_the_incarnation_and_keeps_the_segments() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 5)
    flush(store)
    checkpoint(store)
    log.save_snapshot(Index(4), b"state").run()
    append(log, 2)
    flush(store)
    seal(store)
    path = max(path for path in disk.paths() if path.endswith(".wal"))
    content = disk.content(path)
    content[bytes(content).rfind(b"7.1:")] ^= 4
    damaged = disk.clone()

    with pytest.raises(WalDamaged, match=path):
        open_store(damaged, seed=2)
    salvaged = open_store(damaged, seed=2, accept_damage=True)

    log = salvaged.partition_log(GROUP)
    assert salvaged.incarnation != store.incarnation
    assert log.quarantined
    assert frames(everything(log))[:5] == frames([entry(n) for n in range(1, 6)])
    assert salvaged.damaged_entries == 1
    assert log.latest_snapshot() == (4, b"state")
    salvaged.close()
    again = open_store(damaged, seed=3)
    assert again.partition_log(GROUP).quarantined
    assert again.incarnation == salvaged.incarnation
    again.partition_log(GROUP).lift_quarantine()
    flush(again)
    assert not open_store(damaged.clone(), seed=4).partition_log(GROUP).quarantined


def test_damaged_entry_is_repaired_from_any_replica_that_has_the_same_one() -> None:
    disk, path = damaged_log()
    content = disk.content(path)
    for index in (4, 7):
        content[bytes(content).find(f"{index}.1:".encode())] ^= 1
    store = open_store(disk, seed=3)
    log = store.partition_log(GROUP)
    for index in (4, 7):
        with pytest.raises(EntryDamaged):
            log.entry(Index(index))

    assert not repair(log, entry(4, 2))
    assert repair(log, entry(4))
    assert log.quarantined
    assert repair(log, entry(7))

    assert not log.quarantined
    assert everything(log) == [entry(n) for n in range(1, 11)]
    flush(store)
    reopened = open_store(disk.clone(), seed=4).partition_log(GROUP)
    assert not reopened.quarantined
    assert everything(reopened) == [entry(n) for n in range(1, 11)]


def test_a_last_entry_is_repaired_in_its_place_only_where_the_index_of_it_is_damaged_too() -> None:
    """Else it would overwrite others, which were sound."""
    disk, _path = damaged_log()
    log = open_store(disk, seed=3).partition_log(GROUP)
    segment = log.disk_segments.chain[0]
    last = segment.last_index
    content, terms = disk.content(segment.path()), disk.content(segment.path(TERMS_SUFFIX))
    content[bytes(content).find(f"{last}.1:".encode())] ^= 1
    with pytest.raises(EntryDamaged):
        log.entry(Index(last))
    at = len(terms) - TERM.size
    position = int.from_bytes(terms[at : at + 4], "little")
    terms[at : at + 4] = (position - 8).to_bytes(4, "little")

    assert not repair(log, entry(last))

    assert [log.entry(Index(n)) for n in range(1, last)] == [entry(n) for n in range(1, last)]


def test_damage_that_was_cut_off_and_came_again_makes_later_damage_no_better() -> None:
    disk, _path = damaged_log()
    store = open_store(disk, seed=3)
    log = store.partition_log(GROUP)
    log.quarantine(9, 9, "a first time")
    log.truncate_from(Index(9))
    log.append([entry(9), entry(10)])
    assert not log.quarantined

    log.quarantine(4, 4, "a second time")
    log.append([entry(11)])

    assert log.damaged == (4, 4)


def test_damage_before_what_was_cut_off_is_not_cut_off() -> None:
    disk, _path = damaged_log()
    log = open_store(disk, seed=3).partition_log(GROUP)
    log.quarantine(9, 9, "a first time")
    log.truncate_from(Index(9))

    log.quarantine(4, 4, "a second time")
    log.append([entry(9), entry(10)])

    assert log.damaged == (4, 9)


def test_a_repair_whose_sync_failed_makes_nothing_whole() -> None:
    """What it wrote is read back from memory, which proves nothing of the medium."""
    disk, path = damaged_log()
    content = disk.content(path)
    content[bytes(content).find(b"4.1:")] ^= 1
    disk = disk.clone()
    store = open_store(disk, seed=3)
    log = store.partition_log(GROUP)
    with pytest.raises(EntryDamaged):
        log.entry(Index(4))

    disk.fault = refused("fdatasync", ".segment")
    with pytest.raises(SyncFailed):
        repair(log, entry(4))
    with pytest.raises(EntryDamaged):
        log.entry(Index(4))

    assert repair(log, entry(4))
    assert not log.quarantined
    flush(store)
    after = open_store(disk.crash(random.Random(1), keep=0.0), seed=4).partition_log(GROUP)
    assert not after.quarantined
    assert everything(after) == [entry(n) for n in range(1, 11)]


@pytest.mark.parametrize("suffix", [".segment", TERMS_SUFFIX])
def test_a_sync_that_failed_in_a_repair_is_no_checkpoints(suffix: str) -> None:
    """It may have been to save entries that were just spilled: whoever asks first is told, and the
    next sync of the file succeeds."""
    disk = MemoryDisk()
    config = replace(SMALL, segment_bytes=1 << 20)
    store = open_store(disk, config)
    log = group_of(store)
    append(log, 5)
    flush(store)
    checkpoint(store)
    append(log, 3)
    flush(store)
    disk.fault = refused("fdatasync", suffix)
    with pytest.raises(SyncFailed):
        if suffix == TERMS_SUFFIX:
            log.disk_segments.chain[0].rewrite(suffix, {})
        else:
            log.disk_segments.repair([entry(2)])

    job = store.take_checkpoint()
    assert job is not None
    with pytest.raises(SyncFailed) as caught:
        job.run()
    store.complete_checkpoint(job, caught.value)

    assert store.failed is caught.value
    after = open_store(disk.crash(random.Random(1), keep=0.0), config, seed=2).partition_log(GROUP)
    assert everything(after) == [entry(n) for n in range(1, 9)]


def cut_at_damage(*places: tuple[str, int]) -> tuple[MemoryDisk, Store]:
    """Entries 6 to 10 were replaced by others, in a segment whose index items (`terms`) or frames
    are damaged at these entries."""
    disk = MemoryDisk()
    store = open_store(disk, replace(SMALL, segment_bytes=1 << 20))
    log = group_of(store)
    append(log, 10)
    flush(store)
    checkpoint(store)
    base = log.disk_segments.chain[0].path("")
    for suffix, index in places:
        content = disk.content(base + suffix)
        body = bytes(content).find(f"{index}.1:".encode())
        content[48 + 16 * (index - 1) + 3 if suffix == TERMS_SUFFIX else body] ^= 0x80

    log.truncate_from(Index(6))
    append(log, 3, term=2)
    flush(store)
    return disk, store


REPLACED = [*(entry(n) for n in range(1, 6)), *(entry(n, 2) for n in (6, 7, 8))]


def test_entries_are_cut_off_behind_a_damaged_index_item() -> None:
    """It says where the last entry that stays ends; its frame does, too."""
    disk, store = cut_at_damage((TERMS_SUFFIX, 5))

    assert store.failed is None
    assert everything(store.partition_log(GROUP)) == REPLACED
    disk.process_died()
    again = open_store(disk, seed=2).partition_log(GROUP)
    assert everything(again) == REPLACED
    assert not again.quarantined


def test_entries_are_cut_off_behind_a_damaged_entry() -> None:
    _disk, store = cut_at_damage((".segment", 5))
    log = store.partition_log(GROUP)

    assert store.failed is None
    assert log.entries(Index(6)) == REPLACED[5:]
    with pytest.raises(EntryDamaged):
        log.entry(Index(5))
    assert repair(log, entry(5))
    assert everything(log) == REPLACED


def test_where_nobody_can_say_where_to_cut_the_next_process_does() -> None:
    disk, store = cut_at_damage((".segment", 4), (TERMS_SUFFIX, 5), (".segment", 6))
    assert isinstance(store.failed, OSError)
    disk.process_died()

    log = open_store(disk, seed=2).partition_log(GROUP)

    assert everything(log) == REPLACED[:3]
    assert log.damaged == (4, 8)
    assert log.suspect

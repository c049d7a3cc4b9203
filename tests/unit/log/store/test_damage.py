"""Single-bit flips and truncations of a small log: detected, never a wrong read.

Two bits of each byte are flipped, all eight with `GOQUEUE_DAMAGE=all` (`make damage`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from goqueue.wire.types import Index, Offset, PartitionId, Term
from log.disk.memory import MemoryDisk
from log.entry import Entry
from log.errors import LogError, WalDamaged
from log.partition.log import PartitionLog
from log.store.directory import Store
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
)

TINY = replace(SMALL, wal_file_bytes=470, segment_bytes=130, index_interval_bytes=60)
STRIDE = 1 if os.environ.get("GOQUEUE_DAMAGE") == "all" else 4
"""Every so many bits of a byte."""


@dataclass(frozen=True)
class Truth:
    """What the undamaged log answers."""

    entries: list[Entry]
    hard: tuple[int, str | None]
    snapshots: dict[int, bytes]

    @property
    def newest_snapshot(self) -> int:
        return max(self.snapshots, default=0)


def small_log() -> tuple[MemoryDisk, dict[PartitionId, Truth]]:
    """Two groups, sealed and active segments, a checkpoint, snapshots, two write-ahead files."""
    disk = MemoryDisk()
    store = open_store(disk, TINY)
    first, second = group_of(store, GROUP), group_of(store, OTHER)
    append(first, 4, size=6)
    first.save_hard_state(Term(2), "n2")
    flush(store)
    for index in (2, 4):
        first.save_snapshot(Index(index), f"state {index}".encode()).run()
    checkpoint(store)
    append(first, 2, 2, size=6)
    append(second, 1, 2, size=3)
    second.save_hard_state(Term(2), None)
    flush(store)
    first.truncate_from(Index(6))
    first.append([entry(6, 3, size=4, records=0)])
    flush(store)
    append(first, 1, 3, size=6)
    flush(store)
    assert seal(store)
    assert store.wal_files >= 2
    assert len(first.segments()) >= 2
    truths: dict[PartitionId, Truth] = {
        GROUP: Truth(everything(first), (2, "n2"), {2: b"state 2", 4: b"state 4"}),
        OTHER: Truth(everything(second), (2, None), {}),
    }
    return disk.clone(), truths


def damages(disk: MemoryDisk) -> Iterator[tuple[str, int, int]]:
    """(path, byte, bit) of every flip."""
    for path in disk.paths():
        for byte in range(len(disk.content(path))):
            for bit in range(byte % STRIDE, 8, STRIDE):
                yield path, byte, bit


def judge(store: Store, truths: dict[PartitionId, Truth], what: object) -> bool:
    """Asserts that nothing read is wrong; whether damage showed."""
    shown = False
    for partition_id, truth in truths.items():
        assert store.has_log(partition_id), what
        log = store.partition_log(partition_id)
        assert (log.hard_state.term, log.hard_state.vote) == truth.hard, what
        here = read_all(log, truth, what) | search_all(log, truth, what)
        snapshot = log.latest_snapshot()
        if snapshot is None:
            assert not truth.snapshots or log.quarantined, what
        else:
            assert truth.snapshots[snapshot[0]] == snapshot[1], what
            here |= snapshot[0] != truth.newest_snapshot
        shown |= here
        assert not here or log.quarantined or store.damaged_entries, what
        if not log.quarantined:
            assert log.last_index == len(truth.entries), what
    return shown


def read_all(log: PartitionLog, truth: Truth, what: object) -> bool:
    shown = log.last_index != len(truth.entries)
    for expected in truth.entries:
        if expected.index > log.last_index:
            break
        try:
            found = log.entry(expected.index)
            term = log.term_at(expected.index)
        except LogError:
            assert log.quarantined, what
            shown = True
            continue
        assert found == expected, what
        assert term == expected.term, what
    assert log.last_index <= len(truth.entries), what
    return shown


def search_all(log: PartitionLog, truth: Truth, what: object) -> bool:
    shown = False
    known = [entry for entry in truth.entries if entry.index <= log.last_index]
    for sought in known:
        offset, time_ms = sought.base_offset, sought.time_ms
        by_offset = [e.index for e in known if e.record_count and e.base_offset <= offset]
        by_time = [e.index for e in known if e.time_ms >= time_ms]
        try:
            assert log.locate_offset(Offset(offset)) == by_offset[-1], what
            assert log.locate_time(time_ms) == by_time[0], what
        except LogError:
            shown = True
    return shown


def open_damaged(disk: MemoryDisk, *, read_only: bool) -> Store | None:
    try:
        return open_store(disk, TINY, read_only=read_only, seed=7)
    except LogError:
        return None


@pytest.mark.filterwarnings("ignore")
def test_a_bit_flip_in_any_byte_is_detected_and_nothing_is_read_wrongly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL")
    disk, truths = small_log()
    assert judge(open_store(disk, TINY, read_only=True), truths, "undamaged") is False
    refused = shown = 0

    for what in damages(disk):
        path, byte, bit = what
        content = disk.content(path)
        content[byte] ^= 1 << bit
        store = open_damaged(disk, read_only=True)
        if store is None:
            refused += 1
        elif judge(store, truths, what):
            shown += 1
        content[byte] ^= 1 << bit

    # the others are harmless: zeros, the seal, index items that can be done without
    assert refused > 1000 // STRIDE
    assert shown > 1000 // STRIDE


def test_a_store_opened_on_any_flipped_byte_stays_right_after_the_next_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL")
    disk, truths = small_log()

    for path, byte, bit in damages(disk):
        if bit != byte % STRIDE + STRIDE * (byte % (8 // STRIDE)):
            continue
        damaged = disk.clone()
        damaged.content(path)[byte] ^= 1 << bit
        store = open_damaged(damaged, read_only=False)
        if store is None:
            continue
        judge(store, truths, (path, byte, bit))
        store.close()
        again = open_damaged(damaged.clone(), read_only=False)
        assert again is not None, (path, byte, bit)
        judge(again, truths, (path, byte, bit))


def test_every_truncation_is_detected_and_nothing_is_read_wrongly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL")
    disk, truths = small_log()

    for path in disk.paths():
        for length in range(len(disk.content(path))):
            damaged = disk.clone()
            del damaged.content(path)[length:]
            store = open_damaged(damaged, read_only=False)
            if path.endswith(".wal"):
                assert store is None, (path, length)
            elif store is not None:
                judge(store, truths, (path, length))


def test_a_missing_file_is_detected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")
    disk, truths = small_log()

    for path in disk.paths():
        if path.endswith(".snapshot"):
            continue  # the one before it is as good
        damaged = disk.clone()
        damaged.unlink(path)
        store = open_damaged(damaged, read_only=False)
        if store is not None:
            judge(store, truths, path)


def last_block_damaged(disk: MemoryDisk) -> MemoryDisk:
    newest = max(path for path in disk.paths() if path.endswith(".wal"))
    at = bytes(disk.content(newest)).rfind(b"2.1:")
    disk.content(newest)[at] ^= 1
    return disk


def test_damage_to_the_last_synced_block_is_no_tear_while_the_machine_ran_on() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(2):
        append(group_of(store))
        flush(store)

    with pytest.raises(WalDamaged, match="was synced"):
        open_store(last_block_damaged(disk.clone()))


def test_damage_to_the_last_block_after_a_power_cut_at_once_may_pass_for_a_tear() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(2):
        append(group_of(store))
        flush(store)

    reopened = open_store(last_block_damaged(disk.crash(random.Random(1), keep=0.0)))

    assert reopened.partition_log(GROUP).last_index == 1


def test_damage_to_a_sealed_block_is_no_tear_after_a_power_cut_either() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    for _ in range(2):
        append(group_of(store))
        flush(store)
    before = disk.syncs

    assert seal(store)

    assert disk.syncs == before + 1
    with pytest.raises(WalDamaged, match="was synced"):
        open_store(last_block_damaged(disk.crash(random.Random(1), keep=0.0)))


def test_the_last_block_of_a_full_file_is_sealed_too() -> None:
    sealed = 0
    for size in range(1400, 1800):
        disk = MemoryDisk()
        store = open_store(disk)
        append(group_of(store), 1, 2, size=size)
        flush(store)
        writer = store._writer
        assert writer is not None
        if not writer.roll_needed(store._block_lsn, BLOCK_BYTES) or store.wal_files > 1:
            continue
        assert seal(store)
        assert not seal(store)

        after = disk.crash(random.Random(1), keep=0.0)
        [path] = [path for path in after.paths() if path.endswith(".wal")]
        last = f"{store.partition_log(GROUP).last_index}.2:".encode()
        after.content(path)[bytes(after.content(path)).rfind(last)] ^= 1
        with pytest.raises(WalDamaged, match="was synced"):
            open_store(after)
        append(store.partition_log(GROUP), 1, 3)
        flush(store)
        assert open_store(disk.clone(), seed=3).partition_log(GROUP).last_term == 3
        sealed += 1
    assert sealed == BLOCK_BYTES, "one for each size of the room that is left"


def test_the_same_damage_under_a_seal_is_refused_by_name() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log)
    flush(store)
    assert seal(store)

    newest = disk.paths()[-1]
    at = bytes(disk.content(newest)).rfind(b"1.1:")
    disk.content(newest)[at] ^= 1

    with pytest.raises(WalDamaged, match=newest):
        open_store(disk.clone())
    assert frames(everything(log))


def test_a_log_cut_at_its_damage_is_suspect_and_does_not_wait_for_what_was_never_committed() -> (
    None
):
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store), 12)
    flush(store)
    checkpoint(store)
    store.close()
    open_store(disk).close()  # nothing is left in the write-ahead log
    segment = max(path for path in disk.paths() if path.endswith(".segment"))
    disk.content(segment)[-3] ^= 1

    log = open_store(disk).partition_log(GROUP)
    assert log.last_index == 11
    assert log.damaged == (12, 12)
    assert log.suspect

    log.clear_suspect()  # it has caught up with a leader that holds no entry 12

    assert not log.suspect
    assert not log.quarantined

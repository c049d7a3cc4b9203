"""What a second reading finds: damaged entries by name, indexes put right, no false alarm."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from goqueue.wire.types import Index
from log.disk.memory import MemoryDisk
from log.entry import Entry
from log.errors import WalDamaged
from log.partition.log import PartitionLog
from log.segments.segment import OFFSETS_SUFFIX, SEGMENT_SUFFIX, SUFFIXES, TERMS_SUFFIX, Segment
from log.segments.verify import Findings, mend
from log.store.directory import Store
from tests.unit.log.stores import SMALL, append, checkpoint, everything, flush, group_of, open_store

ENTRIES = 24
CONFIG = replace(SMALL, segment_bytes=1200, index_interval_bytes=200, wal_file_bytes=1 << 14)

Damage = Callable[[bytearray, random.Random], None]


def flip(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def zeros(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    content[at : at + 200] = bytes(len(content[at : at + 200]))


def junk(content: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(content))
    content[at : at + 200] = rng.randbytes(len(content[at : at + 200]))


def cut(content: bytearray, rng: random.Random) -> None:
    del content[rng.randrange(len(content)) :]


DAMAGES: dict[str, Damage] = {"flip": flip, "zeros": zeros, "junk": junk, "cut": cut}


def written() -> tuple[MemoryDisk, Store, PartitionLog]:
    disk = MemoryDisk()
    store = open_store(disk, CONFIG)
    log = group_of(store)
    append(log, ENTRIES, size=80)
    flush(store)
    checkpoint(store)
    assert len(log.disk_segments.chain) >= 3
    return disk, store, log


def verify(log: PartitionLog, segment: Segment, entries: list[Entry] | None = None) -> Findings:
    seen = entries if entries is not None else []
    pass_ = log.disk_segments.verification(segment, segment.last_index, seen.append)
    while pass_.step():
        pass
    return pass_.findings


def damaged(findings: Findings) -> set[int]:
    return {i for first, last in findings.entries for i in range(first, last + 1)}


def test_a_sound_log_gives_no_alarm_and_every_entry_once() -> None:
    _disk, _store, log = written()
    entries: list[Entry] = []
    for segment in log.disk_segments.chain:
        assert not verify(log, segment, entries).any
    assert entries == everything(log)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", sorted(DAMAGES))
def test_all_damage_is_found_and_what_sound_frames_tell_is_put_right(
    suffix: str, kind: str
) -> None:
    for seed in range(40):
        disk, _store, log = written()
        truth = everything(log)
        segment = log.disk_segments.chain[1]
        before = bytes(disk.content(segment.path(suffix)))
        DAMAGES[kind](disk.content(segment.path(suffix)), random.Random(seed))
        if disk.content(segment.path(suffix)) == before:
            continue

        findings = verify(log, segment)
        assert findings.any, seed
        mend(segment, findings)
        repaired = damaged(findings)
        if suffix != SEGMENT_SUFFIX:
            assert not repaired, seed
        for entry in truth:
            if entry.index in repaired:
                assert log.disk_segments.repair((entry,)) == 1, seed

        assert not verify(log, segment).any, seed
        if suffix != OFFSETS_SUFFIX:
            assert disk.content(segment.path(suffix)) == before, seed
        assert everything(log) == truth


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_missing_comes_back(suffix: str) -> None:
    disk, _store, log = written()
    truth = everything(log)
    segment = log.disk_segments.chain[1]
    before = bytes(disk.content(segment.path(suffix)))
    disk.unlink(segment.path(suffix))

    findings = verify(log, segment)
    mend(segment, findings)
    log.disk_segments.forget(segment)
    run = [entry for entry in truth if entry.index in damaged(findings)]
    if run:
        assert len(run) == segment.count
        assert log.disk_segments.repair(run) == len(run)

    assert not verify(log, segment).any
    assert disk.content(segment.path(suffix)) == before
    assert everything(log) == truth


def test_damage_to_both_a_frame_and_its_index_item_costs_no_other_entry() -> None:
    disk, _store, log = written()
    segment = log.disk_segments.chain[1]
    index = segment.first_index + 2
    content = disk.content(segment.path())
    content[segment.end_of(index) - 5] ^= 1
    disk.content(segment.path(TERMS_SUFFIX))[48 + 2 * 16 + 3] ^= 64

    assert damaged(verify(log, segment)) == {index}


def test_the_segment_being_written_is_verified_up_to_what_it_held() -> None:
    disk, store, log = written()
    segment = log.disk_segments.chain[-1]
    entries: list[Entry] = []
    pass_ = log.disk_segments.verification(segment, segment.last_index, entries.append)
    pass_.step()
    held = segment.last_index
    append(log, 1, size=80)
    flush(store)
    while pass_.step():
        pass
    assert not pass_.findings.any
    assert entries[-1].index == held

    generation = log.disk_segments.generation
    log.truncate_from(Index(held))
    flush(store)
    assert log.disk_segments.generation != generation
    assert disk.exists(segment.path())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_deleted_under_the_writer_stops_nothing(suffix: str) -> None:
    disk, store, log = written()
    truth = everything(log)
    segment = log.disk_segments.chain[-1]
    before = segment.count
    disk.unlink(segment.path(suffix))
    log.disk_segments.forget(segment)

    append(log, 1, size=80)
    flush(store)

    assert store.failed is None
    findings = verify(log, segment)
    mend(segment, findings)
    if suffix == SEGMENT_SUFFIX:
        assert damaged(findings) == {segment.first_index + n for n in range(before)}
        run = [entry for entry in truth if entry.index >= segment.first_index]
        assert log.disk_segments.repair(run) == before
    else:
        assert not damaged(findings)
    assert not verify(log, segment).entries
    assert everything(log)[: len(truth)] == truth


# -- the write-ahead log


def check(store: Store) -> None:
    pass_ = store.wal_check()
    assert pass_ is not None
    while pass_.step():
        pass
    pass_.close()


def test_the_write_ahead_log_of_a_running_node_is_verified_and_renewed() -> None:
    rng = random.Random(5)
    for kind, damage in DAMAGES.items():
        disk = MemoryDisk()
        store = open_store(disk, CONFIG)
        log = group_of(store)
        append(log, 6)
        flush(store)
        check(store)
        [path] = [path for path in disk.paths() if path.endswith(".wal")]
        content = disk.content(path)
        part = content[:600] if kind != "cut" else content
        damage(part, rng)
        if kind != "cut":
            content[:600] = part
        with pytest.raises(WalDamaged):
            check(store)

        store.renew_wal(path)
        for _ in range(4):
            flush(store)
            checkpoint(store)

        assert not disk.exists(path), kind
        check(store)
        assert everything(open_store(disk.clone(), CONFIG).partition_log(log.id)) == everything(log)


def test_a_file_of_the_write_ahead_log_that_was_deleted_is_made_good() -> None:
    disk = MemoryDisk()
    store = open_store(disk, CONFIG)
    log = group_of(store)
    append(log, 6)
    flush(store)
    [path] = [path for path in disk.paths() if path.endswith(".wal")]
    disk.unlink(path)
    with pytest.raises(WalDamaged, match="missing"):
        check(store)
    append(log, 1)
    flush(store)

    store.renew_wal(path)
    for _ in range(4):
        flush(store)
        checkpoint(store)

    check(store)
    assert everything(open_store(disk.clone(), CONFIG).partition_log(log.id)) == everything(log)


# -- mending beside the writer


@pytest.mark.parametrize("kept", ["a part of the segment", "nothing of it"])
def test_what_was_found_before_a_truncation_is_not_put_in_the_place_of_other_entries(
    kept: str,
) -> None:
    # given a segment whose term index was damaged, as a scrub has found
    disk, store, log = written()
    segments = log.disk_segments
    segment = segments.chain[-1]
    truth = segment.first_index + 1 if kept == "a part of the segment" else segment.first_index
    content = disk.content(segment.path(TERMS_SUFFIX))
    content[48:] = bytes(len(content) - 48)
    generation = segments.generation
    findings = verify(log, segment)
    assert findings.terms

    # when a truncation comes before it is mended
    before = bytes(disk.content(segment.path(TERMS_SUFFIX)))
    segments.truncate(truth) if kept == "nothing of it" else log.truncate_from(Index(truth))
    append(log, 1, 9, size=80) if kept != "nothing of it" else None
    flush(store)

    # then nothing is written, and a file that has gone stays away
    assert segments.mend(segment, findings, generation) is None
    assert disk.exists(segment.path()) == (kept != "nothing of it")
    if kept != "nothing of it":
        term, crc = segments.identity(truth)
        assert (term, crc) == (9, log.entry(Index(truth)).crc)
        assert bytes(disk.content(segment.path(TERMS_SUFFIX))) != before


def test_mending_and_truncating_wait_for_each_other() -> None:
    disk, _store, log = written()
    segments = log.disk_segments
    segment = segments.chain[-1]
    disk.content(segment.path(TERMS_SUFFIX))[60] ^= 1
    findings = verify(log, segment)
    free: dict[str, bool] = {}

    def look(operation: str, _path: str) -> None:
        free[operation] = segments._replacing.acquire(blocking=False)

    disk.fault = look
    assert segments.mend(segment, findings, segments.generation)
    segments.truncate(segment.first_index)

    assert (free["fdatasync"], free["unlink"]) == (False, False)

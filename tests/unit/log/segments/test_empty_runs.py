"""Searches by offset where most entries hold no records: right whatever was cut, and read once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from goqueue.wire.types import Index, Offset, PartitionId
from log.disk.memory import MemoryDisk
from log.entry import Entry, EntryKind, make_entry
from log.errors import EntryDamaged
from log.segments.index import OffsetIndex
from log.segments.segment import Segment
from tests.unit.log.stores import GROUP, SMALL, flush, open_store

LARGE = replace(SMALL, segment_bytes=1 << 20, segment_time_ms=1 << 40, wal_file_bytes=1 << 20)


def next_entry(log: list[Entry], *, records: bool) -> Entry:
    base = sum(entry.record_count for entry in log)
    return make_entry(
        index=Index(len(log) + 1),
        term=1,
        time_ms=len(log) + 1,
        kind=EntryKind.RECORDS if records else EntryKind.QUEUE,
        base_offset=base if records else 0,
        record_count=2 if records else 0,
        body=b"x" * 30,
    )


def expected(log: list[Entry], offset: int) -> int | None:
    below = (e.index for e in log if e.record_count and e.base_offset <= offset)
    return max(below, default=None)


@pytest.mark.parametrize("seed", range(8))
def test_searches_are_right_whatever_was_appended_cut_and_searched_before(seed: int) -> None:
    rng = random.Random(seed)
    store = open_store(MemoryDisk(), replace(LARGE, segment_bytes=rng.choice((600, 1 << 20))))
    partition_log = store.create_log(GROUP)
    log: list[Entry] = []
    for _ in range(60):
        if log and rng.random() < 0.2:
            index = rng.randint(max(1, len(log) - 20), len(log))
            partition_log.truncate_from(Index(index))
            del log[index - 1 :]
        records = rng.random() < 0.4
        for _ in range(rng.randint(1, 12)):
            entry = next_entry(log, records=records)
            partition_log.append([entry])
            log.append(entry)
        if rng.random() < 0.7:
            flush(store)
        for _ in range(5):
            offset = rng.randint(0, 2 * len(log))
            assert partition_log.locate_offset(Offset(offset)) == expected(log, offset)


def test_a_run_without_records_is_read_by_the_first_search_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = MemoryDisk()
    store = open_store(disk, LARGE)
    partition_log = store.create_log(GROUP)
    log: list[Entry] = []
    for number in range(2000):
        log.append(next_entry(log, records=number < 20))
    partition_log.append(log)
    flush(store)
    [segment] = partition_log.disk_segments.chain
    read: list[int] = []
    frames = segment._frames

    def counted(index: int, position: int, chunk_bytes: int) -> Iterator[Entry]:
        for entry in frames(index, position, chunk_bytes):
            read.append(entry.index)
            yield entry

    monkeypatch.setattr(segment, "_frames", counted)
    assert partition_log.locate_offset(Offset(38)) == 20
    assert len(read) > 1900
    read.clear()

    assert partition_log.locate_offset(Offset(38)) == 20
    assert partition_log.locate_offset(Offset(3)) == 2
    assert len(read) < 60


@pytest.mark.parametrize("records_first", [True, False])
def test_a_search_loads_the_index_of_the_segment_that_it_ends_in_and_of_no_later_one(
    records_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryDisk()
    config = replace(LARGE, segment_bytes=1200)
    store = open_store(disk, config)
    partition_log = store.create_log(GROUP)
    log: list[Entry] = []
    for number in range(400):
        log.append(next_entry(log, records=number % 2 == (0 if records_first else 1)))
    partition_log.append(log)
    flush(store)
    store.close()
    partition_log = open_store(disk, config).partition_log(GROUP)
    segments = partition_log.disk_segments
    assert len(segments.chain) > 20
    loaded: list[int] = []
    load = Segment._load_index

    def counted(segment: Segment) -> OffsetIndex:
        loaded.append(segment.first_index)
        return load(segment)

    monkeypatch.setattr(Segment, "_load_index", counted)
    offset, last = Offset(10), partition_log.spilled_index

    if any(segment.empty_run.lowest is None for segment in segments.chain):
        assert not segments.searches.is_at_hand(offset, 1, last)
        segments.searches.fetch_for_offset(offset, 1, last)  # learns with which records they begin
    loaded.clear()
    segments.chain[0].drop_index()
    assert not segments.searches.is_at_hand(offset, 1, last)
    segments.searches.fetch_for_offset(offset, 1, last)
    assert segments.searches.is_at_hand(offset, 1, last)

    assert partition_log.locate_offset(offset) == expected(log, offset)
    assert loaded == [1]
    segments.searches.fetch_for_time(200, 1, last)
    assert segments.searches.is_time_at_hand(200)
    loaded.clear()
    assert partition_log.locate_time(200) == 200
    assert loaded == []


def test_a_segment_whose_first_records_were_cut_is_searched_for_what_took_their_place() -> None:
    store = open_store(MemoryDisk(), LARGE)
    partition_log = store.create_log(GROUP)
    log = [next_entry([], records=False)]
    partition_log.append(log)
    first = make_entry(
        index=Index(2),
        term=1,
        time_ms=2,
        kind=EntryKind.RECORDS,
        base_offset=100,
        record_count=2,
        body=b"x",
    )
    partition_log.append([first])
    flush(store)
    partition_log.evict(0)
    assert partition_log.locate_offset(Offset(50)) is None
    assert partition_log.disk_segments.chain[0].empty_run.lowest == 100

    partition_log.truncate_from(first.index)
    partition_log.append([next_entry(log, records=True)])
    flush(store)
    partition_log.evict(0)

    assert partition_log.locate_offset(Offset(50)) == first.index


@pytest.mark.parametrize("by_time", [False, True])
def test_a_search_that_meets_damage_tells_which_entry_is_to_be_healed(by_time: bool) -> None:
    disk = MemoryDisk()
    store = open_store(disk, LARGE)
    partition_log = store.create_log(GROUP)
    log: list[Entry] = []
    for number in range(40):
        log.append(next_entry(log, records=number < 20))
    partition_log.append(log)
    flush(store)
    told: list[PartitionId] = []
    store.on_damaged = told.append
    at = partition_log.disk_segments.chain[0]._claimed(30)[0]
    disk.content(f"/data/node/groups/{GROUP}/0000000000000001.segment")[at + 40] ^= 1

    with pytest.raises(EntryDamaged) as raised:
        if by_time:
            partition_log.locate_time(30)
        else:
            partition_log.locate_offset(Offset(38))

    assert (raised.value.data["first"], raised.value.data["last"]) == (30, 30)
    assert (partition_log.damaged, told) == ((30, 30), [GROUP])

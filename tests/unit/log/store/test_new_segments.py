"""Entries with which a segment begins, so that all before them may go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from goqueue.wire.types import Index
from log.disk.memory import MemoryDisk
from log.entry import HAS_NEW_SEGMENT
from log.partition.log import PartitionLog
from tests.unit.log.stores import SMALL, checkpoint, entry, everything, flush, group_of, open_store

BEGIN = (1, 4, 5, 9)
"""Entries that say so; the first one begins a segment all the same."""
END = 12
CONFIG = replace(SMALL, segment_bytes=1 << 20)


def append(log: PartitionLog, index: int) -> None:
    log.append([entry(index, flags=HAS_NEW_SEGMENT if index in BEGIN else 0)])


def firsts(log: PartitionLog) -> list[Index]:
    return [info.first_index for info in log.segments()]


@pytest.mark.parametrize("flushes", [1, 3, END])
def test_a_segment_begins_where_an_entry_says_so_however_it_was_flushed(flushes: int) -> None:
    store = open_store(MemoryDisk(), CONFIG)
    log = group_of(store)
    for index in range(1, END + 1):
        append(log, index)
        if index % flushes == 0:
            flush(store)
    flush(store)

    assert firsts(log) == [*BEGIN]
    assert [found.index for found in everything(log)] == list(range(1, END + 1))


def test_segments_begin_there_again_after_a_truncation_and_after_a_crash() -> None:
    disk = MemoryDisk()
    store = open_store(disk, CONFIG)
    log = group_of(store)
    for index in range(1, END + 1):
        append(log, index)
    flush(store)

    log.truncate_from(Index(4))
    for index in range(4, END + 1):
        append(log, index)
    job = store.take_flush()
    assert job is not None
    job.sync()  # and dies before it is spilled

    after = open_store(MemoryDisk.replay(disk.trace), CONFIG)
    assert firsts(group_of(after)) == [*BEGIN]


def test_all_before_such_an_entry_goes_whatever_size_it_has() -> None:
    store = open_store(MemoryDisk(), CONFIG)
    log = group_of(store)
    for index in range(1, 9):
        append(log, index)
    flush(store)
    append(log, 9)
    flush(store)
    before = log.size_bytes

    log.trim_to(Index(9))
    for index in (9, 10):
        log.save_snapshot(Index(index), b"state").run()
        append(log, index + 1)
        flush(store)
    for _ in range(3):
        checkpoint(store)
        flush(store)

    assert log.first_index == 9
    assert firsts(log) == [9]
    assert log.size_bytes < before

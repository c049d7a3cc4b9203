"""A process is killed, the next one recovers, and then the power goes."""

from __future__ import annotations

import random

import pytest

from goqueue.wire.types import Index
from log.memory_disk import MemoryDisk
from tests.unit.log.stores import (
    append,
    checkpoint,
    everything,
    flush,
    frames,
    group_of,
    open_store,
)


@pytest.mark.parametrize("seed", range(20))
def test_segments_that_a_killed_process_removed_do_not_come_back(seed: int) -> None:
    """Their removal was in the page cache alone when the process died: whoever opens the directory
    next must sync it before it vouches for what it found."""
    disk = MemoryDisk()
    store = open_store(disk)
    log = group_of(store)
    append(log, 6, size=180)
    flush(store)
    checkpoint(store)
    assert [segment.first_index for segment in log.segments()] == [1, 3, 5]
    log.truncate_from(Index(3))
    append(log, 2, term=2)  # small enough for the first segment
    flush(store)
    before = frames(everything(log))
    disk.process_died()

    second = open_store(disk, seed=2)
    assert frames(everything(second.group(log.id))) == before
    disk.process_died()
    after = disk.crash(random.Random(seed), keep=0.5)

    third = open_store(after, seed=3)
    assert third.group(log.id).last_index == 4
    assert frames(everything(third.group(log.id))) == before

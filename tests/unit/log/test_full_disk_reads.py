"""A full disk takes nothing new, and serves what it holds."""

from __future__ import annotations

from goqueue.wire.types import Offset
from log.memory_disk import MemoryDisk
from tests.unit.log.stores import append, flush, group_of, open_store


def test_a_search_does_without_an_index_that_a_full_disk_can_not_renew() -> None:
    disk = MemoryDisk()
    store = open_store(disk)
    append(group_of(store), 400, size=100)
    flush(store)
    store.close()
    store = open_store(disk)
    for segment in group_of(store).disk_segments.chain:
        segment.drop_index()
    for path in disk.paths():
        if path.endswith(".offsets"):
            disk.content(path)[0] ^= 1
    disk.capacity = 0

    assert group_of(store).locate_offset(Offset(150)) == 151

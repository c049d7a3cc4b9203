"""A disk that takes no write serves what it holds."""

from __future__ import annotations

import errno

import pytest

from goqueue.wire.types import Offset
from log.disk.memory import MemoryDisk
from tests.unit.log.stores import append, flush, group_of, open_store


@pytest.mark.parametrize("refused", [errno.ENOSPC, errno.EIO])
def test_a_search_does_without_an_index_that_can_not_be_renewed(refused: int) -> None:
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
    disk.fault = lambda operation, _path: OSError(refused, "") if "write" in operation else None

    assert group_of(store).locate_offset(Offset(150)) == 151

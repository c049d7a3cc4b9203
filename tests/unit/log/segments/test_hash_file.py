"""Search hashes on disk."""

from __future__ import annotations

from array import array

import pytest

from goqueue.wire.types import Index, PartitionId, TopicId
from log.disk.descriptors import Descriptors
from log.disk.memory import MemoryDisk
from log.segments.block_file import Run
from log.segments.hash_file import HashFile, offset_of

GROUP = PartitionId(TopicId(1, 2), 3)
BASE = "/data/0000000000000005"


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories("/data")
    return disk


def file(disk: MemoryDisk) -> HashFile:
    """As it is found when it is opened anew."""
    found = HashFile(Descriptors(disk, 10, write=True), BASE, GROUP, Index(5))
    found.load(100)
    return found


def columns(*of_kind: dict[int, int]) -> list[tuple[array[int], array[int]]]:
    """Of each kind: hash -> offset."""
    kinds = [*of_kind, *[{}] * (3 - len(of_kind))]
    return [(array("I", kind.keys()), array("Q", kind.values())) for kind in kinds]


def told(file: HashFile, kind: int = 0) -> list[tuple[int, int]]:
    """(hash, offset) of all that can be read."""
    found = []
    for block in file.blocks:
        hashes, rows = file.hashes(block, kind), file.rows(block, kind)
        cells = [int.from_bytes(hashes[at : at + 4], "little") for at in range(0, len(hashes), 4)]
        found += [(cell, offset_of(block, rows, row)) for row, cell in enumerate(cells)]
    return found


def test_blocks_follow_each_other_and_are_found_again(disk: MemoryDisk) -> None:
    written = file(disk)
    written.append(Run(5, 9, 1, 77), columns({1: 1000, 2: 1001}, {}, {9: 1001}))
    written.append(Run(10, 12, 1, 78), columns({3: 1002}), partial=0b100)

    found = file(disk)

    assert (found.first_index, found.last_index) == (5, 12)
    assert told(found) == [(1, 1000), (2, 1001), (3, 1002)]
    assert told(found, 2) == [(9, 1001)]
    assert found.blocks[1].run == (10, 12, 1, 78)
    assert [block.is_partial(2) for block in found.blocks] == [False, True]
    assert [block.is_partial(0) for block in found.blocks] == [False, False]
    assert (found.blocks, found.size_bytes) == (written.blocks, written.size_bytes)


def test_offsets_that_lie_far_apart_keep_all_their_bits(disk: MemoryDisk) -> None:
    file(disk).append(Run(5, 5, 1, 7), columns({1: 3, 2: 1 << 40}))

    assert told(file(disk)) == [(1, 3), (2, 1 << 40)]

"""Search hashes on disk: what is torn, damaged or of something else is never believed."""

from __future__ import annotations

from array import array

import pytest

from goqueue.wire.types import GroupId, Index, TopicId
from log.descriptors import Descriptors
from log.errors import Damaged
from log.hash_file import HashFile, Run, offset_of
from log.memory_disk import MemoryDisk

GROUP = GroupId(TopicId(1, 2), 3)
BASE = "/data/0000000000000005"


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories("/data")
    return disk


def file(disk: MemoryDisk, *, group: GroupId = GROUP, last: int = 100) -> HashFile:
    """As it is found when it is opened anew."""
    found = HashFile(Descriptors(disk, 10, write=True), BASE, group, Index(5))
    found.load(last)
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
    assert (found.blocks[1].term, found.blocks[1].crc) == (1, 78)
    assert [block.is_partial(2) for block in found.blocks] == [False, True]
    assert [block.is_partial(0) for block in found.blocks] == [False, False]
    assert (found.blocks, found.size_bytes) == (written.blocks, written.size_bytes)


def test_offsets_that_lie_far_apart_keep_all_their_bits(disk: MemoryDisk) -> None:
    file(disk).append(Run(5, 5, 1, 7), columns({1: 3, 2: 1 << 40}))

    assert told(file(disk)) == [(1, 3), (2, 1 << 40)]


def test_a_block_beyond_what_the_segment_holds_does_not_count(disk: MemoryDisk) -> None:
    written = file(disk)
    written.append(Run(5, 9, 1, 7), columns({1: 1}))
    written.append(Run(10, 12, 1, 7), columns({2: 2}))

    assert file(disk, last=11).last_index == 9
    assert file(disk, last=3).last_index == 4


def test_at_every_length_a_torn_file_gives_whole_blocks_only(disk: MemoryDisk) -> None:
    written = file(disk)
    for number in range(3):
        run = Run(5 + number, 5 + number, 1, 7)
        written.append(run, columns({number: number}, {number: number}))
    ends = [block.end for block in written.blocks]
    whole = disk.clone()

    for length in range(written.size_bytes + 1):
        torn = whole.clone()
        handle = torn.open(BASE + ".hashes", write=True)
        torn.truncate(handle, length)
        torn.close(handle)
        found = file(torn)
        assert len(found.blocks) == sum(end <= length for end in ends), length
        found.append(Run(found.last_index + 1, 9, 1, 7), columns({9: 9}))
        assert told(file(torn))[-1] == (9, 9)


def test_every_flipped_byte_is_met_by_reading_or_ends_the_file(disk: MemoryDisk) -> None:
    written = file(disk)
    for number in range(2):
        run = Run(5 + number, 5 + number, 1, 7)
        written.append(run, columns({number: number}, {number: number}, {number: number}))
    expected = told(written)

    for at in range(written.size_bytes):
        damaged = disk.clone()
        handle = damaged.open(BASE + ".hashes", write=True)
        byte = damaged.pread(handle, 1, at)[0]
        damaged.pwritev(handle, [bytes([byte ^ 0x10])], at)
        damaged.close(handle)
        found = file(damaged)
        if len(found.blocks) == 2:
            with pytest.raises(Damaged):
                for kind in range(3):
                    told(found, kind)
        else:
            assert told(found) == expected[: len(found.blocks)]


def test_the_file_of_another_group_or_segment_is_not_believed(disk: MemoryDisk) -> None:
    file(disk).append(Run(5, 9, 1, 7), columns({1: 1}))

    assert file(disk, group=GroupId(TopicId(1, 2), 4)).blocks == ()


def test_a_file_that_is_removed_begins_anew(disk: MemoryDisk) -> None:
    written = file(disk)
    written.append(Run(5, 9, 1, 7), columns({1: 1}))
    written.remove()
    written.remove()

    assert not disk.exists(BASE + ".hashes")
    written.append(Run(5, 6, 1, 7), columns({2: 2}))
    assert told(file(disk)) == [(2, 2)]


def test_a_file_opened_while_it_is_removed_is_not_written_to_any_more(disk: MemoryDisk) -> None:
    written = file(disk)
    written.append(Run(5, 7, 1, 0xAB), columns({1: 100}))
    unlink = disk.unlink

    def slowly(path: str) -> None:
        with written._files.borrow(path):  # by a look-up
            unlink(path)

    disk.unlink = slowly  # type: ignore[method-assign]
    written.remove()
    written.append(Run(5, 6, 1, 0xAC), columns({2: 200}))

    assert told(file(disk)) == [(2, 200)]

"""Files beside a segment, of either kind: what is torn, damaged or of something else is never
believed."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from goqueue.wire.types import Index, PartitionId, TopicId
from log.disk.descriptors import Descriptors
from log.disk.memory import MemoryDisk
from log.errors import Damaged
from log.segments.block_file import BlockFile, Run
from log.segments.hash_file import KINDS, HashFile, offset_of
from log.segments.message_entry_index import MessageEntryFile

GROUP = PartitionId(TopicId(1, 2), 3)
BASE = "/data/0000000000000005"


@dataclass(frozen=True)
class Kind:
    """How a block with a number in it is written, and how the numbers of a file are read."""

    file: type[BlockFile[Any]]
    append: Callable[[Any, Run, int], None]
    read: Callable[[Any], list[int]]

    def open(
        self, disk: MemoryDisk, *, partition_id: PartitionId = GROUP, last: int = 100
    ) -> BlockFile[Any]:
        """As it is found when it is opened anew."""
        found = self.file(Descriptors(disk, 10, write=True), BASE, partition_id, Index(5))
        found.load(last)
        return found


def _append_hash(file: HashFile, run: Run, number: int) -> None:
    file.append(run, [(array("I", [number]), array("Q", [number]))] * KINDS)


def _hashes(file: HashFile) -> list[int]:
    found = []
    for block in file.blocks:
        read = [(file.hashes(block, kind), file.rows(block, kind)) for kind in range(KINDS)]
        (number,) = {offset_of(block, row, 0) for _, row in read}
        assert {cell for cell, _ in read} == {number.to_bytes(4, "little")}
        found.append(number)
    return found


def _append_message_entry(file: MessageEntryFile, run: Run, number: int) -> None:
    file.append(run, array("Q", [number]), b"%d" % number)


def _mentions(file: MessageEntryFile) -> list[int]:
    found = []
    for block in file.blocks:
        (row,), apart = file.find(block, [(0, 1 << 40)])
        assert apart == b"%d" % row
        found.append(row)
    return found


KINDS_OF_FILE = [
    Kind(HashFile, _append_hash, _hashes),
    Kind(MessageEntryFile, _append_message_entry, _mentions),
]


@pytest.fixture(params=KINDS_OF_FILE, ids=lambda kind: kind.file.suffix)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directories("/data")
    return disk


def test_blocks_follow_each_other_and_are_found_again(kind: Kind, disk: MemoryDisk) -> None:
    written = kind.open(disk)
    kind.append(written, Run(5, 9, 1, 77), 1)
    kind.append(written, Run(10, 12, 1, 78), 2)

    found = kind.open(disk)

    assert (found.first_index, found.last_index) == (5, 12)
    assert kind.read(found) == [1, 2]
    assert found.blocks[1].run == (10, 12, 1, 78)
    assert (found.blocks, found.size_bytes) == (written.blocks, written.size_bytes)


def test_a_block_beyond_what_the_segment_holds_does_not_count(kind: Kind, disk: MemoryDisk) -> None:
    written = kind.open(disk)
    kind.append(written, Run(5, 9, 1, 7), 1)
    kind.append(written, Run(10, 12, 1, 7), 2)

    assert kind.open(disk, last=11).last_index == 9
    assert kind.open(disk, last=3).last_index == 4


def test_at_every_length_a_torn_file_gives_whole_blocks_only(kind: Kind, disk: MemoryDisk) -> None:
    written = kind.open(disk)
    for number in range(3):
        kind.append(written, Run(5 + number, 5 + number, 1, 7), number)
    ends = [block.end for block in written.blocks]
    whole = disk.clone()

    for length in range(written.size_bytes + 1):
        torn = whole.clone()
        handle = torn.open(written.path, write=True)
        torn.truncate(handle, length)
        torn.close(handle)
        found = kind.open(torn)
        assert len(found.blocks) == sum(end <= length for end in ends), length
        kind.append(found, Run(found.last_index + 1, 9, 1, 7), 9)
        assert kind.read(kind.open(torn))[-1] == 9


def test_every_flipped_byte_is_met_by_reading_or_ends_the_file(
    kind: Kind, disk: MemoryDisk
) -> None:
    written = kind.open(disk)
    for number in range(2):
        kind.append(written, Run(5 + number, 5 + number, 1, 7), number)
    expected = kind.read(written)

    for at in range(written.size_bytes):
        damaged = disk.clone()
        handle = damaged.open(written.path, write=True)
        byte = damaged.pread(handle, 1, at)[0]
        damaged.pwritev(handle, [bytes([byte ^ 0x10])], at)
        damaged.close(handle)
        found = kind.open(damaged)
        if len(found.blocks) == 2:
            with pytest.raises(Damaged):
                kind.read(found)
        else:
            assert kind.read(found) == expected[: len(found.blocks)]


def test_the_file_of_another_group_or_segment_is_not_believed(kind: Kind, disk: MemoryDisk) -> None:
    kind.append(kind.open(disk), Run(5, 9, 1, 7), 1)

    assert kind.open(disk, partition_id=PartitionId(TopicId(1, 2), 4)).blocks == ()


def test_a_file_that_is_removed_begins_anew(kind: Kind, disk: MemoryDisk) -> None:
    written = kind.open(disk)
    kind.append(written, Run(5, 9, 1, 7), 1)
    written.remove()
    written.remove()

    assert not disk.exists(written.path)
    kind.append(written, Run(5, 6, 1, 7), 2)
    assert kind.read(kind.open(disk)) == [2]


def test_a_file_opened_while_it_is_removed_is_not_written_to_any_more(
    kind: Kind, disk: MemoryDisk
) -> None:
    written = kind.open(disk)
    kind.append(written, Run(5, 7, 1, 0xAB), 1)
    unlink = disk.unlink

    def slowly(path: str) -> None:
        with written._files.borrow(path):  # by a look-up
            unlink(path)

    disk.unlink = slowly  # type: ignore[method-assign]
    written.remove()
    kind.append(written, Run(5, 6, 1, 0xAC), 2)

    assert kind.read(kind.open(disk)) == [2]


def test_a_file_that_lost_its_name_while_it_was_open_is_not_written_to_any_more(
    kind: Kind, disk: MemoryDisk
) -> None:
    files = Descriptors(disk, 10, write=True)
    kind.append(kind.file(files, BASE, GROUP, Index(5)), Run(5, 7, 1, 0xAB), 1)
    disk.unlink(BASE + kind.file.suffix)

    kind.append(kind.file(files, BASE, GROUP, Index(5)), Run(5, 6, 1, 0xAC), 2)

    assert kind.read(kind.open(disk)) == [2]

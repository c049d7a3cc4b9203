"""What is found in one segment's entries, on disk: made from the segment, and made again from it.

A file `<first index>.<suffix>` stands beside the segment: a header as of the segment's other files,
then blocks, one for a run of entries, appended as the segment grows. A block is its head and its
data. Head, little-endian: magic (4), CRC-32C u32 of what follows in the head, first and last index
u64, term u64 and CRC u32 of the last entry, then what the kind of file wants to know of the data.

Nothing here is synced and nothing depends on it: a block that is torn or damaged ends the file for
those who read it, and what it covered is made again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from crc32c import crc32c

from goqueue.wire.types import Index, PartitionId
from log.disk.descriptors import Descriptors
from log.segments.file_header import FILE_HEADER_BYTES, header_of

_SEAL = struct.Struct("<4sI")


class Run(NamedTuple):
    """What a block is of: its entries, and the last one's term and CRC, which identify it."""

    first_index: int
    last_index: int
    term: int
    crc: int


class Block(Protocol):
    """A block as its head tells of it."""

    @property
    def run(self) -> Run: ...

    @property
    def end(self) -> int:
        """Where its data end in the file."""
        ...


B = TypeVar("B", bound=Block)


class BlockFile(Generic[B]):
    """One segment's file. One thread at a time writes; any reads what was written before.

    A kind of file names itself, says how its heads are packed, and what a block is of one.
    """

    suffix: ClassVar[str]
    magic: ClassVar[bytes]
    format: ClassVar[int] = 1
    block_magic: ClassVar[bytes]
    head: ClassVar[struct.Struct]
    """Of a head, what follows its CRC: the run, and more."""

    def __init__(
        self, files: Descriptors, base: str, partition_id: PartitionId, first_index: Index
    ) -> None:
        self.first_index = first_index
        self.path = base + self.suffix
        self.blocks: tuple[B, ...] = ()
        self.size_bytes = 0
        self._files = files
        self._header = header_of(self.magic, self.format, first_index, partition_id)

    def block(self, run: Run, fields: Sequence[Any], at: int) -> B | None:
        """The block of such a head, whose data begin there; None where that can't be."""
        raise NotImplementedError

    @property
    def last_index(self) -> int:
        """The last entry that is covered; before the first one where none is."""
        return self.blocks[-1].run.last_index if self.blocks else self.first_index - 1

    def load(self, last_index: int) -> None:
        """Take the sound blocks of entries up to this one; the rest of the file counts for nothing.

        Whether they are of the entries that stand in the segment is for the caller to ask.
        """
        self.blocks, self.size_bytes = (), 0
        found: list[B] = []
        head_bytes = _SEAL.size + self.head.size
        try:
            size = self._files.disk.size(self.path)
            with self._files.borrow(self.path) as handle:
                pread = self._files.disk.pread
                if pread(handle, FILE_HEADER_BYTES, 0) != self._header:
                    return
                at, following = FILE_HEADER_BYTES, int(self.first_index)
                while at + head_bytes <= size:
                    block = self._decode(pread(handle, head_bytes, at), at + head_bytes)
                    if block is None or block.run.first_index != following:
                        break
                    if block.end > size or block.run.last_index > last_index:
                        break
                    found.append(block)
                    at, following = block.end, block.run.last_index + 1
        except OSError:
            return
        self.blocks, self.size_bytes = tuple(found), at

    def remove(self) -> None:
        """Deletes the file; one that is gone is no error."""
        self.blocks, self.size_bytes = (), 0
        self._files.forget(self.path)
        with suppress(OSError):
            self._files.disk.unlink(self.path)
        self._files.forget(self.path)  # a reader may have opened it meanwhile

    def _append(self, run: Run, fields: Sequence[int], data: Sequence[bytes]) -> None:
        """Add a block of entries that follow. Raises OSError: nothing was added then."""
        assert run.first_index == self.last_index + 1, "runs follow each other"
        rest = self.head.pack(*run, *fields)
        head = _SEAL.pack(self.block_magic, crc32c(rest)) + rest
        start = self.size_bytes
        if not start:
            self._files.forget(self.path)  # what is open may have lost its name
        with self._files.borrow(self.path, create=True) as handle:
            disk = self._files.disk
            if not start:
                disk.truncate(handle, 0)
                disk.pwritev(handle, [self._header], 0)
                start = FILE_HEADER_BYTES
            disk.pwritev(handle, [head, *data], start)
        block = self._decode(head, start + len(head))
        assert block is not None, "what was just encoded"
        self.blocks, self.size_bytes = (*self.blocks, block), block.end

    def _decode(self, head: bytes, at: int) -> B | None:
        if len(head) != _SEAL.size + self.head.size:
            return None
        magic, crc = _SEAL.unpack_from(head)
        if magic != self.block_magic or crc != crc32c(head[_SEAL.size :]):
            return None
        first, last, term, entry_crc, *fields = self.head.unpack_from(head, _SEAL.size)
        if last < first:
            return None
        return self.block(Run(first, last, term, entry_crc), fields, at)

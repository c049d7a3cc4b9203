"""What a whole replica consists of: the list by which another node copies it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from goqueue.wire.types import Index, PartitionId, Term
from log.segments.file_header import FILE_HEADER_BYTES
from log.segments.segment import OFFSETS_SUFFIX, SEGMENT_SUFFIX, TERM_BYTES, TERMS_SUFFIX


class FileKind(IntEnum):
    """The files of a replica, in the order in which those of one segment are copied."""

    TERMS = 1
    OFFSETS = 2
    SEGMENT = 3
    STATE = 4


SUFFIX_OF = {
    FileKind.TERMS: TERMS_SUFFIX,
    FileKind.OFFSETS: OFFSETS_SUFFIX,
    FileKind.SEGMENT: SEGMENT_SUFFIX,
}


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One file to be copied: the first `size_bytes` of it. `first` is its segment's first index,
    or the state's index; of the state only what follows the file's header is copied."""

    kind: FileKind
    first: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentParts:
    """A segment up to `last_index`, which need not be its end: the last one is being written to.

    Segments of all replicas are equal, byte for byte, and so are their beginnings.
    """

    first_index: Index
    last_index: Index
    segment_bytes: int
    offsets_bytes: int

    @property
    def terms_bytes(self) -> int:
        return FILE_HEADER_BYTES + (self.last_index - self.first_index + 1) * TERM_BYTES

    def parts(self) -> list[Part]:
        parts = [
            Part(FileKind.TERMS, self.first_index, self.terms_bytes),
            Part(FileKind.OFFSETS, self.first_index, self.offsets_bytes),
            Part(FileKind.SEGMENT, self.first_index, self.segment_bytes),
        ]
        return [part for part in parts if part.size_bytes]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A replica up to `last_index`, all of it committed. `base_term` is the term of the entry
    before the first, 0 where unknown or there is none; `snapshot_index` is 0 without a state."""

    partition_id: PartitionId
    first_index: Index
    base_term: int
    last_index: Index
    last_term: Term
    snapshot_index: int
    state_bytes: int
    state_crc: int
    segments: tuple[SegmentParts, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes to be copied by somebody who has nothing."""
        return sum(part.size_bytes for part in self.parts())

    def parts(self) -> list[Part]:
        """The files in the order in which they are copied; the state is the last."""
        parts = [part for segment in self.segments for part in segment.parts()]
        return [*parts, self.state_part()] if self.snapshot_index else parts

    def state_part(self) -> Part:
        return Part(FileKind.STATE, self.snapshot_index, self.state_bytes)

    def problem(self) -> str:
        """Why it describes no replica; empty where it does. It came from another node."""
        after = self.first_index - 1
        if not self.segments:
            return "no segments"
        for segment in self.segments:
            if segment.first_index != after + 1 or segment.last_index < segment.first_index:
                return f"the segment at {segment.first_index} does not follow entry {after}"
            if segment.segment_bytes <= FILE_HEADER_BYTES or segment.offsets_bytes < 0:
                return f"the segment at {segment.first_index} has an impossible length"
            after = segment.last_index
        if after != self.last_index:
            return f"the last segment ends at {after}, not at {self.last_index}"
        if not self.first_index - 1 <= self.snapshot_index <= self.last_index:
            return f"a state of entry {self.snapshot_index} does not fit the log"
        if self.first_index < 1 or min(self.state_bytes, self.base_term, self.last_term) < 0:
            return "a negative number"
        return ""

"""A replica as others copy it: its segments and newest snapshot, kept for as long as that takes."""

from __future__ import annotations

import threading
from typing import Protocol

from crc32c import crc32c

from goqueue.wire.types import Index, Lsn, PartitionId, Term
from log.copy.manifest import SUFFIX_OF, FileKind, Manifest, SegmentParts
from log.disk.files import Disk
from log.errors import Damaged, EntryMissing
from log.segments.chain import PartitionSegments
from log.segments.segment import OFFSETS_SUFFIX
from log.snapshots.file import HEADER_BYTES, newest_snapshot, snapshot_path


class ExportedLog(Protocol):
    """What is asked of the log that is copied: see `log.partition.log.PartitionLog`."""

    id: PartitionId
    first_index: Index
    trim_index: Index
    created_lsn: Lsn
    disk_segments: PartitionSegments

    @property
    def spilled_index(self) -> Index: ...

    def term_at(self, index: Index) -> Term | None: ...


class Export:
    """Made by `PartitionLog.export` on the loop's thread, which pins the log's beginning; `open`,
    `read` and `close` may run on any other, one at a time. Compared by identity."""

    def __init__(self, log: ExportedLog, disk: Disk, committed: Index) -> None:
        self.partition_id = log.id
        self._disk = disk
        self._segments = log.disk_segments
        self._created_lsn = log.created_lsn
        self._first, self._trim = log.first_index, log.trim_index
        self._base_term = log.term_at(Index(log.first_index - 1)) or 0
        self._last = min(committed, log.spilled_index)
        self._manifest: Manifest | None = None
        self._parts: dict[tuple[FileKind, int], int] = {}
        self._state = -1
        self._closing = threading.Lock()

    def open(self) -> Manifest:
        """Looks up what there is to copy; again, the same.

        Raises EntryMissing where too little is in segments yet, OSError, Damaged: also where no
        snapshot that the log continues can be read.
        """
        if self._manifest is None:
            self._manifest = manifest = self._look()
            self._parts = {(part.kind, part.first): part.size_bytes for part in manifest.parts()}
        return self._manifest

    def read(self, kind: FileKind, first: int, offset: int, length: int) -> bytes:
        """Bytes of a part, not beyond its end. Raises EntryMissing for one that is none of the
        manifest's, Damaged where the file is shorter than it was, OSError."""
        size = self._parts.get((kind, first))
        if size is None or not 0 <= offset <= size:
            raise EntryMissing(str(self.partition_id), first, self._first, self._last)
        length = min(length, size - offset)
        if kind == FileKind.STATE:
            data = self._disk.pread(self._state, length, HEADER_BYTES + offset)
        else:
            data = self._segments.read_file(first, SUFFIX_OF[kind], length, offset)
        if len(data) != length:
            raise Damaged(f"{kind.name} {first} of {self.partition_id}", offset, "cut short")
        return data

    def close(self) -> None:
        """Lets go of files; safe to call twice."""
        with self._closing:
            state, self._state = self._state, -1
            self._parts = {}
        if state >= 0:
            self._disk.close(state)

    # -- private

    def _look(self) -> Manifest:
        unread: list[Damaged] = []
        found = newest_snapshot(
            self._disk,
            self._segments.directory,
            self.partition_id,
            self._created_lsn,
            (self._first - 1, self._last),
            unread.append,
        )
        index, state = found or (0, b"")
        if found is None and self._first > 1 and unread:
            raise unread[0]  # else an older one serves as well; it is told when it is needed here
        if self._last < self._first or (found is None and self._first > 1):
            raise EntryMissing(str(self.partition_id), self._last, self._first, self._last)
        if index:
            # The file stays readable through its handle when newer snapshots push it out.
            self._state = self._disk.open(snapshot_path(self._segments.directory, index))
        segments = self._copied(min(self._trim, index + 1))
        first = segments[0].first_index
        base = self._base_term if first == self._first else self._term_before(first)
        return Manifest(
            self.partition_id,
            first,
            base,
            Index(self._last),
            self._term_at(self._last),
            index,
            len(state),
            crc32c(state),
            tuple(segments),
        )

    def _term_at(self, index: int) -> Term:
        """By the entry itself: nothing would tell that the term index is damaged."""
        return self._segments.read(index, index, 1, 1)[0].term

    def _term_before(self, first: int) -> int:
        """0 where that entry can't be read: the copy can do without it."""
        try:
            return self._term_at(first - 1)
        except Damaged:
            return 0

    def _copied(self, needed: int) -> list[SegmentParts]:
        """The segments that hold entries from `needed` on, up to the last."""
        found: list[SegmentParts] = []
        for segment in self._segments.chain:
            last = min(segment.last_index, self._last)
            if last < max(self._first, segment.first_index) or segment.first_index > self._last:
                continue
            if segment.last_index < needed and last != self._last:
                continue
            path = segment.path(OFFSETS_SUFFIX)
            offsets = self._disk.size(path) if self._disk.exists(path) else 0
            end = segment.end_of(last)
            found.append(SegmentParts(segment.first_index, Index(last), end, offsets))
        if not found or found[-1].last_index != self._last:
            raise EntryMissing(str(self.partition_id), self._last, self._first, self._last)
        return found

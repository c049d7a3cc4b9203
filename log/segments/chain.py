"""A group's chain of segments: appended to and truncated by one thread, read by any.

Segments are rolled by what stands in entries alone: their bytes, their log time, and where one says
that a segment begins with it. So all replicas roll at the same entries.
"""

from __future__ import annotations

import errno
import hashlib
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from goqueue.wire.types import Index, PartitionId
from log.config import StorageConfig
from log.disk.descriptors import Descriptors
from log.entry import Entry
from log.errors import Damaged, reraise_other
from log.segments.block_file import BlockFile
from log.segments.counters import LogCounters
from log.segments.incoming import move_in
from log.segments.searches import Searches, segment_of
from log.segments.segment import SEGMENT_SUFFIX, SUFFIXES, TERMS_SUFFIX, Segment
from log.segments.verify import Findings, Verification, mend
from log.wal.install import Install

_HEX = re.compile(r"[0-9a-f]{16}", re.ASCII)
_HASH_CHUNK_BYTES = 1 << 20
F = TypeVar("F", bound=BlockFile[Any])


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What /stats tells of a segment."""

    first_index: Index
    last_index: Index
    size_bytes: int
    sealed: bool


class PartitionSegments:
    """The segments of one group, in first-index order.

    `touched` collects the files and directories that a checkpoint must sync.
    """

    def __init__(
        self, files: Descriptors, directory: str, partition_id: PartitionId, config: StorageConfig
    ) -> None:
        self.directory = directory
        self.chain: tuple[Segment, ...] = ()
        self.counters = LogCounters()
        self.searches = Searches(self)
        self.touched: set[str] = set()
        self.generation = 0
        """Another one whenever bytes that were written may have been replaced by others."""
        self._files = files
        self._partition_id = partition_id
        self._config = config
        self._chain_change = threading.Lock()
        self._replacing = threading.Lock()
        """Held while bytes that were written are replaced: by the writing thread, or by `mend`."""

    @property
    def last_index(self) -> int:
        """The last entry that segments hold, 0 where they hold none."""
        return self.chain[-1].last_index if self.chain else 0

    def owns(self, segment: Segment) -> bool:
        """Whether the segment's files are of this group."""
        return segment.path().startswith(self.directory + "/")

    @property
    def size_bytes(self) -> int:
        return sum(segment.end for segment in self.chain)

    # -- writing

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds entries without syncing them; those already there are passed over."""
        if self.chain and entries and entries[0].index <= self.last_index:
            entries = entries[self.last_index + 1 - entries[0].index :]
        assert not (self.chain and entries) or entries[0].index == self.last_index + 1
        run: list[Entry] = []
        size = 0
        time_ms = 0
        for entry in entries:
            active = self.chain[-1] if self.chain else None
            if not run and active is not None:
                size, time_ms = active.entry_bytes, active.first_time_ms
            fits = active is not None and (
                size == 0
                or (
                    not entry.begins_segment
                    and size + len(entry.frame) <= self._config.segment_bytes
                    and entry.time_ms - time_ms < self._config.segment_time_ms
                )
            )
            if not fits:
                self._write(run)
                run = []
                self._begin(entry.index)
                size = 0
            if size == 0:
                time_ms = entry.time_ms
            size += len(entry.frame)
            run.append(entry)
        self._write(run)

    def truncate(self, index: int) -> None:
        """Drops entries from this index on. Raises OSError, also where damage hides their place."""
        with self._replacing:
            self._truncate(index)

    def _truncate(self, index: int) -> None:
        self.generation += 1
        while self.chain and self.chain[-1].first_index >= index:
            with self._chain_change:
                removed = self.chain[-1]
                self.chain = self.chain[:-1]
            self.touched.add(self.directory + "/")
            removed.remove()
            self.counters.segments_deleted += 1
        if self.chain and self.chain[-1].last_index >= index:
            self._touch(self.chain[-1])
            try:
                self.chain[-1].truncate(index - 1)
            except Damaged as error:  # the next opening scans it, and knows what is left
                raise OSError(errno.EIO, str(error)) from error

    def move_in(self, install: Install) -> None:
        """Lets the files of a copy take the place of what is here; `open` or `install` reads them.

        Unsynced, and repeatable.
        """
        move_in(self._files.disk, self.directory, install, self._files.replaced)
        self.touched.add(self.directory + "/")

    def install(self, install: Install) -> None:
        """As `move_in`, in a chain that is in use. Raises OSError, also where a file is damaged."""
        with self._replacing:
            self._install(install)

    def _install(self, install: Install) -> None:
        self.generation += 1
        self.touched = set()
        self.move_in(install)
        chain = [self._segment(first) for first in install.segments]
        lasts = [*(first - 1 for first in install.segments[1:]), install.last_index]
        try:
            for segment, last in zip(chain, lasts, strict=True):
                segment.adopt(last)
        except Damaged as error:
            raise OSError(errno.EIO, str(error)) from error
        with self._chain_change:
            self.chain = tuple(chain)
        chain[-1].index()
        chain[-1].cut_files()
        self._touch(chain[-1])

    def removable(self, index: int) -> list[Segment]:
        """Sealed segments that hold only entries below this index."""
        return [segment for segment in self.chain[:-1] if segment.last_index < index]

    def remove_below(self, index: int) -> None:
        """Takes segments that hold only entries below this index off the chain; keeps the files.

        May be called beside the writing thread.
        """
        with self._chain_change:
            kept = tuple(s for s in self.chain if s.last_index >= index)
            self.counters.segments_deleted += len(self.chain) - len(kept)
            self.chain = kept

    def remove_all(self) -> None:
        """Deletes the group's directory with all that is in it.

        What a snapshot or a checkpoint on another thread puts there or takes away meanwhile is no
        error: the next opening removes what is left.
        """
        with self._replacing:
            self._remove_all()

    def _remove_all(self) -> None:
        disk = self._files.disk
        self.chain = ()
        for name in disk.list_directory(self.directory):
            path = f"{self.directory}/{name}"
            self._files.replaced(path)
            with suppress(FileNotFoundError):
                disk.unlink(path)
        if disk.exists(self.directory):
            disk.sync_directory(self.directory)
            try:
                disk.remove_directory(self.directory)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise

    # -- opening

    def open(self, first: int, last: int) -> tuple[int, int, int]:
        """Adopts the files as holding `first` to `last`, dropping what lies beyond.

        Returns the last index that the log may go on from, and the damaged range (0, 0 for none).
        Raises NewerFormat.
        """
        found = self._found(first, last)
        if last < first:
            return last, 0, 0
        damaged: list[int] = []
        if not found or found[0].first_index != first:
            damaged += (first, found[0].first_index - 1 if found else last)
        sound = first - 1
        for number, segment in enumerate(found):
            sealed = number + 1 < len(found)
            expected = found[number + 1].first_index - 1 if sealed else last
            sound = self._adopt(segment, expected)
            if sound < expected:
                damaged += (sound + 1, expected)
                segment.first_time_ms = segment.first_time_ms or (
                    found[number - 1].first_time_ms if number else 0
                )
                if sealed:
                    segment.keep_damaged(expected)
        self.chain = tuple(segment for segment in found if segment.count)
        if self.chain and self._files.write:
            self.chain[-1].index()
            self.chain[-1].cut_files()
            self._touch(self.chain[-1])
        if not damaged:
            return sound, 0, 0
        return sound, min(damaged), max(damaged)

    def open_verified(self) -> tuple[int, int]:
        """Scans everything, and keeps the longest sound run from the first segment on.

        Returns its first and last index (1, 0 for none): all that is left without a log.
        """
        found = self._found(0, 1 << 63)
        kept: list[Segment] = []
        for segment in found:
            if kept and segment.first_index != kept[-1].last_index + 1:
                break
            try:
                segment.rebuild(1 << 63, cut=True)
            except Damaged:
                break
            if not segment.count:
                break
            kept.append(segment)
        for segment in found[len(kept) :]:
            segment.remove()
            self.touched.add(self.directory + "/")
        self.chain = tuple(kept)
        if kept:
            kept[-1].index()
            kept[-1].cut_files()
        for segment in kept:
            self._touch(segment)  # the log that would tell what of it is synced is lost
        return (kept[0].first_index, kept[-1].last_index) if kept else (1, 0)

    # -- reading

    def read(self, first: int, last: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Entries of one segment from `first` on. Raises Damaged, also where there is no such."""
        segment = segment_of(self, first)
        entries = segment.read(first, min(last, segment.last_index), max_bytes, max_count)
        self.counters.read_bytes += sum(len(entry.frame) for entry in entries)
        return entries

    def repair(self, entries: Sequence[Entry]) -> int:
        """Replaces damaged entries of one segment; how many, from the first on, are the entries
        that were there. Raises Damaged, OSError."""
        return segment_of(self, entries[0].index).repair(entries)

    def identity(self, index: int) -> tuple[int, int]:
        """(term, CRC) of an entry by the term index, by which any replica can supply it."""
        return segment_of(self, index).identity(index)

    def read_file(self, first_index: int, suffix: str, length: int, offset: int) -> bytes:
        """Bytes of a file of the segment that begins at this index. Raises Damaged, OSError."""
        segment = segment_of(self, first_index)
        if segment.first_index != first_index:
            raise Damaged(self.directory, 0, f"no segment begins at {first_index}")
        with self._files.borrow(segment.path(suffix)) as handle:
            return self._files.disk.pread(handle, length, offset)

    def file_beside(self, kind: type[F], first_index: Index) -> F:
        """The file of this kind beside the segment that begins there."""
        return kind(
            self._files, f"{self.directory}/{first_index:016x}", self._partition_id, first_index
        )

    def files_beside(self, kind: type[BlockFile[Any]]) -> list[Index]:
        """First indexes by which files of this kind are named, also of segments that have gone."""
        names = self._files.disk.list_directory(self.directory)
        found = (name.removesuffix(kind.suffix) for name in names if name.endswith(kind.suffix))
        return [Index(int(name, 16)) for name in found if _HEX.fullmatch(name)]

    @property
    def is_written(self) -> bool:
        """Whether files may be made here."""
        return self._files.write

    def infos(self) -> list[SegmentInfo]:
        chain = self.chain
        return [
            SegmentInfo(
                segment.first_index,
                Index(segment.last_index),
                segment.end,
                segment is not chain[-1],
            )
            for segment in chain
        ]

    def hash(self, first_index: int) -> str:
        """BLAKE2b-128 of a segment's bytes: equal on all replicas once it is sealed."""
        segment = segment_of(self, first_index)
        digest = hashlib.blake2b(digest_size=16)
        with self._files.borrow(segment.path()) as handle:
            for at in range(0, segment.end, _HASH_CHUNK_BYTES):
                length = min(_HASH_CHUNK_BYTES, segment.end - at)
                digest.update(self._files.disk.pread(handle, length, at))
        return digest.hexdigest()

    def lacks_files(self, segment: Segment) -> bool:
        """Whether a file of the segment is missing in the directory."""
        return not all(self._files.disk.exists(path) for path in segment.paths())

    def reattach(self) -> None:
        """Gives files of the segment that is written to their names again: as long as they are open
        here, nothing of them is lost. By the writing thread."""
        if self.chain:
            for suffix in SUFFIXES:
                self.chain[-1].reattach(suffix)
            self.touched.add(self.directory + "/")
            self._touch(self.chain[-1])

    def mend(self, segment: Segment, findings: Findings, generation: int) -> list[str] | None:
        """Puts right what was found while this was the generation; the paths of the files that were
        written, synced. None, and nothing is changed, where entries have been replaced since: what
        was found is of others, and a segment that has gone must not come back.

        From any thread: a truncation that comes meanwhile waits. Raises OSError.
        """
        with self._replacing:
            if self.generation != generation or segment not in self.chain:
                return None
            self.forget(segment)
            return mend(segment, findings)

    def forget(self, segment: Segment) -> None:
        """Closes a segment's files: what stands under their names may be other ones by now."""
        for path in segment.paths():
            self._files.forget(path)

    def verification(
        self, segment: Segment, last_index: int, on_entry: Callable[[Entry], None]
    ) -> Verification:
        """A pass over a segment of the chain, up to an entry that it holds."""
        sealed = segment is not self.chain[-1] if self.chain else False
        return Verification(self._files.disk, segment, last_index, sealed=sealed, on_entry=on_entry)

    # -- private

    def _write(self, run: list[Entry]) -> None:
        if run:
            active = self.chain[-1]
            self._touch(active)  # first: an append that fails may have been made in part
            before = active.end
            active.append(run)
            self.counters.written_bytes += active.end - before

    def _begin(self, index: int) -> None:
        self._files.disk.make_directory(self.directory)
        self.touched.add(self.directory.rpartition("/")[0] + "/")  # once for all groups
        segment = self._segment(index)
        self.touched.add(self.directory + "/")
        segment.begin()
        self.counters.segments_created += 1
        with self._chain_change:
            self.chain = (*self.chain, segment)

    def _touch(self, segment: Segment) -> None:
        self.touched.update(segment.paths()[:2])

    def _segment(self, first_index: int) -> Segment:
        return Segment(
            self._files,
            self.directory,
            self._partition_id,
            Index(first_index),
            self._config.index_interval_bytes,
        )

    def _found(self, first: int, last: int) -> list[Segment]:
        """Segments on disk that may hold entries of the range; others are removed."""
        names = self._files.disk.list_directory(self.directory)
        firsts = sorted(
            int(name.removesuffix(SEGMENT_SUFFIX), 16)
            for name in names
            if name.endswith(SEGMENT_SUFFIX)
        )
        found: list[Segment] = []
        for number, start in enumerate(firsts):
            below = number + 1 < len(firsts) and firsts[number + 1] <= first
            segment = self._segment(start)
            if start <= last and not below:
                found.append(segment)
            elif self._files.write:
                segment.remove()
                self.touched.add(self.directory + "/")
        return [segment for segment in found if segment.first_index >= first]

    def _adopt(self, segment: Segment, expected: int) -> int:
        try:
            segment.adopt(expected)
        except (Damaged, OSError) as error:
            reraise_other(error)
            self.counters.index_rebuilds += 1
            try:
                last = segment.rebuild(expected)
                if last == expected:
                    self.touched.add(segment.path(TERMS_SUFFIX))
                return last
            except (Damaged, OSError) as error:
                reraise_other(error)
                segment.count = 0
        return segment.last_index

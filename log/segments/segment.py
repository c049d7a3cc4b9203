"""One segment: its entries' frames, its term index and its offset index, in three files.

All three begin with a header, of `log.segments.file_header`. The segment then is frames, one after
the other; the term index one item of 16 bytes per entry: position u32, the frame's CRC u32, term
u64. An item is believed only when the frame it leads to confirms it.

One thread writes; any thread reads entries that were written before.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

from goqueue.wire.types import Index, PartitionId
from log.disk.descriptors import Descriptors
from log.entry import HEADER_BYTES, Entry
from log.errors import Damaged, reraise_other
from log.segments.empty_runs import EmptyRun
from log.segments.file_header import FILE_HEADER_BYTES, check_header, header_of
from log.segments.frame_reader import sound_frames
from log.segments.index import ITEM_BYTES, OffsetIndex, encode_item

FORMAT = 1
SEGMENT_SUFFIX = ".segment"
TERMS_SUFFIX = ".terms"
OFFSETS_SUFFIX = ".offsets"
SUFFIXES = (SEGMENT_SUFFIX, TERMS_SUFFIX, OFFSETS_SUFFIX)
_MAGICS = {
    SEGMENT_SUFFIX: b"GQ-SEG\r\n",
    TERMS_SUFFIX: b"GQ-TRM\r\n",
    OFFSETS_SUFFIX: b"GQ-OFS\r\n",
}
TERM = struct.Struct("<IIQ")
"""Of the term index: position, CRC, term."""
TERM_BYTES = TERM.size
RENEWED = ".renewed"
"""Ends the name of a file that is written anew, until it is whole."""
_SCAN_BYTES = 1 << 20
_ENTRY_BYTES = 1 << 12
"""Where one entry is wanted: most are no longer, and less costs no less to read."""


def file_header(suffix: str, first_index: int, partition_id: PartitionId) -> bytes:
    """What one of a segment's files begins with."""
    return header_of(_MAGICS[suffix], FORMAT, first_index, partition_id)


class Segment:
    """Entries `first_index` to `last_index` of a group, in `directory`.

    A new object knows of no entry; `begin`, `adopt` or `rebuild` says what is there.
    """

    def __init__(
        self,
        files: Descriptors,
        directory: str,
        partition_id: PartitionId,
        first_index: Index,
        interval_bytes: int,
    ) -> None:
        self.first_index = first_index
        self.count = 0
        self.end = FILE_HEADER_BYTES
        self.first_time_ms = 0
        self.empty_run = EmptyRun()
        self._files = files
        self._partition_id = partition_id
        self.interval_bytes = interval_bytes
        self._base = f"{directory}/{first_index:016x}"
        self._index: OffsetIndex | None = None
        self._index_load = threading.Lock()
        self._index_end = FILE_HEADER_BYTES

    @property
    def last_index(self) -> int:
        return self.first_index + self.count - 1

    @property
    def entry_bytes(self) -> int:
        """Bytes of frames in it."""
        return self.end - FILE_HEADER_BYTES

    def path(self, suffix: str = SEGMENT_SUFFIX) -> str:
        return self._base + suffix

    def paths(self) -> list[str]:
        return [self._base + suffix for suffix in SUFFIXES]

    # -- writing

    def begin(self) -> None:
        """Creates the three files, empty but for their headers."""
        for suffix in SUFFIXES:
            self._files.replaced(self.path(suffix))
            with self._changing(suffix, create=True) as handle:
                self._files.disk.truncate(handle, 0)
                self._files.disk.pwritev(handle, [self._header(suffix)], 0)
        self._index = OffsetIndex(self.interval_bytes)
        self._index_end = FILE_HEADER_BYTES

    def append(self, entries: Sequence[Entry]) -> None:
        """Adds entries that follow, without syncing; after an OSError it may be repeated."""
        index = self.index()
        if not self.count:
            self._begins_with(entries[0])
        position = self.end
        terms = []
        for entry in entries:
            terms.append(TERM.pack(position, entry.crc, entry.term))
            position += len(entry.frame)
        self._hold_files()
        disk = self._files.disk
        with self._files.written(self.path(SEGMENT_SUFFIX)) as handle:
            disk.pwritev(handle, [b"".join([entry.frame for entry in entries])], self.end)
        with self._files.written(self.path(TERMS_SUFFIX)) as handle:
            disk.pwritev(handle, [b"".join(terms)], self._term_at(self.count))
        self.end = position
        self.count += len(entries)
        items = [item for entry in entries if (item := index.add(entry)) is not None]
        if items:
            with self._files.borrow(self.path(OFFSETS_SUFFIX)) as handle:
                disk.pwritev(handle, [b"".join(map(encode_item, items))], self._index_end)
            self._index_end += len(items) * ITEM_BYTES

    def truncate(self, last_index: int) -> None:
        """Drops entries past this one, which the segment holds, from all three files. Raises
        Damaged where nobody can say where it ends, and nothing has changed then."""
        self._hold_files()
        self.end = self._cut_at(last_index)
        self.count = last_index - self.first_index + 1
        kept = FILE_HEADER_BYTES + self.index().truncate(last_index)
        self._index_end = min(self._index_end, kept)
        self.cut_files()
        self.empty_run.cut()

    def _cut_at(self, last_index: int) -> int:
        """Where the entry ends: by the term index, by where the next one stands, or by a scan."""
        try:
            return self.end_of(last_index)
        except Damaged:
            with suppress(Damaged):
                position, crc, _term = self._term(last_index + 1)
                self._confirmed(last_index + 1, position, crc)
                return position
        position = FILE_HEADER_BYTES
        for entry in self._frames(self.first_index, position, _SCAN_BYTES):
            position += len(entry.frame)
            if entry.index == last_index:
                return position
        raise self._unreadable(last_index, position)

    def cut_files(self) -> None:
        """Makes the files end where the segment does."""
        for suffix, end in self._ends().items():
            with self._changing(suffix) as handle:
                if self._files.disk.size(self.path(suffix)) != end:
                    self._files.disk.truncate(handle, end)

    def _ends(self) -> dict[str, int]:
        ends = (self.end, self._term_at(self.count), self._index_end)
        return dict(zip(SUFFIXES, ends, strict=True))

    def remove(self) -> None:
        """Deletes the files; those already gone are no error."""
        for path in self.paths():
            self._files.replaced(path)
            with suppress(FileNotFoundError):
                self._files.disk.unlink(path)

    # -- opening

    def end_of(self, index: int) -> int:
        """Where in the file the entry ends. Raises Damaged."""
        position, crc, _term = self._term(index)
        return position + len(self._confirmed(index, position, crc).frame)

    def adopt(self, last_index: int) -> None:
        """Takes the files as holding entries up to this one, checking ends and headers only.

        Raises Damaged, naming the file, where they cannot hold that; NewerFormat.
        """
        self.check_header(SEGMENT_SUFFIX)
        self.check_header(TERMS_SUFFIX)
        self.end = self.end_of(last_index)
        head = next(self._frames(self.first_index, FILE_HEADER_BYTES, HEADER_BYTES), None)
        if head is None:
            raise Damaged(self.path(), FILE_HEADER_BYTES, "the first entry is unreadable")
        self._begins_with(head)
        self.count = last_index - self.first_index + 1

    def rebuild(self, last_index: int, *, cut: bool = False) -> int:
        """Scans the segment for entries up to this one; returns the last that is sound.

        The term index is rewritten where all were found, or with `cut`: else it still tells what
        the damaged entries were.
        """
        self.check_header(SEGMENT_SUFFIX)
        terms = []
        self.count, self.end = 0, FILE_HEADER_BYTES
        for entry in self._frames(self.first_index, FILE_HEADER_BYTES, _SCAN_BYTES):
            if entry.index > last_index:
                break
            if not self.count:
                self._begins_with(entry)
            terms.append(TERM.pack(self.end, entry.crc, entry.term))
            self.end += len(entry.frame)
            self.count += 1
        if self._files.write and (cut or self.last_index == last_index):
            with self._changing(TERMS_SUFFIX, create=True) as handle:
                self._files.disk.truncate(handle, 0)
                self._files.disk.pwritev(handle, [self._header(TERMS_SUFFIX), *terms], 0)
        return self.last_index

    def keep_damaged(self, last_index: int) -> None:
        """Goes on with a segment in which entries up to this one are damaged."""
        self.count = last_index - self.first_index + 1
        if self._files.disk.exists(self.path()):
            self.end = self._files.disk.size(self.path())

    def repair(self, entries: Sequence[Entry]) -> int:
        """Puts a replica's copies in place of entries in a row, synced; how many, from the first
        on, are the very entries that were there. Raises Damaged where nobody can say."""
        first = entries[0].index
        start = self._term(first)[0]
        if first == self.last_index and not self._follows(first, start):
            return 0
        position, number = start, 0
        for entry in entries[: self.last_index - first + 1]:
            at, crc, term = self._term(entry.index)
            if (at, crc, term) != (position, entry.crc, entry.term):
                break
            following = position + len(entry.frame)
            if entry.index < self.last_index and self._term(entry.index + 1)[0] != following:
                break
            position, number = following, number + 1
        if number:
            self._put(start, [entry.frame for entry in entries[:number]])
            if position > self.end:
                self.end = position
        return number

    def _follows(self, index: int, position: int) -> bool:
        """Whether an entry that nothing comes after stands where the one before it ends: what tells
        so may be damaged, too. Raises Damaged where nobody can say."""
        if index == self.first_index:
            return position == FILE_HEADER_BYTES
        before = self._term(index - 1)[0]
        for entry in self._frames(index - 1, before, _SCAN_BYTES):
            return before + len(entry.frame) == position
        raise Damaged(self.path(), before, f"entry {index - 1} is unreadable")

    def _put(self, start: int, frames: list[bytes]) -> None:
        """Writes frames over what is damaged, synced. Raises OSError."""
        files, path = self._files, self.path()
        try:
            with files.synced(path), files.borrow(path, create=True) as handle:
                files.disk.pwritev(handle, frames, start)
                files.disk.pwritev(handle, [self._header(SEGMENT_SUFFIX)], 0)
                files.disk.fdatasync(handle)
        finally:
            files.disk.uncache(path)  # whoever reads it next reads the medium

    def rewrite(self, suffix: str, parts: Mapping[int, bytes]) -> None:
        """Puts bytes in their places in a file whose header may be damaged, and syncs it. A file
        that is missing is made anew, of these. Raises OSError."""
        disk, path = self._files.disk, self.path(suffix)
        self._files.forget(path)  # synced, if it was written to
        whole = {0: self._header(suffix), **parts}
        if not disk.exists(path):
            self._renew(suffix, whole)
            disk.sync_directory(path.rpartition("/")[0])
            return
        handle = disk.open(path, write=True)
        try:
            with self._files.synced(path):
                for position, data in whole.items():
                    disk.pwritev(handle, [data], position)
                disk.fdatasync(handle)
        finally:
            disk.close(handle)

    def _changing(self, suffix: str, *, create: bool = False) -> AbstractContextManager[int]:
        """A block that changes one of the files; the offset index is never synced."""
        change = self._files.borrow if suffix == OFFSETS_SUFFIX else self._files.written
        return change(self.path(suffix), create=create)

    def _hold_files(self) -> None:
        """Makes files anew that somebody has deleted: what they held is found missing later, and
        the node goes on meanwhile."""
        for suffix in SUFFIXES:
            path = self._base + suffix
            if self._files.is_open(path):
                continue
            try:
                with self._files.borrow(path):
                    pass
            except FileNotFoundError:
                self.reattach(suffix)

    def reattach(self, suffix: str) -> None:
        """Where the file has lost its name but is open here, makes it anew with all it holds; else
        with what its header says. Raises OSError."""
        disk, path = self._files.disk, self.path(suffix)
        if disk.exists(path):
            return
        data = b""
        with suppress(FileNotFoundError), self._files.borrow(path) as handle:
            data = disk.pread(handle, self._ends()[suffix], 0)
        self._renew(suffix, {0: data or self._header(suffix)})

    def rewrite_offsets(self, items: bytes) -> None:
        """Makes these the whole offset index, of a segment that is not written to any more."""
        self._renew(OFFSETS_SUFFIX, {0: self._header(OFFSETS_SUFFIX) + items})
        self.drop_index()

    def _renew(self, suffix: str, parts: Mapping[int, bytes]) -> None:
        """Another file, of these bytes and synced, gets the name. Raises OSError."""
        disk, path = self._files.disk, self.path(suffix)
        handle = disk.open(path + RENEWED, write=True, create=True)
        try:
            disk.truncate(handle, 0)
            for position, data in parts.items():
                disk.pwritev(handle, [data], position)
            disk.fdatasync(handle)
        finally:
            disk.close(handle)
        disk.rename(path + RENEWED, path)
        self._files.replaced(path)

    def check_header(self, suffix: str) -> None:
        """Raises Damaged or NewerFormat where the file is not this segment's."""
        path = self.path(suffix)
        try:
            with self._files.borrow(path) as handle:
                self._check_header(suffix, handle)
        except FileNotFoundError:
            raise Damaged(path, 0, "the file is missing") from None

    def check_file_header(self, suffix: str) -> None:
        """As `check_header`, of what stands under the name now. Raises FileNotFoundError."""
        handle = self._files.disk.open(self.path(suffix))
        try:
            self._check_header(suffix, handle)
        finally:
            self._files.disk.close(handle)

    def _check_header(self, suffix: str, handle: int) -> None:
        header = self._files.disk.pread(handle, FILE_HEADER_BYTES, 0)
        check_header(header, self._header(suffix), self.path(suffix))

    # -- reading

    def read(self, first: int, last: int, max_bytes: int, max_count: int) -> list[Entry]:
        """Entries from `first` to at most `last`: one at least, then while the bounds allow.

        Raises Damaged where the first one is unreadable; stops before a later one that is.
        """
        position, crc = self._claimed(first)
        entries = self._take(first, position, last, max_bytes, max_count)
        if not entries or entries[0].crc != crc:
            position = self._find(first)
            entries = self._take(first, position, last, max_bytes, max_count)
        if not entries:
            raise self._unreadable(first, position)
        return entries

    def scan(self, first: int, last: int) -> Iterator[Entry]:
        """Entries `first` to `last`, in order. Raises Damaged at the first unreadable one."""
        position, crc = self._claimed(first)
        entry = next(self._frames(first, position, HEADER_BYTES), None) if position else None
        if entry is None or entry.crc != crc:
            position = self._find(first)
        at = first
        for entry in self._frames(first, position, _SCAN_BYTES):
            if at > last:
                return
            yield entry
            at += 1
        if at <= last:
            raise self._unreadable(at, position)

    def identity(self, index: int) -> tuple[int, int]:
        """(term, CRC) that the term index has for an entry, readable or not."""
        _position, crc, term = self._term(index)
        return term, crc

    def index(self) -> OffsetIndex:
        """The offset index, loaded at first use."""
        with self._index_load:
            if self._index is None:
                self._index = self._load_index()
            return self._index

    def drop_index(self) -> None:
        """Frees the offset index's memory; it is loaded again when needed."""
        self._index = None

    @property
    def has_index(self) -> bool:
        """Whether the offset index is in memory."""
        return self._index is not None

    # -- private

    def _begins_with(self, entry: Entry) -> None:
        self.first_time_ms = entry.time_ms
        self.empty_run.begins_with(entry)

    def _load_index(self) -> OffsetIndex:
        path = self.path(OFFSETS_SUFFIX)
        index = OffsetIndex(self.interval_bytes)
        try:
            self.check_header(OFFSETS_SUFFIX)
            with self._files.borrow(path) as handle:
                size = self._files.disk.size(path) - FILE_HEADER_BYTES
                data = self._files.disk.pread(handle, size, FILE_HEADER_BYTES)
            sound = index.load(data, self.first_index, self.last_index)
            self._index_end = FILE_HEADER_BYTES + sound
        except (Damaged, OSError) as error:
            reraise_other(error)
            with suppress(OSError):  # searches do without it, where it can't be written anew
                self._renew_offsets(path)
        return index

    def _renew_offsets(self, path: str) -> None:
        self._index_end = FILE_HEADER_BYTES
        if self._files.write:
            with self._files.borrow(path, create=True) as handle:
                self._files.disk.truncate(handle, 0)
                self._files.disk.pwritev(handle, [self._header(OFFSETS_SUFFIX)], 0)

    def _header(self, suffix: str) -> bytes:
        return file_header(suffix, self.first_index, self._partition_id)

    def _term_at(self, number: int) -> int:
        return FILE_HEADER_BYTES + number * TERM.size

    def _term(self, index: int) -> tuple[int, int, int]:
        path = self.path(TERMS_SUFFIX)
        at = self._term_at(index - self.first_index)
        try:
            with self._files.borrow(path) as handle:
                data = self._files.disk.pread(handle, TERM.size, at)
        except FileNotFoundError:
            raise Damaged(path, 0, "the file is missing") from None
        if len(data) < TERM.size:
            raise Damaged(path, at, f"no term of entry {index}")
        position, crc, term = TERM.unpack(data)
        return position, crc, term

    def _claimed(self, index: int) -> tuple[int, int]:
        """(position, CRC) of an entry according to the term index; (0, 0) where it has none."""
        with suppress(Damaged):
            return self._term(index)[:2]
        return 0, 0

    def _find(self, index: int) -> int:
        """The entry's position, found by a scan. Raises Damaged where the scan does not get there.

        Needed only where the term index is damaged.
        """
        position = FILE_HEADER_BYTES
        for entry in self._frames(self.first_index, position, _SCAN_BYTES):
            if entry.index == index:
                return position
            position += len(entry.frame)
        raise self._unreadable(index, position)

    def _unreadable(self, index: int, position: int) -> Damaged:
        return Damaged(self.path(), position, f"entry {index} is unreadable", (index, index))

    def _take(
        self, first: int, position: int, last: int, max_bytes: int, max_count: int
    ) -> list[Entry]:
        entries: list[Entry] = []
        size = 0
        if position < FILE_HEADER_BYTES:
            return entries
        chunk_bytes = min(max_bytes + HEADER_BYTES, _SCAN_BYTES) if max_count > 1 else _ENTRY_BYTES
        for entry in self._frames(first, position, max(chunk_bytes, _ENTRY_BYTES)):
            size += len(entry.frame)
            if entries and size > max_bytes:
                break
            entries.append(entry)
            if entry.index >= last or len(entries) >= max_count:
                break
        return entries

    def _confirmed(self, index: int, position: int, crc: int) -> Entry:
        entry = next(self._frames(index, position, HEADER_BYTES), None)
        if entry is None or entry.crc != crc:
            raise Damaged(self.path(), position, f"entry {index} is not here or damaged")
        return entry

    def _frames(self, index: int, position: int, chunk_bytes: int) -> Iterator[Entry]:
        return sound_frames(self._files, self.path(), index, position, chunk_bytes)

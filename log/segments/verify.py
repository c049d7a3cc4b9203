"""Reading a segment again, from the medium: which entries are damaged, and which indexes disagree.

The segment's frames are the truth: each has its checksum. The term index says where the next one
begins when a frame is damaged, and which entry that was. What disagrees with sound frames is
written again from them; a damaged frame can only come from another replica.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

from log.disk.files import Disk
from log.entry import FRAME_BYTES_MAX, HEADER_BYTES, Entry, decode_frame, frame_length
from log.errors import Damaged
from log.segments.file_header import FILE_HEADER_BYTES
from log.segments.index import Item, OffsetIndex, encode_item, read_items
from log.segments.segment import (
    OFFSETS_SUFFIX,
    SEGMENT_SUFFIX,
    SUFFIXES,
    TERM,
    TERMS_SUFFIX,
    Segment,
)

STEP_BYTES = 256 << 10
"""Read at a time, so that a throttle has something to hold back."""


@dataclass(slots=True)
class Findings:
    """What was wrong with one segment. `entries` are damaged ranges, in order."""

    entries: list[tuple[int, int]] = field(default_factory=list)
    terms: dict[int, bytes] = field(default_factory=dict)
    """Items of the term index that are to be replaced, by their number."""
    headers: list[str] = field(default_factory=list)
    """Files whose header is damaged, or which are missing, by their suffix."""
    offsets: bytes | None = None
    """What the offset index should hold behind its header, where that is wrong."""

    @property
    def any(self) -> bool:
        return bool(self.entries or self.terms or self.headers or self.offsets is not None)

    def damage(self, index: int) -> None:
        if self.entries and self.entries[-1][1] == index - 1:
            self.entries[-1] = (self.entries[-1][0], index)
        else:
            self.entries.append((index, index))


class Verification:
    """One pass over a segment up to an entry it held when the pass began; on any one thread.

    `on_entry` is given every sound entry in order. Files are opened anew: what a process keeps
    open may not be what stands under the name any more.
    """

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        last_index: int,
        *,
        sealed: bool,
        on_entry: Callable[[Entry], None],
    ) -> None:
        self.segment = segment
        self.last_index = last_index
        self.sealed = sealed
        self.findings = Findings()
        self._disk = disk
        self._on_entry = on_entry
        self._index: int = segment.first_index
        self._position: int | None = FILE_HEADER_BYTES
        self._terms = b""
        self._items: dict[int, Item] = {}
        self._bad_offsets = False
        self._fresh = OffsetIndex(segment.interval_bytes)
        self._fresh_items: list[Item] = []
        self._handle = -1
        self._size = 0
        self._begun = False

    def step(self) -> int:
        """Verifies some more; the bytes read, 0 once all is verified. Raises OSError."""
        if not self._begun:
            self._begun = True
            return self._begin()
        if self._index > self.last_index:
            self._end()
            return 0
        if self._position is None:
            self._lose_entry()
            return 1
        block = self._read(STEP_BYTES, self._position)
        length = frame_length(block)
        if len(block) < length <= FRAME_BYTES_MAX:
            block = self._read(length, self._position)
        return self._take(block)

    def close(self) -> None:
        """Lets go of the file; safe to call twice."""
        if self._handle >= 0:
            self._disk.close(self._handle)
            self._handle = -1

    # -- private

    def _begin(self) -> int:
        read = 0
        for suffix in SUFFIXES:
            path = self.segment.path(suffix)
            try:
                self._disk.uncache(path)
                self.segment.check_file_header(suffix)
            except (FileNotFoundError, Damaged):
                self.findings.headers.append(suffix)
        count = self.last_index - self.segment.first_index + 1
        self._terms = self._content(TERMS_SUFFIX)[: count * TERM.size]
        read += len(self._terms)
        if self.sealed:
            offsets = self._content(OFFSETS_SUFFIX)
            self._items, sound = read_items(offsets, self.segment.first_index, self.last_index)
            bad = sound != len(offsets) or not self._items
            self._bad_offsets = bad or OFFSETS_SUFFIX in self.findings.headers
            read += len(offsets)
        try:
            self._handle = self._disk.open(self.segment.path())
            self._size = self._disk.size(self.segment.path())
        except FileNotFoundError:
            self._position = None
        return read + 1

    def _content(self, suffix: str) -> bytes:
        """A small file's bytes behind its header; none where it can't be read."""
        path = self.segment.path(suffix)
        try:
            handle = self._disk.open(path)
        except FileNotFoundError:
            return b""
        try:
            return self._disk.pread(handle, self._disk.size(path), FILE_HEADER_BYTES)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""
        finally:
            self._disk.close(handle)

    def _read(self, length: int, position: int) -> bytes:
        try:
            return self._disk.pread(self._handle, length, position)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""

    def _take(self, block: bytes) -> int:
        """Verifies the frames of a block that begins with one."""
        assert self._position is not None
        start, at = self._position, 0
        while self._index <= self.last_index:
            length = frame_length(block, at)
            if at and (length == 0 or length > len(block) - at):
                break  # it goes on behind the block
            try:
                entry = decode_frame(block, at)
            except Damaged:
                entry = None
            if entry is None or entry.index != self._index:
                self._lose_entry(block[at : at + HEADER_BYTES])
                return at + HEADER_BYTES
            self._sound(entry, start + at)
            at += length
            self._position = start + at
        return max(1, at)

    def _sound(self, entry: Entry, position: int) -> None:
        number = entry.index - self.segment.first_index
        item = TERM.pack(position, entry.crc, entry.term)
        if self._terms[number * TERM.size : (number + 1) * TERM.size] != item:
            self.findings.terms[number] = item
        fresh = self._fresh.add(entry)
        if fresh is not None:
            self._fresh_items.append(fresh)
        known = self._items.pop(entry.index, None)
        if known is not None and not known.is_of(entry):
            self._bad_offsets = True
        self._on_entry(entry)
        self._index += 1

    def _lose_entry(self, head: bytes = b"") -> None:
        """This entry is damaged; the next one is sought where an index or its length leads to."""
        self.findings.damage(self._index)
        claimed = frame_length(head)
        places = [self._place(self._index + 1)]
        if self._position is not None and HEADER_BYTES <= claimed <= FRAME_BYTES_MAX:
            places.append(self._position + claimed)
        self._index += 1
        self._position = next((place for place in places if self._holds(place)), places[0])

    def _place(self, index: int) -> int | None:
        """Where the term index has an entry; None where it has none, or an impossible one."""
        at = (index - self.segment.first_index) * TERM.size
        item = self._terms[at : at + TERM.size]
        if self._handle < 0 or len(item) < TERM.size or index > self.last_index:
            return None
        position = int(TERM.unpack(item)[0])
        return position if FILE_HEADER_BYTES <= position < self._size else None

    def _holds(self, place: int | None) -> bool:
        """Whether the entry sought, sound, stands there."""
        if place is None or self._index > self.last_index:
            return False
        head = self._read(HEADER_BYTES, place)
        length = frame_length(head)
        if not HEADER_BYTES <= length <= FRAME_BYTES_MAX:
            return False
        try:
            return decode_frame(self._read(length, place)).index == self._index
        except Damaged:
            return False

    def _end(self) -> None:
        self.close()
        whole = not self.findings.entries
        if self.sealed and whole and (self._bad_offsets or self._items):
            self.findings.offsets = b"".join(map(encode_item, self._fresh_items))


def mend(segment: Segment, findings: Findings) -> list[str]:
    """Puts right what sound frames tell; the paths of the files that were written, synced.

    Not for a segment that is written to, where a file of it is missing. Raises OSError.
    """
    written: list[str] = []
    if SEGMENT_SUFFIX in findings.headers and not findings.entries:
        segment.rewrite(SEGMENT_SUFFIX, {})
        written.append(segment.path())
    if findings.terms or TERMS_SUFFIX in findings.headers:
        items = {
            FILE_HEADER_BYTES + number * TERM.size: item for number, item in findings.terms.items()
        }
        segment.rewrite(TERMS_SUFFIX, items)
        written.append(segment.path(TERMS_SUFFIX))
    if findings.offsets is not None:
        segment.rewrite_offsets(findings.offsets)
        written.append(segment.path(OFFSETS_SUFFIX))
    elif OFFSETS_SUFFIX in findings.headers:
        segment.rewrite(OFFSETS_SUFFIX, {})
        written.append(segment.path(OFFSETS_SUFFIX))
    return written

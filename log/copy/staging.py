"""Copied files of a replica on their way: beside the group's own, under names of the copy.

They count for nothing until `PartitionLog.install` says so. After a crash they are found again: a
file that is there in full is verified instead of copied, one that was begun is gone on with.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from crc32c import crc32c

from goqueue.wire.types import PartitionId
from log.copy.manifest import SUFFIX_OF, FileKind, Manifest, Part, SegmentParts
from log.disk.files import Disk
from log.entry import FRAME_BYTES_MAX, HEADER_BYTES
from log.errors import Damaged
from log.segments.incoming import incoming_id, incoming_suffix
from log.segments.segment import OFFSETS_SUFFIX, SEGMENT_SUFFIX, TERM, TERMS_SUFFIX, file_header
from log.snapshots.file import HEADER_BYTES as STATE_AT
from log.snapshots.file import snapshot_header, snapshot_name
from log.wal.install import Install

_BLOCK_BYTES = 1 << 20
_HEAD = struct.Struct("<IIQQ")
"""A frame's length, CRC, index and term."""
_ALIGN = 64 << 10
"""What was written last before a crash may be torn: a file is gone on with from such a border."""


class Staging:
    """The files of one copy. On any thread, one call at a time; all raise OSError."""

    def __init__(
        self, disk: Disk, directory: str, partition_id: PartitionId, created_lsn: int, new_id: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._partition_id = partition_id
        self._created_lsn = created_lsn
        self._id = new_id
        self._suffix = incoming_suffix(new_id)

    def open(self, manifest: Manifest) -> None:
        """Takes over what an earlier attempt has left of this; what is not in the list goes."""
        self._disk.make_directories(self._directory)
        names = self._disk.list_directory(self._directory)
        ids = [id for name in names if (id := incoming_id(name)) is not None]
        if ids:
            self._id = max(ids, key=ids.count)
            self._suffix = incoming_suffix(self._id)
        wanted = {self._name(part): part for part in manifest.parts()}
        for name in names:
            if incoming_id(name) is None:
                continue
            part = wanted.get(name)
            path = f"{self._directory}/{name}"
            fits = part is not None and self._disk.size(path) <= self._length(part)
            again = part is not None and part.kind in (FileKind.OFFSETS, FileKind.STATE)
            if not fits or again:  # these two differ between sources
                self._disk.unlink(path)

    def held(self, part: Part) -> int:
        """From where on the part is still to be copied; its size, where all of it is there."""
        path = self._path(part)
        size = self._disk.size(path) - self._from(part) if self._disk.exists(path) else 0
        return size if size == part.size_bytes else size // _ALIGN * _ALIGN

    def write(self, part: Part, offset: int, data: bytes, *, sync: bool = False) -> None:
        """Puts bytes in their place; what is written of a file has no holes. With `sync` all that
        was written of it goes to the disk now: in small steps, so that syncs of others wait for
        little."""
        handle = self._disk.open(self._path(part), write=True, create=True)
        try:
            self._disk.pwritev(handle, [data], offset + self._from(part))
            if sync:
                self._sync_or_drop(handle, self._path(part))
        finally:
            self._disk.close(handle)

    def check_segment(self, segment: SegmentParts) -> None:
        """Verifies every entry of a segment that is there in full, and syncs its files.

        Raises Damaged, and then they are gone: they are to be copied anew.
        """
        offsets = Part(FileKind.OFFSETS, segment.first_index, 0)
        if not self._disk.exists(self._path(offsets)):
            header = file_header(OFFSETS_SUFFIX, segment.first_index, self._partition_id)
            self.write(offsets, 0, header)
        paths = [self._path(Part(kind, segment.first_index, 0)) for kind in SUFFIX_OF]
        with self._held(paths) as held:
            try:
                self._verify(segment)
            except Damaged:
                self.drop(segment)
                raise
            for path, handle in held.items():
                self._sync_or_drop(handle, path)

    def check_state(self, manifest: Manifest) -> None:
        """Verifies the state, and makes it a snapshot of this very group, synced.

        Raises Damaged, and then it is gone.
        """
        part = manifest.state_part()
        path = self._path(part)
        crc, size = 0, 0
        with self._held([path]) as held:
            for block in self._blocks(path, STATE_AT):
                crc, size = crc32c(block, crc), size + len(block)
            if (size, crc) != (manifest.state_bytes, manifest.state_crc):
                with suppress(FileNotFoundError):
                    self._disk.unlink(path)
                raise Damaged(path, STATE_AT, "not the state that was announced")
            index = manifest.snapshot_index
            header = snapshot_header(
                self._partition_id, self._created_lsn, index, size, self._blocks(path, STATE_AT)
            )
            self._disk.pwritev(held[path], [header], 0)
            self._sync_or_drop(held[path], path)

    def finish(self, manifest: Manifest) -> Install:
        """All was checked: the files' names are synced too, and can be installed."""
        self._disk.sync_directory(self._directory)
        return Install(
            self._id,
            manifest.first_index,
            manifest.base_term,
            manifest.last_index,
            manifest.last_term,
            manifest.snapshot_index,
            tuple(segment.first_index for segment in manifest.segments),
        )

    def remove(self) -> int:
        """Deletes what this and other copies have left; how many files that was."""
        names = self._disk.list_directory(self._directory)
        left = [name for name in names if incoming_id(name) is not None]
        for name in left:
            self._disk.unlink(f"{self._directory}/{name}")
        return len(left)

    def drop(self, segment: SegmentParts) -> None:
        """Deletes what was copied of a segment."""
        for kind in SUFFIX_OF:
            with suppress(FileNotFoundError):
                self._disk.unlink(self._path(Part(kind, segment.first_index, 0)))

    # -- private

    def _name(self, part: Part) -> str:
        if part.kind == FileKind.STATE:
            return snapshot_name(part.first) + self._suffix
        return f"{part.first:016x}{SUFFIX_OF[part.kind]}{self._suffix}"

    def _path(self, part: Part) -> str:
        return f"{self._directory}/{self._name(part)}"

    @staticmethod
    def _from(part: Part) -> int:
        return STATE_AT if part.kind == FileKind.STATE else 0

    def _length(self, part: Part) -> int:
        return part.size_bytes + self._from(part)

    def _verify(self, segment: SegmentParts) -> None:
        """Every frame stands where the term index says, and is the entry that it names."""
        path = self._path(Part(FileKind.SEGMENT, segment.first_index, 0))
        terms = self._read_terms(segment)
        self._check_header(path, SEGMENT_SUFFIX, segment.first_index)
        if self._disk.size(path) != segment.segment_bytes:
            raise Damaged(path, self._disk.size(path), "of another length")
        positions = [position for position, _crc, _term in terms]
        ends = [*positions[1:], segment.segment_bytes]
        handle = self._disk.open(path)
        try:
            verify = _Verifier(path, lambda length, at: self._disk.pread(handle, length, at))
            index, newest = segment.first_index - 1, 0
            for (position, crc, term), end in zip(terms, ends, strict=True):
                index += 1
                if term < newest:
                    raise Damaged(path, position, f"the term of entry {index} goes back")
                newest = term
                verify.entry(position, end, index, term, crc)
        finally:
            self._disk.close(handle)

    def _read_terms(self, segment: SegmentParts) -> list[tuple[int, int, int]]:
        path = self._path(Part(FileKind.TERMS, segment.first_index, 0))
        self._check_header(path, TERMS_SUFFIX, segment.first_index)
        header_bytes = len(file_header(TERMS_SUFFIX, segment.first_index, self._partition_id))
        data = b"".join(self._blocks(path, header_bytes))
        if len(data) + header_bytes != segment.terms_bytes:
            raise Damaged(path, len(data), "of another length")
        terms = list(TERM.iter_unpack(data))
        if terms[0][0] != header_bytes:
            raise Damaged(path, header_bytes, "the first entry is elsewhere")
        return terms

    def _check_header(self, path: str, suffix: str, first_index: int) -> None:
        expected = file_header(suffix, first_index, self._partition_id)
        if next(self._blocks(path, 0, len(expected)), b"") != expected:
            raise Damaged(path, 0, "bad header")

    def _blocks(self, path: str, at: int, size: int = _BLOCK_BYTES) -> Iterator[bytes]:
        """The file's bytes from here on, a block at a time; none where there is no file."""
        if not self._disk.exists(path):
            return
        handle = self._disk.open(path)
        try:
            while block := self._disk.pread(handle, size, at):
                yield block
                at += len(block)
        finally:
            self._disk.close(handle)

    @contextmanager
    def _held(self, paths: Sequence[str]) -> Iterator[dict[str, int]]:
        """Handles of those of these files that are there, open from before they are verified until
        they are synced.

        Their chunks were written by descriptors that are closed. Where one's write-back failed, its
        pages may have left memory with the inode, and then the medium is what is verified; or the
        inode is still there, and stays now, and the sync is told of it. So what was verified is
        what the sync has made durable.
        """
        with ExitStack() as stack:
            held: dict[str, int] = {}
            for path in paths:
                if self._disk.exists(path):
                    held[path] = self._disk.open(path, write=True)
                    stack.callback(self._disk.close, held[path])
            yield held

    def _sync_or_drop(self, handle: int, path: str) -> None:
        """A file whose sync failed goes: what is read of it may be in memory alone, and the next
        attempt would take it for copied."""
        try:
            self._disk.fdatasync(handle)
        except OSError:
            with suppress(OSError):
                self._disk.unlink(path)
            raise


class _Verifier:
    """Reads a segment in large blocks, and judges its frames one by one."""

    def __init__(self, path: str, read: Callable[[int, int], bytes]) -> None:
        self._path = path
        self._read = read
        self._block = memoryview(b"")
        self._at = 0

    def entry(self, position: int, end: int, index: int, term: int, crc: int) -> None:
        """Raises Damaged where this is not the entry, whole."""
        length = end - position
        if not HEADER_BYTES <= length <= FRAME_BYTES_MAX:
            raise Damaged(self._path, position, f"entry {index} has an impossible length")
        if not self._at <= position or end > self._at + len(self._block):
            self._at = position
            self._block = memoryview(self._read(max(_BLOCK_BYTES, length), position))
        start = position - self._at
        frame = self._block[start : start + length]
        stated = _HEAD.unpack_from(frame) if len(frame) == length else None
        if stated != (length, crc, index, term) or crc32c(frame[8:]) != crc:
            raise Damaged(self._path, position, f"entry {index} is damaged")

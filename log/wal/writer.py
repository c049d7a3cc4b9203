"""Writing the log: blocks into preallocated files, a new file when one is full.

Not thread-safe: one flush job at a time writes.

A file that has a successor says so, in a last block of its own (`GOES_ON`), so that a log whose
newest file was deleted is not taken for a whole one. The order of what is synced makes that exact:

1. the previous file, up to its end;
2. the next file with its header, and then its name in the directory;
3. the previous file again, with the block that says that it goes on;
4. blocks of the next file, which is used from here on.

Whatever is cut short, by a kill or a power cut, what is found on disk is one of these:

- Neither the block nor the next file: 3 was not over, so the next file never held a block. The
  previous one is the whole log.
- The next file without the block: 2 was over. The next file may be empty or in use; it is read as
  the end of the log. A reader does not ask for the block where it has the file: logs of 0.1.0 have
  no such blocks.
- The block and the next file: the same.
- The block without the next file: 2 was over, so the file and its name were durable when the block
  was written. Somebody has taken the file away, and with it, for all one knows, terms, votes and
  entries that others were told of: the log is damaged.

So a log that is whole is never taken for damaged, and what was acknowledged from the next file is
never missed in silence: that came after 3, so the block is on disk. A file that stands before a log
that was opened anew needs no block: it is deleted, durably, before the new file is used.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from goqueue.wire.types import Lsn
from log.disk.failed_sync import FailedSync
from log.disk.files import Disk, is_full
from log.wal.format import (
    BLOCK_BYTES,
    GOES_ON,
    PREFIX,
    FileHeader,
    WalState,
    encode_block,
    encode_header,
)

SUFFIX = ".wal"
SPARE = "spare"
NEW = ".new"
TEMPORARY = ".tmp"


@dataclass(frozen=True, slots=True)
class WalFile:
    """A file that is still kept; `end_lsn` is known once the next file exists."""

    path: str
    number: int
    start_lsn: Lsn


def file_path(directory: str, number: int) -> str:
    return f"{directory}/{number:016x}{SUFFIX}"


class WalWriter:
    """The newest file, and room for the next.

    `plan` and `roll_needed` run on the loop's thread, `create` and `write` in jobs.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        file_bytes: int,
        incarnation: int,
        random_u64: Callable[[], int],
    ) -> None:
        self.incarnation = incarnation
        self._disk = disk
        self.directory = directory
        self._file_bytes = file_bytes
        self._random_u64 = random_u64
        self._handle = -1
        self._file_id = 0
        self._start_lsn = 0
        self._header_bytes = 0
        self._unsynced = False
        self._planned: FileHeader | None = None
        self.files: list[WalFile] = []
        """Oldest first; jobs append to it, the loop's thread drops from its front."""

    def plan(self, state: WalState, start_lsn: int, block_bytes: int) -> tuple[FileHeader, bytes]:
        """The next file's header: this state at this LSN, with room for at least one block."""
        number = self._planned.number + 1 if self._planned else self._next_number()
        header = FileHeader(
            self._random_u64(),
            number,
            Lsn(start_lsn),
            self._file_bytes,
            self.incarnation,
            state,
        )
        needed = len(encode_header(header)) + block_bytes + BLOCK_BYTES
        header.file_bytes = max(self._file_bytes, needed)
        self._planned = header
        return header, encode_header(header)

    def roll_needed(self, lsn: int, block_bytes: int) -> bool:
        """Whether a block of this size at this LSN does not fit into the newest planned file, with
        room behind it for the one that says where the log goes on."""
        planned = self._planned
        assert planned is not None
        end = planned.header_bytes + (lsn - planned.start_lsn) + block_bytes + BLOCK_BYTES
        return end > planned.file_bytes

    def create(self, header: FileHeader, encoded: bytes) -> None:
        """Syncs the previous file, makes the next one durable under its name, and notes in the
        previous one that the log goes on there. May be called again where the disk was full."""
        if self._unsynced:
            self.sync()
        path = file_path(self.directory, header.number)
        handle = self._make(path, header, encoded)
        if self._handle >= 0:
            try:
                self._write_empty(header.start_lsn, GOES_ON)
                self._disk.fdatasync(self._handle)
            except BaseException:
                self._disk.close(handle)  # the file holds nothing: another one may replace it
                raise
            self._disk.close(self._handle)
        self._handle = handle
        self._file_id = header.file_id
        self._start_lsn = header.start_lsn
        self._header_bytes = header.header_bytes
        self.files.append(WalFile(path, header.number, header.start_lsn))

    def begin(self, state: WalState, start_lsn: Lsn, payload: bytes) -> Lsn:
        """The first file of a process, and a sealed block in it with these records, if any, which
        is there once the file is; the LSN behind it. Files that were there before are to be retired
        then."""
        if not payload:
            self.create(*self.plan(state, start_lsn, 0))
            return start_lsn
        end_lsn = Lsn(start_lsn + BLOCK_BYTES + len(payload))
        header, encoded = self.plan(state, start_lsn, end_lsn - start_lsn)
        block = encode_block(header.file_id, start_lsn, start_lsn, payload)
        seal = encode_block(header.file_id, end_lsn, end_lsn, b"")
        self.create(header, b"".join((encoded, block, payload, seal)))
        return end_lsn

    def _make(self, path: str, header: FileHeader, encoded: bytes) -> int:
        """A handle of a new file with this header, durable under its name."""
        disk = self._disk
        new = path + NEW
        self._claim_spare(new)
        handle = disk.open(new, write=True, create=True)
        try:
            if disk.size(new) != header.file_bytes:
                disk.preallocate(handle, header.file_bytes)
            disk.pwritev(handle, [encoded], 0)
            disk.fdatasync(handle)
            disk.rename(new, path)
            disk.sync_directory(self.directory)
        except BaseException as error:
            disk.close(handle)
            if is_full(error):
                self._discard(new)  # half a file is of no use, and takes room
            raise
        return handle

    def write(self, lsn: int, synced_lsn: int, payload: bytes) -> None:
        """One block at its place; durable after `sync`."""
        block = encode_block(self._file_id, lsn, max(synced_lsn, self._start_lsn), payload)
        position = self._header_bytes + lsn - self._start_lsn
        assert position >= PREFIX.size
        self._unsynced = True
        self._disk.pwritev(self._handle, (block, payload), position)

    def sync(self) -> None:
        """Everything written survives a power cut."""
        self._disk.fdatasync(self._handle)
        self._unsynced = False

    def vouch(self, lsn: int) -> None:
        """Behind what was just synced, an empty block that says so, unsynced: the next one takes
        its place. While the machine runs, damage to the last block can't pass for a tear."""
        self._write_empty(lsn)

    def note_failure(self) -> None:
        """What was written since the last sync may be lost, though the machine runs on."""
        FailedSync(self._disk, self.directory.rpartition("/")[0]).note()

    def prepare_spare(self) -> None:
        """Allocates the next file ahead of need; called off the writer's path.

        Raises OSError, and leaves nothing then: where `is_full`, or the sync of a file that nobody
        has used failed for want of room, it may be tried again.
        """
        spare = f"{self.directory}/{SPARE}"
        if self._disk.exists(spare):
            return
        temporary = spare + TEMPORARY
        handle = self._disk.open(temporary, write=True, create=True)
        try:
            self._disk.preallocate(handle, self._file_bytes)
            self._disk.fdatasync(handle)
        except OSError:
            self._discard(temporary)
            raise
        finally:
            self._disk.close(handle)
        self._disk.rename(temporary, spare)

    def retire(self, file: WalFile) -> None:
        """Lets an old file go, durably. Where there is no spare it becomes that: so a log that is
        checkpointed goes round on a full disk, too. Raises OSError."""
        disk, spare = self._disk, f"{self.directory}/{SPARE}"
        if not disk.exists(file.path):
            return  # somebody has deleted it before
        temporary = spare + TEMPORARY
        fits = not disk.exists(spare) and disk.size(file.path) == self._file_bytes
        if fits:
            disk.rename(file.path, temporary)
        else:
            disk.unlink(file.path)
        disk.sync_directory(self.directory)  # before another file's header is written into it
        if fits:
            disk.rename(temporary, spare)

    def _write_empty(self, lsn: int, flags: int = 0) -> None:
        """A block that takes no LSN, and knows all before it synced; `roll_needed` keeps room."""
        position = self._header_bytes + lsn - self._start_lsn
        block = encode_block(self._file_id, lsn, lsn, b"", flags)
        self._disk.pwritev(self._handle, (block,), position)

    def _discard(self, path: str) -> None:
        with suppress(OSError):
            self._disk.unlink(path)

    def _claim_spare(self, new: str) -> None:
        try:
            self._disk.rename(f"{self.directory}/{SPARE}", new)
        except FileNotFoundError:
            return

    def close(self) -> None:
        if self._handle >= 0:
            self._disk.close(self._handle)
            self._handle = -1

    def _next_number(self) -> int:
        return self.files[-1].number + 1 if self.files else 1

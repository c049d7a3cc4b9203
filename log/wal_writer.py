"""Writing the log: blocks into preallocated files, a new file when one is full.

Not thread-safe: one flush job at a time writes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from goqueue.wire.types import Lsn
from log.disk import Disk, is_full
from log.failed_sync import FailedSync
from log.wal import (
    BLOCK_BYTES,
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
        needed = len(encode_header(header)) + block_bytes
        header.file_bytes = max(self._file_bytes, needed)
        self._planned = header
        return header, encode_header(header)

    def roll_needed(self, lsn: int, block_bytes: int) -> bool:
        """Whether a block of this size at this LSN does not fit into the newest planned file."""
        planned = self._planned
        assert planned is not None
        end = planned.header_bytes + (lsn - planned.start_lsn) + block_bytes
        return end > planned.file_bytes

    def create(self, header: FileHeader, encoded: bytes) -> None:
        """Syncs the previous file, then makes the next one durable under its name."""
        disk = self._disk
        if self._handle >= 0:
            if self._unsynced:
                disk.fdatasync(self._handle)
            disk.close(self._handle)
            self._handle = -1
        path = file_path(self.directory, header.number)
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
        self._handle = handle
        self._file_id = header.file_id
        self._start_lsn = header.start_lsn
        self._header_bytes = header.header_bytes
        self._unsynced = False
        self.files.append(WalFile(path, header.number, header.start_lsn))

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
        position = self._header_bytes + lsn - self._start_lsn
        if position + BLOCK_BYTES <= self._file_bytes:
            block = encode_block(self._file_id, lsn, lsn, b"")
            self._disk.pwritev(self._handle, (block,), position)

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


def block_size(payload_bytes: int) -> int:
    """What a block of this payload takes in the log."""
    return BLOCK_BYTES + payload_bytes

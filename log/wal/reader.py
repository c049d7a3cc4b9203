"""Reading the log back: every record in LSN order, torn tails told from damage.

A bad block is damage where a later file's header or a later valid block shows that it had been
synced; otherwise the power went while it was written, nothing of it was ever acknowledged, and the
log ends before it. A last file that says that the log went on in another one is damage as well.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass

from goqueue.wire.types import Lsn
from log.disk.files import Disk
from log.errors import WalDamaged
from log.wal.format import (
    BLOCK_BYTES,
    FILE_ID_AT,
    FileHeader,
    Record,
    decode_header,
    goes_on,
    read_block,
    records,
)
from log.wal.writer import SUFFIX, WalFile, file_path

READ_TRIES = 5
"""Of a file, with a pause between; a medium that refuses for longer is damaged."""


@dataclass(slots=True)
class LoadedFile:
    """A file of the log, as it was read."""

    path: str
    data: bytes
    header: FileHeader

    def position(self, lsn: int) -> int:
        """Where in it the block of this LSN stands."""
        return self.header.header_bytes + lsn - self.header.start_lsn


@dataclass(slots=True)
class WalImage:
    """What is on disk: its files, oldest first, and the LSN at which the next file begins.

    Of the last one, only what lies before `known_lsn` was known synced by who wrote the rest.
    """

    files: list[WalFile]
    last: LoadedFile
    known_lsn: Lsn
    end_lsn: Lsn

    @property
    def incarnation(self) -> int:
        return self.last.header.incarnation


def read_wal(
    disk: Disk,
    directory: str,
    on_header: Callable[[FileHeader], None],
    on_record: Callable[[Record], None],
) -> WalImage | None:
    """Reads every file; None where there is none. Raises WalDamaged or NewerFormat by name."""
    numbers = _numbers(disk, directory)
    if not numbers:
        return None
    paths = [file_path(directory, number) for number in numbers]
    files: list[WalFile] = []
    current = _load(disk, paths[0], numbers[0])
    while True:
        following = None
        if len(files) + 1 < len(numbers):
            number = numbers[len(files) + 1]
            following = _load(disk, paths[len(files) + 1], number)
            if number != numbers[len(files)] + 1:
                raise WalDamaged(file_path(directory, number - 1), 0, "the file is missing")
        header = current.header
        files.append(WalFile(current.path, header.number, header.start_lsn))
        on_header(header)
        limit = following.header.start_lsn if following else None
        known_lsn, end_lsn = _read_blocks(disk, current, limit, on_record)
        if following is None:
            return WalImage(files, current, known_lsn, end_lsn)
        current = following


def _numbers(disk: Disk, directory: str) -> list[int]:
    names = (name for name in disk.list_directory(directory) if name.endswith(SUFFIX))
    return sorted(int(name.removesuffix(SUFFIX), 16) for name in names)


def _load(disk: Disk, path: str, number: int) -> LoadedFile:
    handle = disk.open(path)
    try:
        data = _read(disk, handle, path)
    finally:
        disk.close(handle)
    header = decode_header(data, path)
    if header.number != number:
        raise WalDamaged(path, 0, f"holds file number {header.number}")
    if len(data) < header.file_bytes:
        raise WalDamaged(path, len(data), f"shorter than the {header.file_bytes} allocated")
    return LoadedFile(path, data, header)


def _read(disk: Disk, handle: int, path: str) -> bytes:
    """The file, asked for more than once: not every refusal of a medium is its last word."""
    for last in (False,) * (READ_TRIES - 1) + (True,):
        try:
            return disk.pread(handle, disk.size(path), 0)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            if last:
                raise WalDamaged(path, 0, "the medium can't be read") from error
            disk.pause()
    raise AssertionError("unreachable")


def _read_blocks(
    disk: Disk, file: LoadedFile, limit: Lsn | None, on_record: Callable[[Record], None]
) -> tuple[Lsn, Lsn]:
    """The LSN up to which blocks say that all was synced, and the one at which they end."""
    header = file.header
    view = memoryview(file.data)
    lsn: int = header.start_lsn
    known = lsn
    at = header.header_bytes
    while limit is None or lsn < limit:
        block = read_block(view, at, header.file_id, lsn)
        if block is None:
            if limit is not None:
                raise WalDamaged(file.path, at, f"blocks up to LSN {limit} were synced")
            _refuse_damage(file, at, lsn)
            break
        if limit is None and goes_on(view, at):
            following = file_path(file.path.rpartition("/")[0], header.number + 1)
            if not disk.exists(following):  # else whoever writes has begun it since we looked
                raise WalDamaged(following, 0, "the file is missing")
        length, synced = block
        known = max(known, synced)
        body = at + BLOCK_BYTES
        for record in records(view[body : body + length], lsn + BLOCK_BYTES):
            on_record(record)
        at = body + length
        lsn += BLOCK_BYTES + length
    if limit is not None and lsn != limit:
        raise WalDamaged(file.path, at, f"the next file begins at LSN {limit}")
    return Lsn(known), Lsn(lsn)


def _refuse_damage(file: LoadedFile, bad_at: int, bad_lsn: int) -> None:
    """Raises WalDamaged where a later valid block knew the bad one synced."""
    view = memoryview(file.data)
    header = file.header
    wanted = header.file_id.to_bytes(8, "little")  # blocks of the file's former lives have others
    found = bad_at + FILE_ID_AT
    while (found := file.data.find(wanted, found + 1)) >= 0:
        at = found - FILE_ID_AT
        lsn = header.start_lsn + at - header.header_bytes
        block = read_block(view, at, header.file_id, lsn)
        if block is not None and block[1] > bad_lsn:
            raise WalDamaged(file.path, bad_at, f"LSN {bad_lsn} was synced, its block is bad")

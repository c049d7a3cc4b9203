"""Local snapshots of a group's state machine: one checksummed file each, the newest few kept.

File: magic (8), CRC-32C u32 of all that follows, format u16, zero u16, index u64, the group's
creation LSN u64, group id (20), length u64; then the state. Written aside, synced, renamed, and
the directory synced.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from crc32c import crc32c

from goqueue.wire.types import Index, PartitionId
from log.disk.files import Disk
from log.errors import Damaged, NewerFormat

FORMAT = 1
SUFFIX = ".snapshot"
_MAGIC = b"GQ-SNP\r\n"
_TEMPORARY = ".tmp"
_PREFIX = struct.Struct("<8sI")
_REST = struct.Struct("<HHQQ20sQ")
HEADER_BYTES = _PREFIX.size + _REST.size


@dataclass(slots=True)
class SnapshotJob:
    """A snapshot to be written; `run` on any thread. After a crash it is there whole or not."""

    disk: Disk
    directory: str
    partition_id: PartitionId
    created_lsn: int
    index: Index
    state: bytes | Callable[[], bytes]
    """Or what encodes it, called once, when the job runs."""
    kept: int
    on_saved: Callable[[list[int]], None]
    """Told, on that thread, the indexes of the snapshots now kept."""

    def run(self) -> int:
        """The bytes written. Raises OSError, and then the snapshots there were are all still
        there."""
        disk = self.disk
        disk.make_directories(self.directory)
        state = self.state if isinstance(self.state, bytes) else self.state()
        path = snapshot_path(self.directory, self.index)
        header = snapshot_header(
            self.partition_id, self.created_lsn, self.index, len(state), (state,)
        )
        handle = disk.open(path + _TEMPORARY, write=True, create=True)
        try:
            disk.truncate(handle, 0)
            disk.pwritev(handle, (header, state), 0)
            disk.fdatasync(handle)
        except OSError:
            with suppress(OSError):  # half a snapshot is of no use, and takes room
                disk.unlink(path + _TEMPORARY)
            raise
        finally:
            disk.close(handle)
        disk.rename(path + _TEMPORARY, path)
        disk.sync_directory(self.directory)
        indexes = snapshot_indexes(disk, self.directory)
        for index in indexes[: -self.kept]:
            disk.unlink(snapshot_path(self.directory, index))
        self.on_saved(indexes[-self.kept :])
        return len(header) + len(state)


def snapshot_name(index: int) -> str:
    return f"{index:016x}{SUFFIX}"


def snapshot_path(directory: str, index: int) -> str:
    return f"{directory}/{snapshot_name(index)}"


def snapshot_indexes(disk: Disk, directory: str) -> list[int]:
    """The indexes of all snapshots there, sound or not, oldest first."""
    return sorted(
        int(name.removesuffix(SUFFIX), 16)
        for name in disk.list_directory(directory)
        if name.endswith(SUFFIX)
    )


def read_snapshot(
    disk: Disk, directory: str, partition_id: PartitionId, created_lsn: int, index: int
) -> bytes:
    """The state in a snapshot. Raises Damaged or NewerFormat, naming the file."""
    path = snapshot_path(directory, index)
    stated, state = _load(disk, path)
    if stated != (index, created_lsn, partition_id.pack()):
        raise Damaged(path, 0, "holds another snapshot")
    return state


def newest_snapshot(
    disk: Disk,
    directory: str,
    partition_id: PartitionId,
    created_lsn: int,
    within: tuple[int, int],
    on_damaged: Callable[[Damaged], None],
) -> tuple[int, bytes] | None:
    """The newest sound snapshot of an entry in this range, and its state."""
    first, last = within
    for index in reversed(snapshot_indexes(disk, directory)):
        if not first <= index <= last:
            continue
        try:
            return index, read_snapshot(disk, directory, partition_id, created_lsn, index)
        except Damaged as error:
            on_damaged(error)
    return None


def newest_creation(disk: Disk, directory: str) -> int:
    """The creation LSN that the newest sound snapshot states; 0 where there is none."""
    for index in reversed(snapshot_indexes(disk, directory)):
        try:
            stated, _state = _load(disk, snapshot_path(directory, index))
        except Damaged:
            continue
        return stated[1]
    return 0


def remove_foreign_snapshots(disk: Disk, directory: str, created_lsn: int) -> None:
    """Deletes sound snapshots of an earlier group of the same id; damaged ones stay, to be told."""
    for index in snapshot_indexes(disk, directory):
        path = snapshot_path(directory, index)
        try:
            stated, _state = _load(disk, path)
        except Damaged:
            continue
        if stated[1] != created_lsn:
            disk.unlink(path)
            disk.sync_directory(directory)


def remove_snapshots_beyond(disk: Disk, directory: str, first_index: int, last_index: int) -> None:
    """Deletes snapshots of entries that the log has lost: other ones may take their places.

    They stay where nothing else is left to begin from: then the group cannot start, and says so.
    """
    indexes = snapshot_indexes(disk, directory)
    beyond = [index for index in indexes if index > last_index]
    usable = any(first_index - 1 <= index <= last_index for index in indexes)
    if not beyond or not (usable or first_index == 1):
        return
    for index in beyond:
        disk.unlink(snapshot_path(directory, index))
    disk.sync_directory(directory)


def snapshot_header(
    partition_id: PartitionId, created_lsn: int, index: int, length: int, state: Iterable[bytes]
) -> bytes:
    """What stands before the state, given in blocks, in its file."""
    rest = _REST.pack(FORMAT, 0, index, created_lsn, partition_id.pack(), length)
    crc = crc32c(rest)
    for block in state:
        crc = crc32c(block, crc)
    return _PREFIX.pack(_MAGIC, crc) + rest


def _load(disk: Disk, path: str) -> tuple[tuple[int, int, bytes], bytes]:
    """(index, creation LSN, packed group id) as stated, and the state."""
    handle = disk.open(path)
    try:
        data = disk.pread(handle, disk.size(path), 0)
    finally:
        disk.close(handle)
    if len(data) < HEADER_BYTES:
        raise Damaged(path, 0, "cut short")
    magic, crc = _PREFIX.unpack_from(data)
    version, _zero, index, created_lsn, partition, length = _REST.unpack_from(data, _PREFIX.size)
    if magic != _MAGIC or crc32c(memoryview(data)[_PREFIX.size :]) != crc:
        raise Damaged(path, 0, "checksum mismatch")
    if version > FORMAT:
        raise NewerFormat(path, version, FORMAT)
    if length != len(data) - HEADER_BYTES:
        raise Damaged(path, 0, "of another length")
    return (index, created_lsn, partition), data[HEADER_BYTES:]

"""The local snapshots of one group: which there are, and the newest that is sound."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from goqueue.wire.types import Index, PartitionId
from log.disk.files import Disk
from log.errors import Damaged
from log.snapshots.file import (
    SnapshotJob,
    newest_snapshot,
    read_snapshot,
    snapshot_indexes,
    snapshot_path,
)
from log.wal.install import Install


class Snapshots:
    """`kept` of them, the older ones to fall back to."""

    def __init__(self, disk: Disk, directory: str, partition_id: PartitionId, kept: int) -> None:
        self._disk = disk
        self._directory = directory
        self._partition_id = partition_id
        self._kept = kept
        self._indexes: list[int] = []

    @property
    def indexes(self) -> list[int]:
        """The entries after which there is one, oldest first."""
        return list(self._indexes)

    def look(self) -> None:
        """Takes notice of what the directory holds."""
        self._indexes = snapshot_indexes(self._disk, self._directory)

    def save(
        self, created_lsn: int, index: Index, state: bytes | Callable[[], bytes]
    ) -> SnapshotJob:
        """A job that writes one."""
        return SnapshotJob(
            self._disk,
            self._directory,
            self._partition_id,
            created_lsn,
            index,
            state,
            self._kept,
            self._saved,
        )

    def newest(
        self,
        created_lsn: int,
        within: tuple[int, int],
        on_damaged: Callable[[Damaged], None],
    ) -> tuple[int, bytes] | None:
        """The newest sound one of an entry in this range, and its state."""
        return newest_snapshot(
            self._disk, self._directory, self._partition_id, created_lsn, within, on_damaged
        )

    def passed(self, last_index: int) -> int:
        """The entry behind the oldest one that the log continues; 0 where there is none."""
        kept = [index for index in self._indexes if index <= last_index]
        return kept[0] + 1 if kept else 0

    def installed(self, install: Install) -> None:
        """A copy took the log's place, with its own snapshot."""
        kept = {index for index in self._indexes if index >= install.first_index - 1}
        self._indexes = sorted(kept | {install.snapshot_index} - {0})

    def verify(self, created_lsn: int, index: int) -> int:
        """Reads one from the medium; its bytes. On any thread. Raises Damaged, naming the file."""
        path = snapshot_path(self._directory, index)
        try:
            self._disk.uncache(path)
            return len(
                read_snapshot(self._disk, self._directory, self._partition_id, created_lsn, index)
            )
        except FileNotFoundError:
            if index in self._indexes:
                raise Damaged(path, 0, "the file is missing") from None
            return 0  # a newer one has pushed it out meanwhile

    def discard(self, index: int) -> None:
        """Deletes a damaged one, once a newer one is there or the log begins at its entry 1."""
        with suppress(FileNotFoundError):
            self._disk.unlink(snapshot_path(self._directory, index))
            self._disk.sync_directory(self._directory)
        self._indexes = [known for known in self._indexes if known != index]

    def _saved(self, indexes: list[int]) -> None:
        self._indexes = indexes

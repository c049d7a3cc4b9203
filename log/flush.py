"""A flush: everything appended so far, on its way to the disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from goqueue.wire.types import Lsn
from log.wal import FileHeader
from log.wal_writer import WalWriter


@dataclass(slots=True)
class FlushJob:
    """One block of the write-ahead log. `sync` and then `spill` run on any one thread."""

    writer: WalWriter
    lsn: Lsn
    end_lsn: Lsn
    synced_lsn: Lsn
    parts: list[bytes]
    synced: bool
    """Whether `sync` ends with an fdatasync; else it only writes (relaxed groups, seals)."""
    roll: tuple[FileHeader, bytes] | None = None
    roll_done: bool = field(default=False)

    def sync(self) -> None:
        """Writes the block and, if `synced`, syncs it. Raises OSError: the store then fails."""
        if self.roll is not None:
            self.writer.create(*self.roll)
            self.roll_done = True
        if self.end_lsn > self.lsn:
            self.writer.write(self.lsn, self.synced_lsn, b"".join(self.parts))
        if self.synced:
            self.writer.sync()

    def spill(self) -> None:
        """Appends the block's frames to the segments, through the page cache."""

"""A flush: everything appended so far, on its way to the disk."""

from __future__ import annotations

from dataclasses import dataclass

from goqueue.wire.types import Lsn
from log.disk.files import is_full
from log.store.spill import SpillBatch, Spiller
from log.wal.format import FileHeader
from log.wal.writer import WalWriter


@dataclass(slots=True)
class FlushJob:
    """One block of the write-ahead log. `sync` and then `spill` run on any thread, each on one.

    `spill` may be left out after a failed `sync`, and where the next job's stands for it.
    """

    writer: WalWriter
    spiller: Spiller
    lsn: Lsn
    end_lsn: Lsn
    synced_lsn: Lsn
    parts: list[bytes]
    synced: bool
    """Whether `sync` ends with an fdatasync; else it only writes (relaxed groups)."""
    batch: SpillBatch
    roll: tuple[FileHeader, bytes] | None = None

    def sync(self) -> None:
        """Writes the block and, if `synced`, syncs it. Raises OSError.

        Where `is_full` holds for that, nothing is lost, and `sync` may be called again, which goes
        on where it stopped. After any other error the store has failed, and the next process knows.
        """
        try:
            self._sync()
        except OSError as error:
            if not is_full(error):
                self.writer.note_failure()
            raise

    def _sync(self) -> None:
        if self.roll is not None:
            self._roll(*self.roll)
            self.roll = None
        if self.end_lsn > self.lsn:
            self.writer.write(self.lsn, self.synced_lsn, b"".join(self.parts))
        if self.synced:
            self.writer.sync()
            self.writer.vouch(self.end_lsn)

    @property
    def spill_bytes(self) -> int:
        """Of the write-ahead log, that `spill` appends."""
        return self.batch.end_lsn - self.batch.lsn

    def spill(self) -> None:
        """Appends the block's frames to the segments, through the page cache. Never raises."""
        self.spiller.run(self.batch)

    def spill_after(self, earlier: FlushJob) -> None:
        """`spill` is also that of the job before, of which no `spill` is run: as one append."""
        earlier.batch.extend(self.batch)
        self.batch = earlier.batch

    def _roll(self, header: FileHeader, encoded: bytes) -> None:
        try:
            self.writer.create(header, encoded)
        except OSError as error:
            if not is_full(error) or not self.spiller.space.release():
                raise
            self.writer.create(header, encoded)

"""That a sync has failed in this boot of the machine, told to the next process.

What a failed sync was to save may be in no page any more, though the machine runs on. A group that
is not relaxed has acknowledged nothing of it; a relaxed one has, and is then as suspect as after a
power cut. The note need not outlive one of those: that is known by the boot id.
"""

from __future__ import annotations

from contextlib import suppress

from log.disk.files import Disk

SYNC_FAILED = "SYNC_FAILED"


class FailedSync:
    """The note in one data directory; any thread."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._disk = disk
        self._path = f"{root}/{SYNC_FAILED}"

    @property
    def is_noted(self) -> bool:
        return self._disk.exists(self._path)

    def note(self) -> None:
        """Never raises: a disk that takes no new file either is not read by a next process."""
        with suppress(OSError):
            self._disk.close(self._disk.open(self._path, write=True, create=True))

    def forget(self) -> None:
        """Once it is durable who is suspect. Raises OSError."""
        if self.is_noted:
            self._disk.unlink(self._path)

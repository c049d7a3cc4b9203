"""Room on the disk: the watermark below which publishes are refused, and the reserve file."""

from __future__ import annotations

from dataclasses import dataclass

from log.config import StorageConfig
from log.disk.files import Disk

RESERVE = "RESERVE"


@dataclass(frozen=True, slots=True)
class SpaceState:
    """Bytes free for this user, the file system's size, and whether publishes must be refused."""

    free_bytes: int
    capacity_bytes: int
    low: bool
    room_bytes: int = 0
    """Free above the watermark."""
    watermark_bytes: int = 0
    """The free space below which publishes are refused."""


class Space:
    """Watches the file system of one data directory. Safe from any thread."""

    def __init__(self, disk: Disk, root: str, config: StorageConfig) -> None:
        self._disk = disk
        self._root = root
        self._path = f"{root}/{RESERVE}"
        self._config = config

    def state(self) -> SpaceState:
        free, capacity = self._disk.space(self._root)
        watermark = self._watermark(capacity)
        return SpaceState(free, capacity, free < watermark, max(0, free - watermark), watermark)

    def reserve(self) -> None:
        """Preallocates the reserve where there is room for it above the watermark.

        Raises OSError, and then there is none.
        """
        wanted = self._config.reserve_bytes
        if not wanted or self._disk.exists(self._path):
            return
        free, capacity = self._disk.space(self._root)
        if free < self._watermark(capacity) + wanted:
            return
        handle = self._disk.open(self._path, write=True, create=True)
        try:
            self._disk.preallocate(handle, wanted, zero=False)
        except OSError:
            self.release()
            raise
        finally:
            self._disk.close(handle)

    def release(self) -> bool:
        """Gives the reserve up; whether there was one. On any thread."""
        try:
            self._disk.unlink(self._path)
        except FileNotFoundError:
            return False
        return True

    def _watermark(self, capacity: int) -> int:
        percent = capacity * self._config.watermark_percent // 100
        return max(self._config.watermark_bytes, percent)

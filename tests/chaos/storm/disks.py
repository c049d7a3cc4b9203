"""A disk of a node's own: an ext4 on a loop image, whose power can be cut and which can be filled.

The image lies in memory, so its syncs are quick; what was not synced is lost all the same, because
the file system drops it and does not write its journal.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct

from tests.chaos.storm.ground import IMAGES, MARK, MOUNTS, do, unmount, unmount_image

SIZE_BYTES = 3 << 30
_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
_WITHOUT_LOG_FLUSH = 2
_BALLAST = "ballast"
_PROBE = "probe"
_PROBE_BYTES = 10_000


class Disk:
    """Mounted at `path` from `open()` to `close()`."""

    def __init__(self, name: str, size_bytes: int = SIZE_BYTES) -> None:
        self.image = IMAGES / f"{MARK}-{os.getpid()}-{name}.img"
        self.path = MOUNTS / str(os.getpid()) / name
        self._size_bytes = size_bytes

    def open(self) -> None:
        """Raises CommandFailed."""
        self.path.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(self._size_bytes)
        do("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", str(self.image))
        self._mount()

    def close(self) -> None:
        if self.image.exists():
            unmount_image(self.image)
            self.image.unlink()
        with contextlib.suppress(OSError):
            self.path.rmdir()
            self.path.parent.rmdir()

    def cut_power(self) -> None:
        """What is not synced is lost, now; all that is asked of the disk from now on fails."""
        with (self.path / _PROBE).open("wb") as file:
            file.write(os.urandom(_PROBE_BYTES))
        handle = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(handle)

    def restore_power(self) -> bool:
        """Mounts it again; whether what was not synced is really gone. Nobody may use it."""
        unmount(self.path)
        self._mount()
        probe = self.path / _PROBE
        is_lost = not probe.exists() or not probe.stat().st_size
        probe.unlink(missing_ok=True)
        return is_lost

    def fill(self) -> bool:
        """Takes all the room there is; whether another file can't be written now."""
        handle = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT)
        try:
            step, at = 256 << 20, 0
            while step >= 4096:
                try:
                    os.posix_fallocate(handle, at, step)
                    at += step
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 2
        finally:
            os.close(handle)
        return self._refuses()

    def empty(self) -> None:
        """A power cut does not bring back what took the room."""
        (self.path / _BALLAST).unlink(missing_ok=True)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _refuses(self) -> bool:
        probe = self.path / _PROBE
        try:
            with probe.open("wb") as file:
                file.write(bytes(1 << 20))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            return error.errno == errno.ENOSPC
        else:
            return False
        finally:
            probe.unlink(missing_ok=True)

    def _mount(self) -> None:
        """What is deleted takes no memory any more."""
        do("mount", "-o", "loop,noatime,discard", str(self.image), str(self.path))

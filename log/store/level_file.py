"""The level that a data directory's cluster has finished, for whoever opens the directory next.

One small text file, `LEVEL`, written anew in whole: its lines are what it is, `level N`, who wrote
it, and `crc32c` of what is above. One that can't be read counts as none: then the cluster's state
and the peers tell the level, and it is written again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from crc32c import crc32c

from log.disk.files import Disk

NAME = "LEVEL"
BYTES_MAX = 1024
_FIRST_LINE = "GoQueue data directory"
_NEW = ".new"

_log = logging.getLogger("log")


@dataclass(frozen=True, slots=True)
class LevelFile:
    """That file of the directory `root`."""

    disk: Disk
    root: str

    def read(self) -> int:
        """The finished level; 0 where there is no file, or a damaged one. Raises OSError."""
        path = f"{self.root}/{NAME}"
        if not self.disk.exists(path):
            return 0
        handle = self.disk.open(path)
        try:
            found = self.disk.pread(handle, BYTES_MAX, 0)
        finally:
            self.disk.close(handle)
        level = _level(found)
        if not level:
            _log.warning("level_file_damaged path=%s", path)
        return level

    def write(self, level: int, version: str) -> bool:
        """Whether it is on disk now, and survives a power cut. Raises nothing."""
        path = f"{self.root}/{NAME}"
        try:
            handle = self.disk.open(path + _NEW, write=True, create=True)
            try:
                content = _content(level, version)
                self.disk.truncate(handle, 0)
                self.disk.pwritev(handle, [content], 0)
                self.disk.fdatasync(handle)
            finally:
                self.disk.close(handle)
            self.disk.rename(path + _NEW, path)
            self.disk.sync_directory(self.root)
        except OSError as error:
            _log.error("level_not_kept level=%d %s", level, error)
            return False
        return True


def _content(level: int, version: str) -> bytes:
    text = f"{_FIRST_LINE}\nlevel {level}\nwritten by {version}\n".encode()
    return text + b"crc32c %08x\n" % crc32c(text)


def _level(found: bytes) -> int:
    text, mark, told = found.rpartition(b"crc32c ")
    if not mark or told.strip() != b"%08x" % crc32c(text):
        return 0
    lines = text.decode("utf-8", "replace").splitlines()
    number = lines[1].removeprefix("level ") if len(lines) > 1 else ""
    return int(number) if lines[0] == _FIRST_LINE and number.isdecimal() else 0

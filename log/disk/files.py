"""What the log asks of a disk, and the real one.

Handles are small integers. Every method may be called from any thread; concurrent writes to
overlapping ranges of one file are the caller's mistake. All errors are OSError; what failed with
one for which `is_full` holds may be tried again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from log.errors import DirectoryLocked

Bytes = bytes | bytearray | memoryview

PAUSE_S = 1.0
_VECTORS_MAX = 512
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_ZEROS = bytes(1 << 20)


class SyncFailed(OSError):
    """A sync failed: what was written before may be lost, and the next sync would call it safe.

    The kernel marks pages clean whose write-back has failed (Rebello et al., ATC 2020). So no sync
    of such a file proves anything any more; only a file that holds nothing yet may be made anew.
    """


def is_full(error: BaseException | None) -> bool:
    """Whether there was no room, nothing was lost by it, and the same may be tried again."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full and not isinstance(error, SyncFailed)


class Disk(Protocol):
    """Files and directories, with durability told apart from writing."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        """A handle. With `create` the file is made if absent; its directory entry is unsynced."""
        ...

    def close(self, handle: int) -> None: ...

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def pwritev(self, handle: int, parts: Sequence[Bytes], offset: int) -> int:
        """Writes all parts, or raises; returns their total length. Durable only once synced."""
        ...

    def fdatasync(self, handle: int) -> None:
        """What was written to this file, and its size, survive a power cut once this returns.

        Raises SyncFailed.
        """
        ...

    def truncate(self, handle: int, length: int) -> None: ...

    def preallocate(self, handle: int, length: int, *, zero: bool = True) -> None:
        """Makes the file this long with its blocks allocated: no later write meets a full disk.

        With `zero` the blocks are written too, so that later syncs need no change of metadata.
        """
        ...

    def uncache(self, path: str) -> None:
        """Lets the file be read from the medium next, as far as it is synced and the system obeys:
        damage at rest hides behind pages that are still in memory. Raises FileNotFoundError."""
        ...

    def pause(self) -> None:
        """Waits a moment, so that a medium that was reset can answer again."""
        ...

    def size(self, path: str) -> int:
        """The file's length. Raises FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """Names in it, sorted; none where the directory does not exist."""
        ...

    def make_directories(self, path: str) -> None:
        """The directory and its missing parents, each synced into the one above."""
        ...

    def make_directory(self, path: str) -> None:
        """The directory, where it is missing, in one that is there. It survives a power cut once
        that is synced."""
        ...

    def sync_directory(self, path: str) -> None:
        """Creations, renames and removals in this directory survive a power cut.

        Raises SyncFailed, or FileNotFoundError.
        """
        ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def remove_directory(self, path: str) -> None:
        """Removes an empty directory."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Free bytes (for this user) and capacity of the file system that holds the path."""
        ...

    def lock(self, path: str, holder: str) -> int:
        """An exclusive lock, told to others as `holder` where there is room for that. Raises
        DirectoryLocked naming theirs."""
        ...

    def unlock(self, lock: int) -> None: ...

    def boot_id(self) -> str:
        """Changes whenever unsynced writes may have been lost: with every start of the machine."""
        ...


class OsDisk:
    """The machine's file system, by positioned reads and writes: no mmap, no shared file offset."""

    def __init__(self) -> None:
        self._unsynced: set[str] = set()
        """Directories that `make_directory` has made, and not synced into their parents."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        return os.open(path, flags | (os.O_CREAT if create else 0), 0o640)

    def close(self, handle: int) -> None:
        os.close(handle)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        first = os.pread(handle, length, offset)
        if len(first) == length or not first:
            return first
        parts = [first]
        done = len(first)
        while done < length and (more := os.pread(handle, length - done, offset + done)):
            parts.append(more)
            done += len(more)
        return b"".join(parts)

    def pwritev(self, handle: int, parts: Sequence[Bytes], offset: int) -> int:
        total = sum(map(len, parts))
        if len(parts) > _VECTORS_MAX:
            parts = [b"".join(parts)]
        done = os.pwritev(handle, parts, offset) if parts else 0
        if done < total:
            rest = memoryview(b"".join(parts))
            while done < total:
                written = os.pwrite(handle, rest[done:], offset + done)
                if written == 0:
                    raise OSError(errno.EIO, "the file accepts no more bytes")
                done += written
        return total

    def fdatasync(self, handle: int) -> None:
        try:
            if hasattr(os, "fdatasync"):
                os.fdatasync(handle)
            else:  # macOS: only F_FULLFSYNC reaches the medium
                fcntl.fcntl(handle, getattr(fcntl, "F_FULLFSYNC", 51))
        except OSError as error:
            raise SyncFailed(*error.args) from error

    def truncate(self, handle: int, length: int) -> None:
        os.ftruncate(handle, length)

    def preallocate(self, handle: int, length: int, *, zero: bool = True) -> None:
        if hasattr(os, "posix_fallocate") and length:
            os.posix_fallocate(handle, 0, length)
        else:
            zero = True
        if zero:
            for at in range(0, length, len(_ZEROS)):
                self.pwritev(handle, [_ZEROS[: length - at]], at)
        os.ftruncate(handle, length)

    def uncache(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)

    def pause(self) -> None:
        time.sleep(PAUSE_S)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def list_directory(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_directories(self, path: str) -> None:
        if os.path.isdir(path):
            if path in self._unsynced:
                self.sync_directory(os.path.dirname(path))
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directories(parent)
        try:
            os.mkdir(path, 0o750)
        except FileExistsError:
            return
        self.sync_directory(parent)

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        self._unsynced.add(path)
        with suppress(FileExistsError):
            os.mkdir(path, 0o750)

    def sync_directory(self, path: str) -> None:
        made = [one for one in list(self._unsynced) if os.path.dirname(one) == path]
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        except OSError as error:
            raise SyncFailed(error.errno, error.strerror, path) from error
        finally:
            os.close(handle)
        self._unsynced.difference_update(made)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def space(self, path: str) -> tuple[int, int]:
        state = os.statvfs(path)
        return state.f_bavail * state.f_frsize, state.f_blocks * state.f_frsize

    def lock(self, path: str, holder: str) -> int:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = os.pread(handle, 512, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            directory = os.path.dirname(path)
            raise DirectoryLocked(directory, other or "another process") from None
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, holder.encode(), 0)
        except OSError as error:
            if not is_full(error):  # else it is locked all the same, and room is made later
                os.close(handle)
                raise
        return handle

    def unlock(self, lock: int) -> None:
        os.ftruncate(lock, 0)
        os.close(lock)

    def boot_id(self) -> str:
        """The kernel's own; where it has none, another one each time: caution costs no message."""
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return str(uuid.uuid4())

"""A bounded set of open files, the least recently used closed first.

Safe from any thread: a file is never closed while borrowed.

Nor while it holds what is not synced. Pages are written back at any time, and where that fails,
Linux tells each descriptor that is open then, once, at its next sync; one that is opened later is
told only if nobody was told before and the inode has stayed in memory (errseq_t). A closed file's
inode may go, and the failure with it: the next sync succeeds over lost data, and a checkpoint would
drop the write-ahead log that still has them. So files that were written to stay open until their
sync, and so does their inode. Where they are too many, the one longest unused is synced before it
is closed.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from log.disk.files import Disk, SyncFailed


class _Open:
    """An open file, and the block in which its handle is borrowed: one object for all of them,
    since a read of a few bytes should not cost more in borrowing than in reading."""

    __slots__ = ("_owner", "borrowed", "forgotten", "handle", "path", "writers", "writes")

    def __init__(self, owner: Descriptors, path: str, handle: int) -> None:
        self._owner = owner
        self.path = path
        self.handle = handle
        self.borrowed = 0
        self.writers = 0
        """Blocks that may be writing now."""
        self.writes = 0
        """Blocks that have written."""
        self.forgotten = False

    def __enter__(self) -> int:
        return self.handle

    def __exit__(self, *_error: object) -> None:
        owner = self._owner
        with owner.lock:
            self.borrowed -= 1
            if self.forgotten and not self.borrowed:
                owner.disk.close(self.handle)


class _Writing:
    """The block in which a file is written to; it is unsynced from then on."""

    __slots__ = ("_file", "_owner")

    def __init__(self, owner: Descriptors, file: _Open) -> None:
        self._owner = owner
        self._file = file

    def __enter__(self) -> int:
        return self._file.handle

    def __exit__(self, *error: object) -> None:
        self._owner.was_written(self._file)
        self._file.__exit__(*error)


class Descriptors:
    """At most `limit` files stay open between borrowings, and `unsynced_max` that are unsynced."""

    def __init__(self, disk: Disk, limit: int, unsynced_max: int = 4096, *, write: bool) -> None:
        self.disk = disk
        self.write = write
        self._limit = max(1, limit)
        self._unsynced_max = max(1, unsynced_max)
        self.lock = threading.Lock()
        self._synced: OrderedDict[str, _Open] = OrderedDict()
        self._unsynced: OrderedDict[str, _Open] = OrderedDict()
        """Files that were written to since their last sync began."""
        self._unsafe: set[str] = set()
        """Files that hold what a failed sync may have lost."""

    @property
    def is_crowded(self) -> bool:
        """Whether files should be synced soon, before they have to be one by one."""
        return 2 * len(self._unsynced) >= self._unsynced_max

    def borrow(self, path: str, *, create: bool = False) -> _Open:
        """A handle of this file, for the duration of the `with` block that this is called for.
        Raises FileNotFoundError and the like."""
        with self.lock:
            return self._borrow(path, create=create)

    def written(self, path: str, *, create: bool = False) -> _Writing:
        """As `borrow`, for a block that writes what `sync` is to make durable later. Raises
        SyncFailed where another file had to be synced first, and could not."""
        while len(self._unsynced) >= self._unsynced_max and path not in self._unsynced:
            if not self._sync_oldest():
                break
        with self.lock:
            file = self._borrow(path, create=create)
            file.writers += 1
            return _Writing(self, file)

    def was_written(self, file: _Open) -> None:
        """The block is over, whatever came of it."""
        with self.lock:
            file.writers -= 1
            file.writes += 1
            if not file.forgotten:
                self._synced.pop(file.path, None)
                self._unsynced[file.path] = file
                self._unsynced.move_to_end(file.path)

    def is_open(self, path: str) -> bool:
        """Whether the file is open here; then it is among those that were used last."""
        with self.lock:
            return self._find(path) is not None

    def forget(self, path: str) -> None:
        """Closes the file, now or when it is given back: another one may have its name. What is
        unsynced of it is synced before; it stays open where it is being written to. Raises
        OSError."""
        if path in self._unsynced:
            self.sync(path)
        with self.lock:
            file = self._synced.get(path)
            if file is not None and not file.writers:
                del self._synced[path]
                self._retire(file)

    def replaced(self, path: str) -> None:
        """Closes the file: another one, or none, has the name from now on, and nobody needs what it
        holds any more."""
        with self.lock:
            file = self._synced.pop(path, None) or self._unsynced.pop(path, None)
            if file is not None:
                self._retire(file)
        self._unsafe.discard(path)

    def sync(self, path: str) -> None:
        """Makes all that was written to the file durable. Raises OSError, SyncFailed also where
        somebody else's sync of this file has failed before: this one would prove nothing."""
        if path in self._unsafe:
            raise SyncFailed(errno.EIO, "an earlier sync of this file failed", path)
        file = self.borrow(path)
        with file as handle:
            writes = file.writes
            with self.synced(path):
                self.disk.fdatasync(handle)
            with self.lock:
                is_clean = file.writes == writes and not file.writers
                if is_clean and self._unsynced.get(path) is file:
                    self._synced[path] = self._unsynced.pop(path)
        with self.lock:
            self._evict(0)

    @contextmanager
    def synced(self, path: str) -> Iterator[None]:
        """A block that writes to the file and syncs that. Where the sync fails, pages of others
        may be lost with its own, and only the first to ask is told."""
        try:
            yield
        except SyncFailed:
            self._unsafe.add(path)
            raise

    def close(self) -> None:
        """Closes every file that is not borrowed, and the rest when given back. What is unsynced is
        in the write-ahead log, and written anew by who opens the store next."""
        with self.lock:
            for files in (self._synced, self._unsynced):
                for file in files.values():
                    self._retire(file)
                files.clear()

    # -- private

    def _find(self, path: str) -> _Open | None:
        for files in (self._synced, self._unsynced):
            if path in files:
                files.move_to_end(path)
                return files[path]
        return None

    def _borrow(self, path: str, *, create: bool) -> _Open:
        file = self._find(path)
        if file is None:
            self._evict(1)
            handle = self.disk.open(path, write=self.write, create=create and self.write)
            file = self._synced[path] = _Open(self, path, handle)
        file.borrowed += 1
        return file

    def _evict(self, room: int) -> None:
        """Closes synced files until there is room for so many more, or none is left to close."""
        excess = len(self._synced) + room - self._limit
        if excess <= 0:
            return
        idle = [path for path, file in self._synced.items() if not file.borrowed]
        for path in idle[:excess]:
            self.disk.close(self._synced.pop(path).handle)

    def _sync_oldest(self) -> bool:
        """Syncs the file that was used longest ago; whether there was one to sync."""
        with self.lock:
            idle = (path for path, file in self._unsynced.items() if not file.borrowed)
            path = next(idle, None)
        if path is None:
            return False
        with suppress(FileNotFoundError):  # removed meanwhile
            self.sync(path)
        return True

    def _retire(self, file: _Open) -> None:
        file.forgotten = True
        if not file.borrowed:
            self.disk.close(file.handle)

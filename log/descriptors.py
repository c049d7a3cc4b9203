"""A bounded set of open files, the least recently used closed first.

Safe from any thread: a file is never closed while borrowed.
"""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from log.disk import Disk, SyncFailed


class _Open:
    """An open file, and the block in which its handle is borrowed: one object for all of them,
    since a read of a few bytes should not cost more in borrowing than in reading."""

    __slots__ = ("_owner", "borrowed", "forgotten", "handle")

    def __init__(self, owner: Descriptors, handle: int) -> None:
        self._owner = owner
        self.handle = handle
        self.borrowed = 0
        self.forgotten = False

    def __enter__(self) -> int:
        return self.handle

    def __exit__(self, *_error: object) -> None:
        owner = self._owner
        with owner.lock:
            self.borrowed -= 1
            if self.forgotten and not self.borrowed:
                owner.disk.close(self.handle)


class Descriptors:
    """At most `limit` files stay open between borrowings."""

    def __init__(self, disk: Disk, limit: int, *, write: bool) -> None:
        self.disk = disk
        self.write = write
        self._limit = max(1, limit)
        self.lock = threading.Lock()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._unsafe: set[str] = set()
        """Files that hold what a failed sync may have lost."""

    def borrow(self, path: str, *, create: bool = False) -> _Open:
        """A handle of this file, for the duration of the `with` block that this is called for.
        Raises FileNotFoundError and the like."""
        with self.lock:
            file = self._open.get(path)
            if file is None:
                self._evict()
                handle = self.disk.open(path, write=self.write, create=create and self.write)
                file = self._open[path] = _Open(self, handle)
            else:
                self._open.move_to_end(path)
            file.borrowed += 1
            return file

    def is_open(self, path: str) -> bool:
        """Whether the file is open here; then it is among those that were used last."""
        with self.lock:
            if path not in self._open:
                return False
            self._open.move_to_end(path)
            return True

    def forget(self, path: str) -> None:
        """Closes the file, now or when it is given back: it was removed."""
        with self.lock:
            file = self._open.pop(path, None)
            if file is not None:
                self._retire(file)

    def replaced(self, path: str) -> None:
        """As `forget`: another file, or none, has the name from now on."""
        self.forget(path)
        self._unsafe.discard(path)

    def sync(self, path: str) -> None:
        """Makes all that was written to the file durable. Raises OSError, SyncFailed also where
        somebody else's sync of this file has failed before: this one would prove nothing."""
        if path in self._unsafe:
            raise SyncFailed(errno.EIO, "an earlier sync of this file failed", path)
        with self.synced(path), self.borrow(path) as handle:
            self.disk.fdatasync(handle)

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
        """Closes every file that is not borrowed, and the rest when given back."""
        with self.lock:
            for file in self._open.values():
                self._retire(file)
            self._open.clear()

    def _evict(self) -> None:
        if len(self._open) < self._limit:
            return
        for path, file in self._open.items():
            if not file.borrowed:
                del self._open[path]
                self.disk.close(file.handle)
                return

    def _retire(self, file: _Open) -> None:
        file.forgotten = True
        if not file.borrowed:
            self.disk.close(file.handle)

"""A bounded set of open files, the least recently used closed first.

Safe from any thread: a file is never closed while borrowed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from log.disk import Disk


@dataclass(slots=True)
class _Open:
    handle: int
    borrowed: int = 0
    forgotten: bool = False


class Descriptors:
    """At most `limit` files stay open between borrowings."""

    def __init__(self, disk: Disk, limit: int, *, write: bool) -> None:
        self.disk = disk
        self.write = write
        self._limit = max(1, limit)
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _Open] = OrderedDict()

    @contextmanager
    def borrow(self, path: str, *, create: bool = False) -> Iterator[int]:
        """A handle of this file for the block's duration. Raises FileNotFoundError and the like."""
        file = self._take(path, create)
        try:
            yield file.handle
        finally:
            self._give_back(file)

    def forget(self, path: str) -> None:
        """Closes the file, now or when it is given back: it was removed."""
        with self._lock:
            file = self._open.pop(path, None)
            if file is not None:
                self._retire(file)

    def close(self) -> None:
        """Closes every file that is not borrowed, and the rest when given back."""
        with self._lock:
            for file in self._open.values():
                self._retire(file)
            self._open.clear()

    def _take(self, path: str, create: bool) -> _Open:
        with self._lock:
            file = self._open.get(path)
            if file is None:
                self._evict()
                handle = self.disk.open(path, write=self.write, create=create and self.write)
                file = self._open[path] = _Open(handle)
            else:
                self._open.move_to_end(path)
            file.borrowed += 1
            return file

    def _give_back(self, file: _Open) -> None:
        with self._lock:
            file.borrowed -= 1
            if file.forgotten and not file.borrowed:
                self.disk.close(file.handle)

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

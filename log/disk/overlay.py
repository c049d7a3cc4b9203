"""A disk that is only read: what is written to it stays in memory, over what lies on another one.

So whatever opens a data directory for writing also opens one that nobody may write to, or that
another process writes to at the same time. It sees the files of `frozen` directories that were
there when the overlay was made, and no later ones; of a file, what is there when it is read.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from log.disk.files import Bytes, Disk

PAGE_BYTES = 4096
ROOM_BYTES = 1 << 40
"""What it says is free: nothing that is written here takes any."""


@dataclass(slots=True)
class _File:
    """A file that was opened or changed here: pages that were written, over the first bytes of a
    file below."""

    base: int | None
    length: int
    shown: int
    """Of the file below, as many bytes are still seen."""
    pages: dict[int, bytearray] = field(default_factory=dict)
    handles: int = 0
    is_changed: bool = False


class OverlayDisk:
    """Implements `Disk` over another one, which is never written to. `close_all` in the end."""

    def __init__(self, base: Disk, frozen: str = "") -> None:
        """Lists what is in the directory `frozen`, and in those in it. Raises OSError."""
        self._base = base
        self._lock = threading.Lock()
        self._names: dict[str, _File | None] = {}
        """What differs from below: a file that was opened or made, None for one that is gone."""
        self._made: set[str] = set()
        self._handles: dict[int, _File] = {}
        self._below_open: set[int] = set()
        self._next_handle = 3
        self._frozen = frozen
        self._listed: dict[str, frozenset[str]] = {}
        if frozen:
            self._freeze(frozen)
            for name in list(self._listed[frozen]):
                self._freeze(f"{frozen}/{name}")

    def close_all(self) -> None:
        """Lets go of every file below; nothing can be read any more. Idempotent."""
        with self._lock:
            for handle in self._below_open:
                self._base.close(handle)
            self._below_open.clear()
            self._names.clear()
            self._handles.clear()

    # -- the Disk protocol

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        with self._lock:
            file = self._find(path)
            if file is None:
                if not create:
                    raise FileNotFoundError(errno.ENOENT, "no such file", path)
                file = self._names[path] = _File(None, 0, 0, is_changed=True)
            file.handles += 1
            self._next_handle += 1
            self._handles[self._next_handle] = file
            return self._next_handle

    def close(self, handle: int) -> None:
        with self._lock:
            file = self._handles.pop(handle, None)
            if file is None:
                return
            file.handles -= 1
            if not file.handles and not file.is_changed:
                self._let_go(file)
                for path in [path for path, found in self._names.items() if found is file]:
                    del self._names[path]

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        with self._lock:
            file = self._handles[handle]
            if not file.is_changed:
                return self._below(file, length, offset)
            return self._read(file, length, offset)

    def pwritev(self, handle: int, parts: Sequence[Bytes], offset: int) -> int:
        data = memoryview(b"".join(parts))
        with self._lock:
            file = self._change(self._handles[handle])
            done = 0
            while done < len(data):
                number, at = divmod(offset + done, PAGE_BYTES)
                piece = data[done : done + PAGE_BYTES - at]
                page = file.pages.get(number)
                if page is None:
                    below = self._read(file, PAGE_BYTES, number * PAGE_BYTES)
                    page = file.pages[number] = bytearray(below.ljust(PAGE_BYTES, b"\0"))
                page[at : at + len(piece)] = piece
                done += len(piece)
            file.length = max(file.length, offset + len(data))
        return len(data)

    def fdatasync(self, handle: int) -> None:
        return None

    def truncate(self, handle: int, length: int) -> None:
        with self._lock:
            file = self._change(self._handles[handle])
            if length < file.length:
                number, at = divmod(length, PAGE_BYTES)
                for page in [page for page in file.pages if page > number or not at]:
                    if page >= number:
                        del file.pages[page]
                if number in file.pages:
                    file.pages[number][at:] = bytes(PAGE_BYTES - at)
            file.length, file.shown = length, min(file.shown, length)

    def preallocate(self, handle: int, length: int, *, zero: bool = True) -> None:
        self.truncate(handle, length)

    def uncache(self, path: str) -> None:
        self.size(path)

    def pause(self) -> None:
        self._base.pause()

    def size(self, path: str) -> int:
        with self._lock:
            if path in self._names and (file := self._names[path]) is not None:
                return file.length if file.is_changed else self._base.size(path)
            if not self._is_below(path):
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            return self._base.size(path)

    def exists(self, path: str) -> bool:
        with self._lock:
            if path in self._names:
                return self._names[path] is not None
            return path in self._made or self._is_below(path)

    def list_directory(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        with self._lock:
            below = self._base.list_directory(path) if path not in self._listed else ()
            names = set(self._listed.get(path, below))
            if path not in self._listed and self._is_hidden(path):
                names = set()
            for changed, file in self._names.items():
                name = changed.removeprefix(prefix)
                if name == changed or "/" in name:
                    continue
                if file is None:
                    names.discard(name)
                else:
                    names.add(name)
            for made in self._made:
                name = made.removeprefix(prefix)
                if name != made and "/" not in name:
                    names.add(name)
        return sorted(names)

    def make_directories(self, path: str) -> None:
        with self._lock:
            if not self._is_below(path):
                self._made.add(path)

    def make_directory(self, path: str) -> None:
        self.make_directories(path)

    def sync_directory(self, path: str) -> None:
        return None

    def rename(self, source: str, target: str) -> None:
        with self._lock:
            file = self._find(source)
            if file is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", source)
            self._names[target] = self._change(file)
            self._names[source] = None

    def unlink(self, path: str) -> None:
        with self._lock:
            if self._find(path) is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._names[path] = None

    def remove_directory(self, path: str) -> None:
        if self.list_directory(path):
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        with self._lock:
            self._made.discard(path)
            self._names[path] = None

    def space(self, path: str) -> tuple[int, int]:
        return ROOM_BYTES, ROOM_BYTES

    def lock(self, path: str, holder: str) -> int:
        return 0  # of nothing: whoever writes below is not held up, nor asked

    def unlock(self, lock: int) -> None:
        return None

    def boot_id(self) -> str:
        return self._base.boot_id()

    # -- private, with the lock

    def _freeze(self, path: str) -> None:
        self._listed[path] = frozenset(self._base.list_directory(path))

    def _is_hidden(self, path: str) -> bool:
        """Whether it came after the overlay, where that shows nothing that did."""
        if not self._frozen or not path.startswith(self._frozen + "/"):
            return False
        directory, _, name = path.rpartition("/")
        return name not in self._listed.get(directory, ())

    def _is_below(self, path: str) -> bool:
        return not self._is_hidden(path) and self._base.exists(path)

    def _find(self, path: str) -> _File | None:
        """The file, open below from now on. Raises OSError."""
        if path in self._names:
            return self._names[path]
        if not self._is_below(path):
            return None
        size = self._base.size(path)
        file = self._names[path] = _File(self._base.open(path), size, size)
        assert file.base is not None
        self._below_open.add(file.base)
        return file

    def _change(self, file: _File) -> _File:
        """From now on it is what was seen as it was opened, and what is written here."""
        file.is_changed = True
        return file

    def _below(self, file: _File, length: int, offset: int) -> bytes:
        return b"" if file.base is None else self._base.pread(file.base, length, offset)

    def _read(self, file: _File, length: int, offset: int) -> bytes:
        length = max(0, min(length, file.length - offset))
        found = bytearray(self._below(file, max(0, min(length, file.shown - offset)), offset))
        found += bytes(length - len(found))
        first, last = offset // PAGE_BYTES, (offset + length) // PAGE_BYTES
        for number in range(first, last + 1) if length else ():
            page = file.pages.get(number)
            if page is not None:
                start = number * PAGE_BYTES - offset
                begin, end = max(0, start), min(length, start + PAGE_BYTES)
                found[begin:end] = page[begin - start : end - start]
        return bytes(found)

    def _let_go(self, file: _File) -> None:
        if file.base is not None and file.base in self._below_open:
            self._below_open.remove(file.base)
            self._base.close(file.base)

"""A disk in memory that knows what a power cut would leave behind.

Every change is one operation in `trace`; `MemoryDisk.replay(trace[:n])` is the disk after the first
n of them. `crash()` keeps what was synced, and of the rest what the generator chooses: unsynced
writes survive, vanish or are torn one by one, unsynced directory changes as a prefix per directory.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from log.disk.files import Bytes, SyncFailed
from log.errors import DirectoryLocked

Operation = tuple[str, tuple[object, ...]]
Fault = Callable[[str, str], OSError | None]


class ShortWrite(OSError):
    """A write that stops after the first `written` bytes, with this error number."""

    def __init__(self, number: int, written: int) -> None:
        super().__init__(number, os.strerror(number))
        self.written = written


class _Content:
    """A file's bytes. Zeros at its end that nobody has written are counted, and take no memory: a
    node makes room for hundreds of megabytes before it writes any."""

    __slots__ = ("_bytes", "_length")

    def __init__(self, found: Bytes = b"") -> None:
        self._bytes = bytearray(found)
        self._length: int | None = len(self._bytes)
        """None once the bytes were handed out, which then are all there is."""

    def __len__(self) -> int:
        return len(self._bytes) if self._length is None else self._length

    def read(self, offset: int, length: int) -> bytes:
        found = bytes(self._bytes[offset : offset + length])
        missing = min(offset + length, len(self)) - offset - len(found)
        return found + bytes(missing) if missing > 0 else found

    def whole(self) -> bytes:
        return self.read(0, len(self))

    def write(self, offset: int, data: bytes) -> None:
        content, length = self._bytes, max(len(self), offset + len(data))
        if offset == len(content):
            content += data
        else:
            if offset > len(content):
                content.extend(bytes(offset - len(content)))
            content[offset : offset + len(data)] = data
        if self._length is not None:
            self._length = length

    def truncate(self, length: int) -> None:
        del self._bytes[length:]
        if self._length is None:
            self._bytes.extend(bytes(length - len(self._bytes)))
        else:
            self._length = length

    def perform(self, offset: int, data: bytes | None) -> None:
        """A write, or without data a truncation."""
        if data is None:
            self.truncate(offset)
        else:
            self.write(offset, data)

    def copy(self) -> _Content:
        made = _Content(self._bytes)
        made._length = len(self)
        return made

    def hand_out(self) -> bytearray:
        """All bytes, to be changed in place."""
        if self._length is not None:
            self._bytes.extend(bytes(self._length - len(self._bytes)))
            self._length = None
        return self._bytes


@dataclass(slots=True)
class _File:
    """What is written, what is synced, and the writes and truncations between the two."""

    live: _Content = field(default_factory=_Content)
    synced: _Content = field(default_factory=_Content)
    unsynced: list[tuple[int, bytes | None]] = field(default_factory=list)
    is_lost: bool = False
    is_shown: bool = False
    """Its live bytes were handed out, and may have been changed in place."""

    def write(self, offset: int, data: bytes) -> None:
        self.live.write(offset, data)
        self.unsynced.append((offset, data))

    def truncate(self, length: int) -> None:
        self.live.truncate(length)
        self.unsynced.append((length, None))

    def sync(self) -> None:
        if self.is_shown and not self.is_lost:
            self.synced = self.live.copy()
        else:
            for offset, data in self.unsynced:
                self.synced.perform(offset, data)
        self.unsynced.clear()

    def lose(self) -> None:
        """A sync failed: what it was to write is read back as written, and never synced again."""
        self.is_lost = True
        self.unsynced.clear()

    def uncache(self) -> None:
        """What passes for written since a sync failed is in no page any more."""
        if self.is_lost and not self.is_shown:
            self.live = self.synced.copy()
            for offset, data in self.unsynced:
                self.live.perform(offset, data)


class MemoryDisk:
    """The shipped fake of `Disk`, with faults.

    `fault(operation, path)` may return an OSError to raise instead of performing the operation, for
    `pwritev` also a ShortWrite; `capacity` bounds the sum of file lengths (ENOSPC beyond). A sync
    that fails is told as SyncFailed, and loses what it should have saved: later ones only seem to
    save that.
    """

    def __init__(self, *, capacity: int = 1 << 40, node: str = "") -> None:
        self.capacity = capacity
        self.trace: list[Operation] = []
        self.fault: Fault | None = None
        self.boots = 1
        self.syncs = 0
        self.pauses = 0
        self.open_handles = 0
        self.open_handles_most = 0
        self._files: list[_File] = []
        self._live: dict[str, int | None] = {"/": None}
        self._durable: dict[str, int | None] = {"/": None}
        self._directory_changes: dict[str, list[tuple[str, int | None, bool]]] = {}
        self._handles: dict[int, tuple[int, str]] = {}
        self._next_handle = 3
        self._locks: dict[str, str] = {}
        self._lock_paths: dict[int, str] = {}

    # -- the Disk protocol

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self._check("open", path)
        if path not in self._live:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._do("create", path)
        number = self._live[path]
        if number is None:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = (number, path)
        self.open_handles += 1
        self.open_handles_most = max(self.open_handles_most, self.open_handles)
        return handle

    def close(self, handle: int) -> None:
        del self._handles[handle]
        self.open_handles -= 1

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        number, path = self._handles[handle]
        self._check("pread", path)
        return self._files[number].live.read(offset, length)

    def pwritev(self, handle: int, parts: Sequence[Bytes], offset: int) -> int:
        number, path = self._handles[handle]
        data = b"".join(parts)
        try:
            self._check("pwritev", path)
        except ShortWrite as error:
            self._do("write", number, offset, data[: error.written])
            raise
        self._grow(number, offset + len(data))
        self._do("write", number, offset, data)
        return len(data)

    def fdatasync(self, handle: int) -> None:
        number, path = self._handles[handle]
        try:
            self._check("fdatasync", path)
        except OSError as error:
            self._files[number].lose()
            raise SyncFailed(*error.args) from error
        self.syncs += 1
        self._do("sync", number)

    def truncate(self, handle: int, length: int) -> None:
        number, path = self._handles[handle]
        self._check("truncate", path)
        self._grow(number, length)
        self._do("truncate", number, length)

    def preallocate(self, handle: int, length: int, *, zero: bool = True) -> None:
        self.truncate(handle, length)

    def uncache(self, path: str) -> None:
        self.size(path)  # else nothing is cached: damage shows at once
        number = self._live[path]
        assert number is not None, path
        self._files[number].uncache()

    def pause(self) -> None:
        self.pauses += 1

    def size(self, path: str) -> int:
        number = self._live.get(path)
        if number is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return len(self._files[number].live)

    def exists(self, path: str) -> bool:
        return path in self._live

    def list_directory(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return sorted(
            name[len(prefix) :]
            for name in list(self._live)  # worker threads create files meanwhile
            if name.startswith(prefix) and name != "/" and "/" not in name[len(prefix) :]
        )

    def make_directories(self, path: str) -> None:
        parent = os.path.dirname(path)
        if path in self._live:
            if path not in self._durable:
                self._sync_directory(parent)
            return
        self.make_directories(parent)
        self._check("mkdir", path)
        self._do("mkdir", path)
        self._sync_directory(parent)

    def make_directory(self, path: str) -> None:
        if path not in self._live:
            self._check("mkdir", path)
            self._do("mkdir", path)

    def sync_directory(self, path: str) -> None:
        self._sync_directory(path)
        self.syncs += 1

    def _sync_directory(self, path: str) -> None:
        try:
            self._check("sync_directory", path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SyncFailed(*error.args) from error
        self._do("sync_directory", path)

    def rename(self, source: str, target: str) -> None:
        self._check("rename", source)
        if source not in self._live:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self._do("rename", source, target)

    def unlink(self, path: str) -> None:
        self._check("unlink", path)
        if self._live.get(path) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._do("unlink", path)

    def remove_directory(self, path: str) -> None:
        if self.list_directory(path):
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self._do("unlink", path)

    def space(self, path: str) -> tuple[int, int]:
        return self.capacity - self._used(), self.capacity

    def lock(self, path: str, holder: str) -> int:
        if path in self._locks:
            raise DirectoryLocked(os.path.dirname(path), self._locks[path])
        self._locks[path] = holder
        handle = self._next_handle
        self._next_handle += 1
        self._lock_paths[handle] = path
        return handle

    def unlock(self, lock: int) -> None:
        self._locks.pop(self._lock_paths.pop(lock), None)

    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    # -- what a test does to it

    @classmethod
    def replay(cls, trace: Sequence[Operation], *, capacity: int = 1 << 40) -> MemoryDisk:
        """The disk after exactly these operations, nothing locked and nothing open."""
        disk = cls(capacity=capacity)
        for name, arguments in trace:
            disk._do(name, *arguments)
        return disk

    def crash(self, rng: random.Random, *, keep: float = 0.5) -> MemoryDisk:
        """The disk after a power cut now, in the machine's next boot; this one is left as it was.

        `keep` is the chance that an unsynced write survives; one that does may still be torn.
        """
        after = MemoryDisk(capacity=self.capacity)
        after.boots = self.boots + 1
        names = dict(self._durable)
        for directory in sorted(self._directory_changes):
            changes = self._directory_changes[directory]
            kept = rng.randint(0, len(changes)) if keep > 0 else 0
            for path, number, present in changes[:kept]:
                if present:
                    names[path] = number
                else:
                    names.pop(path, None)
        for path in sorted(names, key=len):
            number = names[path]
            if path == "/" or os.path.dirname(path) not in after._live:
                continue
            if number is None:
                after._place(path, None)
            else:
                after._place(path, _survivors(self._files[number], rng, keep))
        return after

    def process_died(self) -> None:
        """Handles and locks are gone; what is written stays, unsynced where it was."""
        self.fault = None
        self.open_handles = 0
        self._handles.clear()
        self._locks.clear()
        self._lock_paths.clear()

    def clone(self) -> MemoryDisk:
        """The same live bytes, all of them synced, nothing locked: what a new process finds."""
        after = MemoryDisk(capacity=self.capacity)
        after.boots = self.boots
        for path in sorted(self._live, key=len):
            number = self._live[path]
            if path != "/":
                after._place(path, None if number is None else self._files[number].live.copy())
        return after

    def paths(self) -> list[str]:
        """Every file, sorted."""
        return sorted(path for path, number in self._live.items() if number is not None)

    def content(self, path: str) -> bytearray:
        """The live bytes of a file, to be looked at or damaged in place (outside the trace)."""
        number = self._live[path]
        assert number is not None, path
        self._files[number].is_shown = True
        return self._files[number].live.hand_out()

    # -- operations

    def _place(self, path: str, content: _Content | None) -> None:
        if content is None:
            self._live[path] = self._durable[path] = None
        else:
            self._files.append(_File(content, content.copy()))
            self._live[path] = self._durable[path] = len(self._files) - 1

    def _do(self, name: str, *arguments: object) -> None:
        self.trace.append((name, arguments))
        getattr(self, f"_do_{name}")(*arguments)

    def _do_create(self, path: str) -> None:
        if os.path.dirname(path) not in self._live:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self._files.append(_File())
        self._change(path, len(self._files) - 1, True)

    def _do_write(self, number: int, offset: int, data: bytes) -> None:
        self._files[number].write(offset, data)

    def _do_truncate(self, number: int, length: int) -> None:
        self._files[number].truncate(length)

    def _do_sync(self, number: int) -> None:
        self._files[number].sync()

    def _do_mkdir(self, path: str) -> None:
        self._change(path, None, True)

    def _do_unlink(self, path: str) -> None:
        self._change(path, None, False)

    def _do_rename(self, source: str, target: str) -> None:
        number = self._live[source]
        self._change(target, number, True)
        self._change(source, None, False)

    def _do_sync_directory(self, path: str) -> None:
        for name, number, present in self._directory_changes.pop(path, []):
            if present:
                self._durable[name] = number
            else:
                self._durable.pop(name, None)

    def _change(self, path: str, number: int | None, present: bool) -> None:
        if present:
            self._live[path] = number
        else:
            self._live.pop(path, None)
        changes = self._directory_changes.setdefault(os.path.dirname(path), [])
        changes.append((path, number, present))

    def _check(self, operation: str, path: str) -> None:
        if self.fault is not None and (error := self.fault(operation, path)) is not None:
            raise error

    def _used(self) -> int:
        return sum(len(self._files[n].live) for n in self._live.values() if n is not None)

    def _grow(self, number: int, length: int) -> None:
        more = length - len(self._files[number].live)
        if more > 0 and self.capacity < (1 << 40) and self._used() + more > self.capacity:
            raise OSError(errno.ENOSPC, "no space left on device")


def _survivors(file: _File, rng: random.Random, keep: float) -> _Content:
    content = file.synced.copy()
    for offset, data in file.unsynced:
        if rng.random() >= keep:
            continue
        if data is None or rng.random() < 0.5:
            content.perform(offset, data)
        else:
            content.write(offset, data[: rng.randint(0, len(data))])
    return content

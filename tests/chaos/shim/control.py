"""Tells a process that preloads the shim how its disk and its wall clock are to fail, from now on.

    shim = Shim(tmp_path / "faults")
    start(command, env=env | shim.environment())
    rule = shim.fail(SYNC, errno.EIO, match=str(data), times=1)
    eventually("it failed", lambda: rule.done)
    shim.clear()

`match` is part of a path: name at least the data directory, or the interpreter's own files fail,
too. A rule holds for the operations it names (SYNC | WRITE, ...). At most RULES stand at a time;
of those that match one call, delays are all kept and the first other one strikes.
"""

from __future__ import annotations

import errno
import functools
import hashlib
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SYNC, WRITE, READ, ALLOCATE, OPEN = 1, 2, 4, 8, 16
"""fsync and fdatasync; write and its kin; read and its kin; truncate and fallocate; opens that may
create."""
RULES = 8

_FAIL, _SHORTEN, _DELAY, _LIE, _FLIP = 1, 2, 3, 4, 5
_SOURCE = Path(__file__).with_name("faultshim.c")
_MAGIC = b"FAULTSH2"
_HEAD = struct.Struct("<8sqqq64s")
_RULE = struct.Struct("<IIiiqqqq192s")
_WALL_NS, _WALL_READS, _ATTACHED, _BOOT_ID = 8, 16, 24, 32
_LEFT, _SEEN, _DONE = 12, 32, 40
_INT64 = struct.Struct("<q")
_INT32 = struct.Struct("<i")


class ShimUnavailable(Exception):
    """The shim can't be built here."""


@functools.cache
def library() -> Path:
    """The shim, built from its source if that has not been done. Raises ShimUnavailable."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise ShimUnavailable("no C compiler")
    name = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"goqueue-faultshim-{os.getuid()}-{name}.so"
    if not built.exists():
        partly = built.with_suffix(f".{os.getpid()}")
        command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(partly), str(_SOURCE), "-ldl"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise ShimUnavailable(f"the shim does not compile: {made.stderr[-500:]}")
        partly.replace(built)
    return built


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule that was given, by its place."""

    shim: Shim
    at: int

    @property
    def seen(self) -> int:
        """Calls that it matched."""
        return self.shim.read(self.at + _SEEN)

    @property
    def done(self) -> int:
        """Calls that it struck: what really failed."""
        return self.shim.read(self.at + _DONE)

    def end(self) -> None:
        """It strikes no more; its counts stay."""
        self.shim.write(self.at + _LEFT, 0, _INT32)


class Shim:
    """The control file of one process. Give each process its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        size = _HEAD.size + RULES * _RULE.size
        path.write_bytes(_HEAD.pack(_MAGIC, 0, 0, 0, b"").ljust(size, b"\0"))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._next = 0

    def environment(self) -> dict[str, str]:
        """What the process needs. Raises ShimUnavailable."""
        return {"LD_PRELOAD": str(library()), "FAULTSHIM_FILE": str(self.path.absolute())}

    def close(self) -> None:
        self._map.close()

    @property
    def is_attached(self) -> bool:
        """Whether a process has it."""
        return self.read(_ATTACHED) > 0

    def fail(
        self, operations: int, error: int, *, match: str, times: int = -1, skip: int = 0
    ) -> Rule:
        """Such calls fail with this errno: all from the first one on that is not skipped, or so
        many. A failed call does nothing."""
        return self._rule(operations, _FAIL, match, times, skip, error=error)

    def fill(self, *, match: str) -> Rule:
        """No byte more, no new file: ENOSPC. Files that were allocated are written still."""
        return self.fail(ALLOCATE | OPEN, errno.ENOSPC, match=match)

    def shorten(self, *, match: str, times: int = -1, skip: int = 0) -> Rule:
        """Writes do half of what they are asked for, and say so."""
        return self._rule(WRITE, _SHORTEN, match, times, skip)

    def delay(
        self, operations: int, seconds: float, *, match: str, times: int = -1, skip: int = 0
    ) -> Rule:
        """Such calls take so much longer."""
        return self._rule(operations, _DELAY, match, times, skip, delay_us=int(seconds * 1e6))

    def lie(self, *, match: str, times: int = -1, skip: int = 0) -> Rule:
        """Syncs succeed and do nothing."""
        return self._rule(SYNC, _LIE, match, times, skip)

    def flip(self, *, match: str, times: int = -1, skip: int = 0) -> Rule:
        """Reads of one buffer have a wrong bit in the middle."""
        return self._rule(READ, _FLIP, match, times, skip)

    def set_wall(self, seconds: float) -> None:
        """The wall clock is so far ahead, or behind, of the machine's."""
        self.write(_WALL_READS, 0)
        self.write(_WALL_NS, int(seconds * 1e9))

    @property
    def wall_reads(self) -> int:
        """How often the wall clock was read since it was set, while it was off."""
        return self.read(_WALL_READS)

    def set_boot_id(self, boot_id: str) -> None:
        """What the process takes for the kernel's: another one tells of a start of the machine."""
        text = boot_id.encode()
        self._map[_BOOT_ID : _BOOT_ID + 64] = text[:63].ljust(64, b"\0")

    def clear(self) -> None:
        """No rule stands; the wall clock and the boot id stay."""
        for number in range(RULES):
            self._map[_place(number) : _place(number + 1)] = bytes(_RULE.size)
        self._next = 0

    def read(self, at: int) -> int:
        value: int = _INT64.unpack_from(self._map, at)[0]
        return value

    def write(self, at: int, value: int, kind: struct.Struct = _INT64) -> None:
        kind.pack_into(self._map, at, value)

    def _rule(
        self,
        operations: int,
        action: int,
        match: str,
        times: int,
        skip: int,
        *,
        error: int = 0,
        delay_us: int = 0,
    ) -> Rule:
        if self._next == RULES:
            raise ValueError(f"{RULES} rules stand already")
        at = _place(self._next)
        self._next += 1
        path = match.encode()
        if not 0 < len(path) < 192:
            raise ValueError(f"not a part of a path: {match!r}")
        packed = _RULE.pack(0, action, error, times, skip, delay_us, 0, 0, path)
        self._map[at : at + _RULE.size] = packed
        self._map[at : at + 4] = struct.pack("<I", operations)
        return Rule(self, at)


def _place(number: int) -> int:
    return _HEAD.size + number * _RULE.size

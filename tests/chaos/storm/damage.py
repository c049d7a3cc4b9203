"""Damage to the files of one node: flipped bits, zeros, junk, and files cut short."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

KINDS = ("bit", "zeros", "junk", "truncate")
SPAN_BYTES_MAX = 4096
_HOLDS_NOTHING = ("LOCK", "RESERVE", "ballast", "spare")
_AWAY = "set-aside"
_NUMBER = re.compile(r"[0-9a-f]*[0-9][0-9a-f]*")


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done to one file; `is_done`: it differs from what it was."""

    file: str
    kind: str
    at: int
    length: int
    is_done: bool

    def __str__(self) -> str:
        return f"{self.kind} of {self.length} at {self.at} in {self.file}"


def damage(folder: Path, rng: random.Random) -> Damage | None:
    """Damages one file of a data directory, each kind of file as often as another; None where
    there is nothing to damage."""
    by_kind: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        kind = _NUMBER.sub("", path.name)
        if _AWAY in path.relative_to(folder).parts or kind in _HOLDS_NOTHING:
            continue
        if path.is_file() and _used(path):
            by_kind.setdefault(kind, []).append(path)
    if not by_kind:
        return None
    path = rng.choice(by_kind[rng.choice(sorted(by_kind))])
    return _strike(path, folder, rng)


def _strike(path: Path, folder: Path, rng: random.Random) -> Damage | None:
    """None where the running node has emptied the file meanwhile."""
    used = _used(path)
    if not used:
        return None
    at = rng.randrange(used)
    length = min(used - at, rng.randrange(1, SPAN_BYTES_MAX))
    kind = rng.choice(KINDS)
    handle = os.open(path, os.O_RDWR)
    try:
        before = os.pread(handle, length, at)
        if kind == "truncate":
            length = os.fstat(handle).st_size - at
            os.ftruncate(handle, at)
            is_done = True
        else:
            change = _CHANGES[kind](before, rng)
            length = len(change)
            os.pwrite(handle, change, at)
            is_done = os.pread(handle, length, at) != before[:length]
    finally:
        os.close(handle)
    return Damage(str(path.relative_to(folder)), kind, at, length, is_done)


def _flip(data: bytes, rng: random.Random) -> bytes:
    return bytes([data[0] ^ (1 << rng.randrange(8))])


_CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "bit": _flip,
    "zeros": lambda data, _: bytes(len(data)),
    "junk": lambda data, rng: rng.randbytes(len(data)),
}


def _used(path: Path) -> int:
    """Bytes of the file up to the last that is not zero: what was allocated ahead is no data."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            while size:
                start = max(0, size - (1 << 20))
                file.seek(start)
                kept = len(file.read(size - start).rstrip(b"\0"))
                if kept:
                    return start + kept
                size = start
    except FileNotFoundError:
        pass
    return 0

"""Other queues in a directory, one row at a time, in a process of their own that prints a figure.

    python benchmarks/small_queues.py KIND WORK FOLDER SECONDS

It stands alone, so that an environment which holds nothing but these queues can run it. All of them
sync each put and each ack: that is what they are compared by. What was stored is counted, and read
back.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

ITEM = b"x" * 100
FRAME_BYTES, PREALLOCATED_BYTES = 128, 8 << 20
STORED = 2_000
"""What there is to take out."""


class Peer(Protocol):
    """A queue that is open in a folder."""

    def put(self, item: bytes) -> None: ...

    def take(self) -> None:
        """Take one out, check it, and be done with it: both durable."""
        ...

    def fill(self, count: int) -> None: ...

    def count(self) -> int:
        """What is stored, and not taken out; read from where it is stored."""
        ...


class Bare:
    """What any of them does at least: a write into preallocated space, and a sync."""

    def __init__(self, folder: str) -> None:
        self._file = os.open(os.path.join(folder, "bare"), os.O_CREAT | os.O_RDWR)
        os.pwrite(self._file, bytes(PREALLOCATED_BYTES), 0)
        os.fsync(self._file)
        self._at = 0

    def put(self, item: bytes) -> None:
        os.pwrite(self._file, item.ljust(FRAME_BYTES, b"\n"), self._at % PREALLOCATED_BYTES)
        os.fdatasync(self._file)
        self._at += FRAME_BYTES

    def count(self) -> int:
        with open(self._file, "rb", closefd=False) as stored:
            stored.seek(0)
            frames = stored.read(min(self._at, PREALLOCATED_BYTES))
        frame = ITEM.ljust(FRAME_BYTES, b"\n")
        whole = len(frames) // FRAME_BYTES
        if frames != frame * whole:
            raise RuntimeError("other bytes than were written")
        return max(whole, self._at // FRAME_BYTES)


class Sqlite:
    """A table of the standard library's SQLite: in WAL mode, and synced at each commit."""

    def __init__(self, folder: str) -> None:
        self._base = sqlite3.connect(os.path.join(folder, "base"), isolation_level=None)
        self._base.execute("PRAGMA journal_mode=WAL")
        self._base.execute("PRAGMA synchronous=FULL")
        self._base.execute(
            "CREATE TABLE items (id INTEGER PRIMARY KEY, value BLOB, leased REAL DEFAULT 0)"
        )
        self._base.execute("CREATE INDEX ready ON items (leased, id)")
        self._ready()

    def _ready(self) -> None:
        modes = [self._base.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS]
        if modes != ["wal", 2]:
            raise RuntimeError(f"not synced: {modes}")

    def put(self, item: bytes) -> None:
        self._base.execute("INSERT INTO items (value) VALUES (?)", (item,))

    def take(self) -> None:
        # as those queues do it that lease: it is another's no more, and then it is gone
        found = self._base.execute(
            "UPDATE items SET leased = ? WHERE id ="
            " (SELECT id FROM items WHERE leased = 0 ORDER BY id LIMIT 1) RETURNING id, value",
            (time.time(),),
        ).fetchall()
        ((id, value),) = found
        _check(value)
        self._base.execute("DELETE FROM items WHERE id = ?", (id,))

    def fill(self, count: int) -> None:
        self._base.execute("BEGIN")
        self._base.executemany("INSERT INTO items (value) VALUES (?)", [(ITEM,)] * count)
        self._base.execute("COMMIT")

    def count(self) -> int:
        (count, sizes) = self._base.execute(
            "SELECT count(*), coalesce(sum(length(value)), 0) FROM items"
        ).fetchone()
        if sizes != count * len(ITEM):
            raise RuntimeError("other bytes than were put")
        return int(count)


class LiteQueue:
    """The package litequeue, its connection set to sync at each commit."""

    def __init__(self, folder: str) -> None:
        import litequeue  # type: ignore[import-not-found, unused-ignore]

        self._queue: Any = litequeue.LiteQueue(os.path.join(folder, "queue"))
        self._queue.conn.execute("PRAGMA synchronous=FULL")
        modes = [self._queue.conn.execute(f"PRAGMA {name}").fetchone()[0] for name in _PRAGMAS]
        if modes != ["wal", 2]:
            raise RuntimeError(f"not synced: {modes}")

    def put(self, item: bytes) -> None:
        self._queue.put(item.decode())

    def take(self) -> None:
        message = self._queue.pop()
        _check(message.data.encode())
        self._queue.done(message.message_id)

    def fill(self, count: int) -> None:
        self._queue.conn.execute("PRAGMA synchronous=OFF")
        for _ in range(count):
            self.put(ITEM)
        self._queue.conn.execute("PRAGMA synchronous=FULL")

    def count(self) -> int:
        return int(self._queue.qsize())


class PersistQueue:
    """The package persist-queue: its queue with acks, which commits each call."""

    def __init__(self, folder: str) -> None:
        import persistqueue  # type: ignore[import-not-found, unused-ignore]

        self._queue: Any = persistqueue.SQLiteAckQueue(folder, auto_commit=True)
        for base in (self._queue._putter, self._queue._getter):
            base.execute("PRAGMA synchronous=FULL")

    def put(self, item: bytes) -> None:
        self._queue.put(item)

    def take(self) -> None:
        item = self._queue.get()
        _check(item)
        self._queue.ack(item)

    def fill(self, count: int) -> None:
        for base in (self._queue._putter, self._queue._getter):
            base.execute("PRAGMA synchronous=OFF")
        for _ in range(count):
            self.put(ITEM)
        for base in (self._queue._putter, self._queue._getter):
            base.execute("PRAGMA synchronous=FULL")

    def count(self) -> int:
        return int(self._queue.size)


_PRAGMAS = ("journal_mode", "synchronous")
KINDS: dict[str, Callable[[str], Any]] = {
    "bare": Bare,
    "sqlite": Sqlite,
    "litequeue": LiteQueue,
    "persist-queue": PersistQueue,
}


def measure(peer: Peer, work: str, seconds: float, clock: Callable[[], float]) -> dict[str, float]:
    """How many a second. Raises RuntimeError where something else is stored than was done."""
    before = 0
    if work == "take":
        before = STORED
        peer.fill(before)
    act = peer.take if work == "take" else (lambda: peer.put(ITEM))
    done, began = 0, clock()
    while (took := clock() - began) < seconds and (work == "put" or done < before):
        act()
        done += 1
    left = before - done if work == "take" else done
    if peer.count() != left:
        raise RuntimeError(f"{peer.count()} are stored, and should be {left}")
    return {"rate": done / took, "count": done}


def _check(value: bytes) -> None:
    if value != ITEM:
        raise RuntimeError("other bytes than were put")


if __name__ == "__main__":
    _, kind, work, folder, seconds = sys.argv
    os.makedirs(folder)
    print(json.dumps(measure(KINDS[kind](folder), work, float(seconds), time.perf_counter)))

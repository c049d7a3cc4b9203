"""Blocks of the write-ahead log that are on disk, and on their way into segments.

Segments are appended to by a thread of their own, so that a block whose frames make many files, as
those of a topic's first entries do, holds up no later block's sync. Nobody waits for it, so blocks
wait for each other, and are appended in one write: a thread that is woken for each takes the
interpreter from the loop each time.
"""

from __future__ import annotations

import threading

from log.store.flush import FlushJob

SPILL_S = 0.05
SPILL_BYTES = 1 << 20
"""For how long, and up to which size, blocks wait for each other: they are in the write-ahead log,
and in memory."""
BEHIND_BYTES_MAX = 32 << 20
"""So much may be in memory that no segment has: the writer waits where it is more."""


class Spills:
    """What one thread puts, and another takes. A crash loses nothing: all of it is in the
    write-ahead log."""

    def __init__(self, behind_bytes_max: int = BEHIND_BYTES_MAX) -> None:
        self._behind_bytes_max = behind_bytes_max
        lock = threading.Lock()
        self._comes = threading.Condition(lock)
        """There is something, or nothing will come any more."""
        self._due = threading.Condition(lock)
        """It is to be taken now."""
        self._has_room = threading.Condition(lock)
        self._job: FlushJob | None = None
        """All that waits, as one."""
        self._count = 0
        self._taken_bytes = 0
        self._hurries = False
        self._ended = False

    def put(self, job: FlushJob) -> None:
        """Behind the others. Waits while too much is behind, but not after `end`."""
        with self._comes:
            if self._job is None:
                self._comes.notify()
            else:
                job.spill_after(self._job)
            self._job = job
            self._count += 1
            if job.spill_bytes >= SPILL_BYTES:
                self._due.notify()
            while self._behind_bytes > self._behind_bytes_max and not self._ended:
                self._due.notify()
                self._has_room.wait()

    def take(self) -> tuple[FlushJob, int] | None:
        """All that waits, or what comes next and some time after, as one, and how many it stands
        for; what was taken before is done. None after `end`, when nothing is left."""
        with self._comes:
            self._taken_bytes = 0
            self._has_room.notify()
            while self._job is None:
                if self._ended:
                    return None
                self._comes.wait()
            if not (self._hurries or self._ended or self._job.spill_bytes >= SPILL_BYTES):
                self._due.wait(SPILL_S)
            job, count = self._job, self._count
            self._job, self._count = None, 0
            self._hurries = False
            self._taken_bytes = job.spill_bytes
            return job, count

    def hurry(self) -> None:
        """Somebody waits for what was put, or will be put next."""
        with self._comes:
            self._hurries = True
            self._due.notify()

    def end(self) -> None:
        """Nothing is put any more. Idempotent."""
        with self._comes:
            self._ended = True
            for waiting in (self._comes, self._due, self._has_room):
                waiting.notify_all()

    # -- private: under the lock

    @property
    def _behind_bytes(self) -> int:
        waiting = self._job.spill_bytes if self._job is not None else 0
        return waiting + self._taken_bytes

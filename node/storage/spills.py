"""Blocks of the write-ahead log that are on disk, and on their way into segments.

Segments are appended to by a thread of their own, so that a block whose frames make many files, as
those of a topic's first entries do, holds up no later block's sync. What comes meanwhile is
appended in one write.
"""

from __future__ import annotations

import threading

from log.store.flush import FlushJob

BEHIND_BYTES_MAX = 32 << 20
"""So much may be in memory that no segment has: the writer waits where it is more."""


class Spills:
    """What one thread puts, and another takes. A crash loses nothing: all of it is in the
    write-ahead log."""

    def __init__(self, behind_bytes_max: int = BEHIND_BYTES_MAX) -> None:
        self._behind_bytes_max = behind_bytes_max
        self._changed = threading.Condition()
        self._job: FlushJob | None = None
        """All that waits, as one."""
        self._count = 0
        self._taken_bytes = 0
        self._ended = False

    def put(self, job: FlushJob) -> None:
        """Behind the others. Waits while too much is behind, but not after `end`."""
        with self._changed:
            if self._job is not None:
                job.spill_after(self._job)
            self._job = job
            self._count += 1
            self._changed.notify_all()
            while self._behind_bytes > self._behind_bytes_max and not self._ended:
                self._changed.wait()

    def take(self) -> tuple[FlushJob, int] | None:
        """All that waits, or what comes next, as one, and how many it stands for; what was taken
        before is done. None after `end`, when nothing is left."""
        with self._changed:
            self._taken_bytes = 0
            self._changed.notify_all()
            while self._job is None:
                if self._ended:
                    return None
                self._changed.wait()
            job, count = self._job, self._count
            self._job, self._count = None, 0
            self._taken_bytes = job.spill_bytes
            return job, count

    def end(self) -> None:
        """Nothing is put any more. Idempotent."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    # -- private: under the lock

    @property
    def _behind_bytes(self) -> int:
        waiting = self._job.spill_bytes if self._job is not None else 0
        return waiting + self._taken_bytes

"""From the write-ahead log to the segments: what a flush wrote, in the same order.

A full disk keeps the rest for the next try, in memory and in the write-ahead log; nothing is lost
by it, but write-ahead files cannot be dropped meanwhile.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from goqueue.wire.types import Lsn, PartitionId
from log.disk.files import is_full
from log.disk.space import Space
from log.entry import Entry
from log.partition.journal import Reattach, Step
from log.segments.chain import PartitionSegments
from log.wal.install import Install


@dataclass(slots=True)
class SpillBatch:
    """One flush's steps, per group in order; they are spilled once the flush is on disk."""

    lsn: Lsn = Lsn(0)  # noqa: RUF009
    end_lsn: Lsn = Lsn(0)  # noqa: RUF009
    steps: list[tuple[PartitionSegments, Step]] = field(default_factory=list)
    partition_ids: dict[PartitionSegments, PartitionId] = field(default_factory=dict)
    _runs: dict[PartitionSegments, list[Entry]] = field(default_factory=dict)

    def add(self, partition_id: PartitionId, segments: PartitionSegments, step: Step) -> None:
        """Queues a step behind this group's earlier ones; appends in a row become one."""
        if isinstance(step, int | Install | Reattach) or step is None:
            self._runs.pop(segments, None)
            self.steps.append((segments, step))
        elif (run := self._runs.get(segments)) is not None:
            run += step
            return
        else:
            run = self._runs[segments] = list(step)
            self.steps.append((segments, run))
        self.partition_ids[segments] = partition_id

    def extend(self, later: SpillBatch) -> None:
        """Takes over the steps of the flush that came next: entries of both are one write."""
        for segments, step in later.steps:
            self.add(later.partition_ids[segments], segments, step)
        self.end_lsn = later.end_lsn


@dataclass(slots=True)
class SpillDone:
    """What a spilled batch leaves for the next checkpoint to sync and to record."""

    end_lsn: Lsn
    size_bytes: int
    indexes: dict[PartitionId, int]
    """The last entry in segments, as of this LSN, of each group in the batch."""
    touched: set[str]


@dataclass(slots=True)
class Spiller:
    """Runs on one thread at a time; the loop's thread takes from `done`."""

    space: Space
    full: bool = False
    error: OSError | None = None
    backlog: deque[SpillBatch] = field(default_factory=deque)
    done: deque[SpillDone] = field(default_factory=deque)

    def run(self, batch: SpillBatch) -> None:
        """Spills this batch after those left over. Never raises: see `full` and `error`."""
        self.backlog.append(batch)
        while self.backlog and self.error is None:
            try:
                self._spill(self.backlog[0])
            except OSError as error:
                if not is_full(error):
                    self.error = error
                    return
                self.full = True
                if not self.space.release():
                    return
                continue
            self.full = False
            self._finish(self.backlog.popleft())

    def _finish(self, batch: SpillBatch) -> None:
        touched: set[str] = set()
        for segments in batch.partition_ids:
            touched |= segments.touched
            segments.touched = set()
        indexes = {
            partition_id: segments.last_index
            for segments, partition_id in batch.partition_ids.items()
        }
        self.done.append(SpillDone(batch.end_lsn, batch.end_lsn - batch.lsn, indexes, touched))

    @staticmethod
    def _spill(batch: SpillBatch) -> None:
        steps = batch.steps
        while steps:
            segments, step = steps[0]
            if step is None:
                segments.remove_all()
            elif isinstance(step, int):
                segments.truncate(step)
            elif isinstance(step, Install):
                segments.install(step)
            elif isinstance(step, Reattach):
                segments.reattach()
            else:
                segments.append(step)
            del steps[0]

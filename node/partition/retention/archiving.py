"""How far one partition is archived, as its leader sees it: which entries may go, and by how much
the archive lags behind.

Whether messages wait for the archive is asked of the topic's settings and of the partition's log:
while the one has not reached the other, they wait.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from coordinator.topics.settings import TopicConfig
from delivery.state.partition import PartitionState
from goqueue.wire.types import Index, Offset
from log.errors import LogError
from log.partition.log import PartitionLog
from node.api.archive import PartitionArchive
from node.partition.reading.reader import PartitionReader


class Archiving:
    """Of one replica. Loop thread only."""

    def __init__(
        self,
        log: PartitionLog,
        state: PartitionState,
        reader: PartitionReader,
        config: Callable[[], TopicConfig],
    ) -> None:
        self._log = log
        self._state = state
        self._reader = reader
        self._config = config
        self._met: tuple[Offset, int] = Offset(-1), 0
        """The first message that is not archived, when that was looked up last, and its time."""

    @property
    def is_required(self) -> bool:
        return self._config().require_archive or self._state.queue.archive.required

    @property
    def is_used(self) -> bool:
        """Whether there is anything to tell."""
        return self.is_required or not self._state.queue.archive.is_unused

    @property
    def position(self) -> Offset:
        return Offset(self._state.queue.archive.position)

    def end_index(self) -> Index:
        """The first entry that must stay for the archive's sake: one that holds a message which is
        not archived; past what is applied where there is none."""
        state = self._state
        end = Index(state.applied_index + 1)
        if not self.is_required or self.position >= state.next_offset:
            return end
        found: Index | None = None
        with suppress(LogError):  # who heals the log knows of it
            found = self._log.locate_offset(max(self.position, state.log_start_offset))
        return state.log_start_index if found is None else min(found, end)

    @property
    def holds_kept(self) -> bool:
        """Whether something that compaction has kept before the log's start is not archived."""
        kept = self._state.queue.compacted
        return self.is_required and bool(kept) and kept.max() >= self.position

    def may_drop(self, offset: Offset) -> bool:
        """Whether the log may begin there, and nothing of what is before stays."""
        return self._state.may_drop(offset, required=self.is_required)

    def standing(self, now_ms: int) -> PartitionArchive:
        """How far the archive is, and how far behind: by how many messages, and for how long the
        first of them has been there."""
        state, archive = self._state, self._state.queue.archive
        first = max(self.position, state.first_offset)
        return PartitionArchive(
            archive.location,
            archive.position,
            archive.time_ms,
            self.is_required,
            self._unarchived(),
            max(0, now_ms - self._time_at(first)) if first < state.next_offset else 0,
        )

    def _unarchived(self) -> int:
        state = self._state
        in_log = state.next_offset - max(self.position, state.log_start_offset)
        kept = state.queue.compacted
        return in_log + (kept.range_cardinality(self.position, 1 << 63) if kept else 0)

    def _time_at(self, offset: Offset) -> int:
        """Its log time; looked up once, as it asks the disk where it is old."""
        if self._met[0] != offset:
            self._met = offset, self._reader.time_at(offset) or self._state.time_ms
        return self._met[1]

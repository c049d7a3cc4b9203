"""A checkpoint: segments synced up to an LSN, so that older write-ahead files can go."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from goqueue.wire.types import Index, Lsn, PartitionId
from log.config import StorageConfig
from log.disk.descriptors import Descriptors
from log.disk.files import is_full
from log.disk.space import Space
from log.errors import EntryDamaged, InstallRefused
from log.partition.log import PartitionLog
from log.segments.segment import Segment
from log.store.spill import SpillDone
from log.wal.format import CheckpointItem, LogMeta
from log.wal.writer import WalFile, WalWriter


@dataclass(slots=True)
class CheckpointJob:
    """Runs on any one thread, beside flushes.

    After `run`, of all groups that have segments everything up to `lsn` is synced there. It counts
    only once the record that says so is durable; files are dropped by the checkpoint after that.
    """

    lsn: Lsn
    files: Descriptors
    writer: WalWriter
    space: Space
    touched: list[str]
    """Files and directories to sync."""
    dropped_files: list[WalFile]
    dropped_segments: list[Segment]
    indexes: dict[PartitionId, int]
    """The last entry in segments, as of `lsn`, of each group that changed."""
    full: bool = False
    """There was no room for what a full disk is prepared with: the next one tries again."""
    segments_gone: int = 0
    files_gone: int = 0
    """How many of those to drop are dropped; the next job goes on with the others."""
    _dropping: threading.Lock = field(default_factory=threading.Lock)
    """Held while the files of one segment are deleted."""

    def run(self) -> None:
        """Raises OSError where something cannot be synced: the store then fails."""
        disk = self.files.disk
        for path in self.touched:
            try:
                if path.endswith("/"):
                    disk.sync_directory(path[:-1])
                    continue
                self.files.sync(path)
            except FileNotFoundError:
                continue  # truncated away, or its group was removed, since
        try:
            self._drop()
            if self._old_files_left != 1:  # else the next checkpoint makes that one the spare
                self.writer.prepare_spare()
            self.space.reserve()
        except OSError as error:
            if not is_full(error):
                raise
            self.full = True

    def _drop(self) -> None:
        """On some file systems a full disk has no room for a deletion either."""
        while self._drop_next():
            pass
        for file in self.dropped_files:
            self.writer.retire(file)
            self.files_gone += 1

    def _drop_next(self) -> bool:
        with self._dropping:
            if self.segments_gone == len(self.dropped_segments):
                return False
            self.dropped_segments[self.segments_gone].remove()
            self.segments_gone += 1
        return True

    def forget(self, log: PartitionLog) -> None:
        """Files of this log are not dropped any more. On any thread: waits for those of one segment
        that are being deleted."""
        with self._dropping:
            gone = self.dropped_segments[: self.segments_gone]
            left = self.dropped_segments[self.segments_gone :]
            self.dropped_segments = gone + _others(log, left)

    @property
    def _old_files_left(self) -> int:
        return len(self.writer.files) - 1 - len(self.dropped_files)


@dataclass(slots=True)
class Checkpoints:
    """What the next checkpoint has to sync, and what earlier ones allow to drop.

    Belongs to the loop's thread.
    """

    config: StorageConfig
    files: Descriptors
    writer: WalWriter
    space: Space
    lsn: Lsn
    """The newest checkpoint's."""
    droppable_lsn: Lsn
    """The newest durable checkpoint's: files that end at or before it may go."""
    job: CheckpointJob | None = None
    urgent: bool = False
    """Older files are to go soon, though little was spilled."""
    _indexes: dict[PartitionId, int] = field(default_factory=dict)
    _touched: set[str] = field(default_factory=set)
    _spilled_bytes: int = 0
    _records: deque[tuple[Lsn, Lsn]] = field(default_factory=deque)
    _doomed: deque[tuple[Lsn, list[Segment]]] = field(default_factory=deque)

    def spilled(self, done: SpillDone) -> None:
        """Takes notice of a spill."""
        self._indexes |= done.indexes
        self._touched |= done.touched
        self._spilled_bytes += done.size_bytes

    def settle(self, durable_lsn: Lsn) -> None:
        """Checkpoints whose records are durable count from now on."""
        while self._records and self._records[0][0] <= durable_lsn:
            self.droppable_lsn = self._records.popleft()[1]

    @property
    def due(self) -> bool:
        """Whether enough was spilled since the last one, into enough files, or write-ahead files
        wait to be dropped."""
        enough = self._spilled_bytes >= self.config.checkpoint_bytes or self.files.is_crowded
        return enough or bool(self._old_files()) or self._is_urgent

    def take(self, spilled_lsn: Lsn, durable_lsn: Lsn) -> CheckpointJob | None:
        """The next job; None where there is nothing to sync or to drop."""
        old = self._old_files()
        doomed = self._doomed_segments(durable_lsn)
        if not (old or doomed or self._indexes or self._is_behind):
            return None
        self.job = CheckpointJob(
            spilled_lsn,
            self.files,
            self.writer,
            self.space,
            sorted(self._touched),
            old,
            doomed,
            self._indexes,
        )
        self._indexes, self._touched, self._spilled_bytes = {}, set(), 0
        return self.job

    def complete(
        self, job: CheckpointJob, logs: Mapping[PartitionId, PartitionLog]
    ) -> list[CheckpointItem] | None:
        """Ends the job; what to record of it, None for nothing.

        A group truncated past the job's LSN is checkpointed below the truncation only.
        """
        assert job is self.job, "not the checkpoint in flight"
        self.job = None
        del self.writer.files[: job.files_gone]
        left = job.dropped_segments[job.segments_gone :]
        if left:
            self._doomed.appendleft((Lsn(0), left))
        self.urgent = self.urgent and len(self.writer.files) > 1
        if job.lsn <= self.lsn:
            return None
        self.lsn = job.lsn
        items = []
        for partition_id, index in sorted(job.indexes.items()):
            log = logs.get(partition_id)
            if log is not None and max(log.created_lsn, log.installed_lsn) <= job.lsn:
                lowered = min(index, log.lowest_truncation(job.lsn) - 1)
                items.append(CheckpointItem(partition_id, index, lowered))
        return items

    def recorded(self, record_lsn: Lsn, lsn: Lsn) -> None:
        """The checkpoint at `lsn` will be durable with this record."""
        self._records.append((record_lsn, lsn))

    def retire_segments(
        self, logs: Iterable[PartitionLog], metas: Mapping[PartitionId, LogMeta]
    ) -> None:
        """Moves logs' starts past segments that are trimmed, checkpointed and in snapshots.

        `metas` tell what is checkpointed. Files go once the new start is durable.
        """
        for log in logs:
            if log.trim_index <= log.first_index or (meta := metas.get(log.id)) is None:
                continue
            limit = min(log.removable_below(), meta.checkpoint_index + 1)
            if limit <= log.first_index:
                continue
            removed = log.disk_segments.removable(limit)
            if removed:
                try:
                    lsn = log.start_at(Index(removed[-1].last_index + 1))
                except EntryDamaged:
                    continue  # a quarantined group keeps its files, and holds up no other
                log.disk_segments.remove_below(log.first_index)
                self._doomed.append((lsn, removed))

    def disown(self, log: PartitionLog) -> None:
        """Segments of this log that were to be dropped are another's from now on, by name.

        Raises InstallRefused while a job may be dropping them: it will be over soon.
        """
        dropped = self.job.dropped_segments if self.job is not None else []
        if any(log.disk_segments.owns(segment) for segment in dropped):
            raise InstallRefused(f"group {log.id}: its trimmed segments are being deleted")
        self._spare(log)

    def forget(self, log: PartitionLog) -> None:
        """Its group is removed, with all files. One made later has files of these names."""
        self._spare(log)
        if self.job is not None:
            self.job.forget(log)

    def _spare(self, log: PartitionLog) -> None:
        for at, (lsn, segments) in enumerate(self._doomed):
            self._doomed[at] = (lsn, _others(log, segments))

    @property
    def _is_urgent(self) -> bool:
        """Whether another checkpoint lets a file go that is to go."""
        return self.urgent and self._is_behind

    @property
    def _is_behind(self) -> bool:
        """Whether another checkpoint lets a file go, also where no segment has changed."""
        files = self.writer.files
        return len(files) > 1 and self.lsn < files[-1].start_lsn

    def _old_files(self) -> list[WalFile]:
        files = self.writer.files
        number = 0
        while number + 1 < len(files) and files[number + 1].start_lsn <= self.droppable_lsn:
            number += 1
        return files[:number]

    def _doomed_segments(self, durable_lsn: Lsn) -> list[Segment]:
        doomed: list[Segment] = []
        while self._doomed and self._doomed[0][0] <= durable_lsn:
            doomed += self._doomed.popleft()[1]
        return doomed


def _others(log: PartitionLog, segments: Iterable[Segment]) -> list[Segment]:
    """Those that are not of this log."""
    return [segment for segment in segments if not log.disk_segments.owns(segment)]

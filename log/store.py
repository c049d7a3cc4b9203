"""One node's data directory: lock, incarnation, the shared write-ahead log, and every group."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence

from goqueue.wire.types import CLUSTER_GROUP, GroupId, Incarnation, Lsn
from log.config import StorageConfig
from log.disk import Disk
from log.errors import StoreFailed
from log.flush import FlushJob
from log.group import GroupLog, HardState
from log.recovery import Replay, replay_wal
from log.wal import BLOCK_BYTES, RECORD, RECORD_BYTES, Record, RecordKind, WalState
from log.wal_writer import WalWriter

LOCK = "LOCK"
WAL_DIRECTORY = "wal"
GROUPS_DIRECTORY = "groups"


def _nothing() -> None:
    return None


def _nothing_durable(_lsn: Lsn) -> None:
    return None


class Store:
    """Opened by `Store.open`; all methods belong to the loop's thread, jobs run where one likes.

    `on_dirty` is called when there is something to flush, `on_durable` after a flush completed.
    """

    def __init__(self, disk: Disk, root: str, config: StorageConfig, replay: Replay) -> None:
        self.config = config
        self.root = root
        self.failed: Exception | None = None
        self.incarnation = Incarnation(0)
        self.durable_lsn = Lsn(0)
        self.written_lsn = Lsn(0)
        self.spilled_lsn = Lsn(0)
        self.on_dirty: Callable[[], None] = _nothing
        self.on_durable: Callable[[Lsn], None] = _nothing_durable
        self._disk = disk
        self._lock = -1
        self._groups: dict[GroupId, GroupLog] = {}
        self._state: WalState = replay.state
        self._writer: WalWriter | None = None
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._pending_records: list[Record] = []
        self._block_lsn = Lsn(0)
        self._job: FlushJob | None = None

    @classmethod
    def open(
        cls,
        disk: Disk,
        root: str,
        config: StorageConfig,
        *,
        random_u64: Callable[[], int] | None = None,
    ) -> Store:
        """Locks the directory, creating it and its parents, and recovers what it holds.

        Raises DirectoryLocked, WalDamaged, NewerFormat; the lock is free again after an error.
        """
        random_u64 = random_u64 or _system_random
        disk.make_directories(f"{root}/{WAL_DIRECTORY}")
        disk.make_directories(f"{root}/{GROUPS_DIRECTORY}")
        lock = disk.lock(f"{root}/{LOCK}", f"pid {os.getpid()}, node {config.node or '?'}")
        try:
            directory = f"{root}/{WAL_DIRECTORY}"
            replay = replay_wal(disk, directory)
            store = cls(disk, root, config, replay)
            store._start(replay, directory, random_u64)
        except BaseException:
            disk.unlock(lock)
            raise
        store._lock = lock
        return store

    def _start(self, replay: Replay, directory: str, random_u64: Callable[[], int]) -> None:
        image = replay.image
        self.incarnation = Incarnation(image.incarnation if image else random_u64() or 1)
        writer = WalWriter(
            self._disk, directory, self.config.wal_file_bytes, self.incarnation, random_u64
        )
        if image is not None:
            writer.files = image.files
            last = self._disk.open(image.files[-1].path, write=True)
            self._disk.fdatasync(last)
            self._disk.close(last)
        for group, meta in self._state.groups.items():
            log = self._groups[group] = GroupLog(group, self)
            tail, _problem = replay.tail(group)
            log.restore(
                HardState(meta.term, meta.vote),
                [entry for _lsn, entry in tail],
                meta.first_index,
                meta.base_term,
            )
        end = image.end_lsn if image else Lsn(0)
        self._block_lsn = self.durable_lsn = self.written_lsn = end
        writer.create(*writer.plan(self._state, end, 0))
        self._writer = writer

    # -- groups

    def groups(self) -> list[GroupId]:
        """Every group that exists here, sorted."""
        return sorted(self._groups)

    def group(self, group: GroupId) -> GroupLog:
        """An existing group's log. Raises KeyError."""
        return self._groups[group]

    def create_group(self, group: GroupId) -> GroupLog:
        """A new, empty log. Raises ValueError where it exists."""
        if group in self._groups:
            raise ValueError(f"group {group} exists")
        log = GroupLog(group, self)
        self.record(RecordKind.CREATE, log, (), 0)
        self._groups[group] = log
        return log

    def remove_group(self, group: GroupId) -> None:
        """Forgets the group; its files go once that is durable. Raises KeyError."""
        log = self._groups.pop(group)
        self.record(RecordKind.REMOVE, log, (), 0)

    # -- appending and flushing

    def record(
        self, kind: int, group: GroupLog, parts: Sequence[bytes], length: int, flags: int = 0
    ) -> Lsn:
        """Adds a record to the pending block; the LSN it has once that is flushed.

        Raises StoreFailed after a failed write or sync.
        """
        if self.failed is not None:
            raise StoreFailed(f"storage failed: {self.failed}")
        first = not self._pending
        self._pending.append(RECORD.pack(kind, flags, 0, length, group.key))
        self._pending += parts
        self._pending_bytes += RECORD_BYTES + length
        lsn = Lsn(self._block_lsn + BLOCK_BYTES + self._pending_bytes)
        if kind != RecordKind.APPEND:
            record = Record(lsn, kind, flags, group.id, b"".join(parts))
            self._pending_records.append(record)
        if first:
            self.on_dirty()
        return lsn

    def take_flush(self) -> FlushJob | None:
        """Everything appended so far as one job; None while one is out or nothing is pending."""
        if self._job is not None or not self._pending or self.failed is not None:
            return None
        assert self._writer is not None
        size = BLOCK_BYTES + self._pending_bytes
        roll = None
        if self._writer.roll_needed(self._block_lsn, size):
            roll = self._writer.plan(self._state, self._block_lsn, size)
        end = Lsn(self._block_lsn + size)
        job = FlushJob(
            self._writer, self._block_lsn, end, self.durable_lsn, self._pending, True, roll
        )
        for record in self._pending_records:
            self._state.apply(record)
        self._pending, self._pending_bytes, self._pending_records = [], 0, []
        self._block_lsn = end
        self._job = job
        return job

    def complete_flush(self, job: FlushJob, error: Exception | None = None) -> None:
        """Ends the job; an error fails the store for good, and nothing later is ever durable."""
        assert job is self._job, "not the job in flight"
        self._job = None
        if error is not None:
            self.failed = error
        if self.failed is not None:
            return
        self.written_lsn = job.end_lsn
        if job.synced:
            self.durable_lsn = job.end_lsn
        self.on_durable(self.durable_lsn)
        if self._pending:
            self.on_dirty()

    def complete_spill(self, job: FlushJob) -> None:
        """Lets go of RAM for what segments now hold."""

    def close(self) -> None:
        """Flushes what is pending, closes files, and frees the lock; safe to call twice."""
        if self._lock < 0:
            return
        job = self.take_flush()
        if job is not None:
            try:
                job.sync()
            except OSError as error:
                self.complete_flush(job, error)
            else:
                self.complete_flush(job)
        if self._writer is not None:
            self._writer.close()
        self._disk.unlock(self._lock)
        self._lock = -1


def _system_random() -> int:
    return random.SystemRandom().getrandbits(64)


__all__ = ["CLUSTER_GROUP", "Store"]

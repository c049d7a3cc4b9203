"""One node's data directory: lock, incarnation, the shared write-ahead log, and every group."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial

from goqueue.wire.types import CLUSTER_GROUP, Incarnation, Lsn, PartitionId
from log.config import StorageConfig
from log.copy.staging import Staging
from log.disk.descriptors import Descriptors
from log.disk.files import Disk
from log.disk.space import Space, SpaceState
from log.errors import InstallRefused, ReadOnly, StoreFailed
from log.partition.journal import Step
from log.partition.log import PartitionLog
from log.segments.chain import PartitionSegments
from log.store.checkpoint import CheckpointJob, Checkpoints
from log.store.flush import FlushJob
from log.store.opening import Opened, Opening
from log.store.set_aside import SetAside
from log.store.spill import SpillBatch, Spiller
from log.store.wal_only import WalOnlyLogs
from log.wal.check import WalCheck
from log.wal.format import BLOCK_BYTES, RecordKind, WalState, checkpoint_payload
from log.wal.pending_block import PendingBlock
from log.wal.writer import WalWriter

_NO_GROUP = CLUSTER_GROUP.pack()
"""What a record about the whole node carries in place of a group."""


_random_u64 = partial(secrets.randbits, 64)


def _nothing(*_told: object) -> None:
    return None


class Store:
    """Opened by `Store.open`; all methods belong to the loop's thread, jobs run where one likes.

    `on_dirty` is called when there is something to flush, `on_durable` after a flush completed:
    `durable_lsn`, or what relaxed groups may acknowledge, has advanced.
    """

    def __init__(self, disk: Disk, root: str, config: StorageConfig, *, read_only: bool) -> None:
        self.config = config
        self.root = root
        self.read_only = read_only
        self.failed: Exception | None = None
        self.stalled: OSError | None = None
        """Why nothing can be made durable now, though nothing is lost: the disk is full."""
        self.incarnation = Incarnation(0)
        self.durable_lsn = self.written_lsn = self.spilled_lsn = Lsn(0)
        self.unclean_boot = False
        """The machine was started anew, or a sync had failed, and the last process had not closed
        the store."""
        self.damaged_entries = 0
        """Damage met since the store was opened: entries, searches and snapshots."""
        self.on_dirty: Callable[[], None] = _nothing
        self.on_durable: Callable[[Lsn], None] = _nothing
        self.on_damaged: Callable[[PartitionId], None] = _nothing
        self.set_aside = SetAside(disk, root)
        self._disk = disk
        limits = config.descriptors_max, config.descriptors_unsynced_max
        self._files = Descriptors(disk, *limits, write=not read_only)
        self._space = Space(disk, root, config)
        self._spiller = Spiller(self._space)
        self.damaged_ids: set[PartitionId] = set()
        """Groups of which acknowledged entries can't be read."""
        self._logs: dict[PartitionId, PartitionLog] = {}
        self._sorted_ids: list[PartitionId] | None = None
        self._state = WalState()
        self._writer: WalWriter | None = None
        self._lock = -1
        self._pending, self._pending_spill = PendingBlock(), SpillBatch()
        self._dirty_told = self._renewing = False
        self._block_lsn = self._sealed_lsn = Lsn(0)
        self._job: FlushJob | None = None
        self._sync_due_ms: int | None = None
        self._unsynced_bytes = 0
        self._checkpoints: Checkpoints | None = None
        self._wal_only = WalOnlyLogs()

    @classmethod
    def open(
        cls,
        disk: Disk,
        root: str,
        config: StorageConfig,
        *,
        random_u64: Callable[[], int] = _random_u64,
        read_only: bool = False,
        accept_damage: bool = False,
        set_aside: bool = False,
    ) -> Store:
        """Locks the directory, creating it and its parents, and recovers what it holds.

        Read-only, nothing is written, not even a lock. A damaged write-ahead log is refused, except
        that with `set_aside` all data are moved aside, and the store is empty, of another
        incarnation; with `accept_damage` only the log is: the incarnation changes, and every group
        is opened quarantined with what its segments prove. Raises DirectoryLocked, WalDamaged,
        NewerFormat, OSError; after an error the lock is free again.
        """
        store = cls(disk, root, config, read_only=read_only)
        opening = Opening(disk, root, config, store._files, random_u64)
        if not read_only:
            store._lock = opening.lock()
        try:
            opened = opening.recover(
                read_only=read_only, accept_damage=accept_damage, set_aside=set_aside
            )
        except BaseException:
            store._files.close()
            if store._lock >= 0:
                disk.unlock(store._lock)
            raise
        store.incarnation = Incarnation(opened.incarnation)
        store.unclean_boot, store._state = opened.unclean_boot, opened.state
        store._take_over(opened)
        for partition_id, meta in sorted(opened.state.partitions.items()):
            segments = opened.segments[partition_id]
            log = store._logs[partition_id] = store._partition_log(partition_id, segments)
            if partition_id in opened.wal_only:
                store._wal_only.add(log, opened.end_lsn)
            log.restore(meta, opened.lasts[partition_id], opened.tails[partition_id])
            if not read_only:
                log.evict(store._ram_share())
        store.damaged_entries = opened.damaged
        return store

    def _take_over(self, opened: Opened) -> None:
        end = opened.end_lsn
        self._block_lsn = self._sealed_lsn = end
        self.durable_lsn = self.written_lsn = self.spilled_lsn = end
        if not self.read_only:
            self._writer, lsn = opened.writer, Lsn(opened.state.checkpoint_lsn)
            parts = self.config, self._files, opened.writer, self._space
            self._checkpoints = Checkpoints(*parts, lsn, lsn)

    # -- groups

    def partition_ids(self) -> list[PartitionId]:
        """Every group that exists here, sorted: one list, not to be changed, while they stay."""
        if self._sorted_ids is None:
            self._sorted_ids = sorted(self._logs)
        return self._sorted_ids

    def has_log(self, partition_id: PartitionId) -> bool:
        """Whether the group exists here."""
        return partition_id in self._logs

    def partition_log(self, partition_id: PartitionId) -> PartitionLog:
        """An existing group's log. Raises KeyError."""
        return self._logs[partition_id]

    def holds(self, partition_log: PartitionLog) -> bool:
        """Whether its group was not removed meanwhile, nor made anew."""
        return self._logs.get(partition_log.id) is partition_log

    def create_log(self, partition_id: PartitionId) -> PartitionLog:
        """A new, empty log; it exists after a crash once the next flush is durable. Raises
        ValueError where it exists."""
        if partition_id in self._logs:
            raise ValueError(f"group {partition_id} exists")
        directory = Opening.partition_directory(self.root, partition_id)
        segments = PartitionSegments(self._files, directory, partition_id, self.config)
        log = self._partition_log(partition_id, segments)
        log.created_lsn = self.record(RecordKind.CREATE, log, (), 0)
        if partition_id != CLUSTER_GROUP:
            self._wal_only.add(log, log.created_lsn)
        self._logs[partition_id] = log
        self._sorted_ids = None
        self.dirty()
        return log

    def remove_log(self, partition_id: PartitionId) -> None:
        """Forgets the group; its files go once that is durable. Raises KeyError."""
        log = self._logs[partition_id]
        self.record(RecordKind.REMOVE, log, (), 0)
        del self._logs[partition_id]
        self._sorted_ids = None
        self.damaged_ids.discard(partition_id)
        self._wal_only.forget(log)
        if self._checkpoints is not None:
            self._checkpoints.forget(log)
        self.spill_later(log, None)
        self.dirty()

    def staging(self, partition_id: PartitionId, new_id: int) -> Staging:
        """Where a copy of another replica gathers its files, for `install` of that group's log. It
        goes on with what an earlier copy left, else takes this id. Raises KeyError."""
        log = self._logs[partition_id]
        directory = log.disk_segments.directory
        return Staging(self._disk, directory, partition_id, log.created_lsn, new_id)

    # -- appending

    def record(
        self,
        kind: int,
        partition_log: PartitionLog | None,
        parts: Sequence[bytes],
        length: int,
        flags: int = 0,
        *,
        relaxed: bool = False,
    ) -> Lsn:
        """Adds a record to the pending block; the LSN it has once that is flushed. Entries that are
        `relaxed` may be synced later.

        The caller calls `dirty` when its own state agrees. Raises StoreFailed after a failed write
        or sync, ReadOnly.
        """
        if self.failed is not None:
            raise StoreFailed(f"storage failed: {self.failed}")
        if self.read_only:
            raise ReadOnly("the store is open read-only")
        key = partition_log.key if partition_log is not None else _NO_GROUP
        pending, start = self._pending, self._block_lsn + BLOCK_BYTES
        if kind == RecordKind.APPEND:
            pending.append(key, parts, length)
            if partition_log is not None and relaxed:
                pending.wait(partition_log.flush_interval_ms or self.config.relaxed_sync_ms)
            else:
                pending.strict |= partition_log is not None
        else:
            pending.add(kind, key, parts, length, flags, start)
        return Lsn(start + pending.length)

    def require_sync(self) -> None:
        """The pending block is synced before it counts as written, whatever it holds."""
        self._pending.strict = True

    def disown_trimmed(self, partition_log: PartitionLog) -> None:
        """Segments of this group that are still to be deleted no longer are: see `install`. Raises
        InstallRefused while they are being deleted, and of a group that was removed."""
        if not self.holds(partition_log):
            raise InstallRefused(f"group {partition_log.id} was removed")
        if self._checkpoints is not None:
            self._checkpoints.disown(partition_log)

    def spill_later(self, partition_log: PartitionLog, step: Step) -> None:
        """Queues a step for the group's segments, to follow the pending block."""
        self._pending_spill.add(partition_log.id, partition_log.disk_segments, step)

    def dirty(self) -> None:
        """Tells the shell, once a block, that there is something to flush."""
        if not self._dirty_told and self._pending.parts:
            self._dirty_told = True
            self.on_dirty()

    # -- flushing

    def take_flush(self, now_ms: int | None = None) -> FlushJob | None:
        """Everything appended so far as one job; None while one is out or nothing is to be done.

        Given the time, a block of relaxed appends alone is written and not synced, until the first
        of them is as old as its group's `flush_interval_ms`: then the job syncs, also with nothing
        appended. It syncs before more than `relaxed_sync_bytes` are unsynced, too.
        """
        if self._job is not None or self.failed is not None or self._writer is None:
            return None
        due = self._sync_due_ms
        overdue = due is not None and (now_ms is None or now_ms >= due)
        pending = self._pending
        if not pending.parts and not overdue:
            return None
        pending.end()
        self._unsynced_bytes += pending.length
        many = self._unsynced_bytes > self.config.relaxed_sync_bytes
        synced = pending.strict or overdue or many or now_ms is None
        job = self._make_job(pending.parts, pending.length, synced)
        for record in pending.records:
            self._state.apply(record)
        self._pending, self._dirty_told = PendingBlock(), False
        if now_ms is None or synced:
            self._sync_due_ms, self._unsynced_bytes = None, 0
        else:
            due_ms = now_ms + pending.sync_within_ms
            self._sync_due_ms = min(due_ms, self._sync_due_ms or due_ms)
        return job

    def take_seal(self, idle_ms: int) -> FlushJob | None:
        """After this long without a flush: a job that syncs a seal behind the last block, once, so
        that damage to it can't be taken for a tear, not even after a power cut. In a full file what
        vouches for the block is the seal: the next file's header vouches before it is replaced."""
        if self._job is not None or self._pending.parts or self.failed is not None:
            return None
        if not self.seal_waits or idle_ms < self.config.seal_after_ms or self._writer is None:
            return None
        fits = not self._writer.roll_needed(self._block_lsn, BLOCK_BYTES)
        job = self._make_job([], 0, True, seal=fits)
        self._sealed_lsn = job.end_lsn
        return job

    @property
    def seal_waits(self) -> bool:
        """Whether the last block is synced, and not sealed yet."""
        return self._sealed_lsn < self._block_lsn == self.durable_lsn

    @property
    def spill_waits(self) -> bool:
        """Whether segments lack what a full disk had no room for: see `take_respill`."""
        return self._spiller.full

    def take_respill(self) -> FlushJob | None:
        """After a spill met a full disk: a job that writes nothing, and tries the spill again."""
        if self._job is not None or self._pending.parts or self.failed is not None:
            return None
        return self._make_job([], 0, False) if self._spiller.full and self._writer else None

    def sync_due_ms(self) -> int | None:
        """The time at which relaxed appends must be synced: call `take_flush` then."""
        return self._sync_due_ms

    def stall_flush(self, job: FlushJob, error: OSError) -> None:
        """The job's `sync` met a full disk, and is going to be run again; what is appended
        meanwhile waits in memory: whoever appends should look at `stalled`."""
        assert job is self._job, "not the job in flight"
        self.stalled = error

    def complete_flush(self, job: FlushJob, error: Exception | None = None) -> None:
        """Ends the job; an error fails the store for good, and nothing later is ever durable."""
        assert job is self._job, "not the job in flight"
        self._job = self.stalled = None
        if error is not None:
            self.failed = self.failed or error
        if self.failed is not None:
            return
        self.written_lsn = job.end_lsn
        if job.synced:
            self.durable_lsn = job.end_lsn
        if self._checkpoints is not None:
            self._checkpoints.settle(self.durable_lsn)
        self.on_durable(self.durable_lsn)
        self._dirty_told = False
        self.dirty()

    def complete_spill(self, job: FlushJob) -> None:
        """Lets go of RAM for what segments now hold. A failed spill fails the store; one that met a
        full disk is tried again with the next one."""
        if self._spiller.error is not None:
            self.failed = self.failed or self._spiller.error
            return
        done = self._spiller.done
        budget = self._ram_share()
        while done:
            spilled = done.popleft()
            self.spilled_lsn = spilled.end_lsn
            if self._checkpoints is not None:
                self._checkpoints.spilled(spilled)
            for partition_id in spilled.indexes:
                if (log := self._logs.get(partition_id)) is not None:
                    log.evict(budget)

    @property
    def backpressure(self) -> bool:
        """Whether appends should be held back until a checkpoint lets write-ahead files go."""
        return self.wal_files >= self.config.wal_files_max

    @property
    def wal_files(self) -> int:
        """Write-ahead files kept."""
        return len(self._writer.files) if self._writer is not None else 0

    def space(self) -> SpaceState:
        """Room on the disk; `low` means that publishes are refused."""
        return self._space.state()

    # -- checkpoints

    def wal_check(self) -> WalCheck | None:
        """A pass over what the write-ahead log holds synced by now; None in a read-only store."""
        writer = self._writer
        return None if writer is None else WalCheck(self._disk, writer.files, self.durable_lsn)

    def keeps_wal(self, path: str) -> bool:
        """Whether this file of the write-ahead log is still needed."""
        return self._writer is not None and any(file.path == path for file in self._writer.files)

    def renew_wal(self, damaged: str) -> None:
        """Has the write-ahead log go on in a new file, which states everything, and the others
        dropped as soon as segments hold what this one holds. Raises StoreFailed."""
        checkpoints, writer = self._checkpoints, self._writer
        if checkpoints is None or writer is None or self._renewing:
            return
        if checkpoints.urgent and damaged != writer.files[-1].path:
            return  # it is about to go
        payload = checkpoint_payload(checkpoints.lsn, ())
        self.record(RecordKind.CHECKPOINT, None, (payload,), len(payload))
        self._renewing = checkpoints.urgent = True
        self.dirty()

    @property
    def checkpoint_due(self) -> bool:
        """Whether a checkpoint is worth its syncs now."""
        return self._checkpoints is not None and (self._checkpoints.due or self.backpressure)

    def take_checkpoint(self) -> CheckpointJob | None:
        """A job that syncs segments and drops files; None while one is out or nothing is to do."""
        checkpoints = self._checkpoints
        if checkpoints is None or checkpoints.job is not None or self.failed is not None:
            return None
        checkpoints.retire_segments(self._logs.values(), self._state.partitions)
        self.dirty()
        return checkpoints.take(self.spilled_lsn, self.durable_lsn)

    def log_again(self, job: CheckpointJob) -> bool:
        """While a checkpoint is out: logs some of what it lets go, and no segment holds, again;
        whether more is left, which its completion logs at once. Raises StoreFailed."""
        counts = self._checkpoints is not None and job.lsn > self._checkpoints.lsn
        return counts and self._wal_only.log_again(job.lsn)

    def complete_checkpoint(self, job: CheckpointJob, error: Exception | None = None) -> None:
        """Records the checkpoint in the log; an error fails the store."""
        if error is not None:
            self.failed = self.failed or error
        if self.failed is not None or self._checkpoints is None:
            return
        while self.log_again(job):
            continue
        items = self._checkpoints.complete(job, self._logs)
        if items is not None:
            payload = checkpoint_payload(job.lsn, items)
            record_lsn = self.record(RecordKind.CHECKPOINT, None, (payload,), len(payload))
            self._checkpoints.recorded(record_lsn, job.lsn)
            self.dirty()

    def close(self) -> None:
        """Flushes and seals what is pending, closes files, frees the lock; safe to call twice.

        Call it with no job out. Errors set `failed` and are not raised.
        """
        relaxed = any(log.relaxed for log in self._logs.values())
        if relaxed and self._writer is not None and self.failed is None:
            self.record(RecordKind.CLOSED, None, (), 0)
        seal = lambda: self.take_seal(self.config.seal_after_ms)  # noqa: E731
        for take in (self.take_flush, self._take_last_sync, seal):
            if (job := take()) is not None:
                self._finish(job)
        if self._writer is not None:
            self._writer.close()
        self._files.close()
        if self._lock >= 0:
            self._disk.unlock(self._lock)
            self._lock = -1
        self._writer = None

    def disown(self) -> None:
        """In a forked child, once: closes the lock that came along, which stays the parent's."""
        if self._lock >= 0:
            self._disk.close(self._lock)
            self._lock = -1

    # -- private

    def _make_job(
        self, parts: list[bytes], length: int, synced: bool, *, seal: bool = False
    ) -> FlushJob:
        writer, lsn = self._writer, self._block_lsn
        assert writer is not None
        size = BLOCK_BYTES + length if parts or seal else 0
        roll = None
        if size and (self._renewing or writer.roll_needed(lsn, size)):
            roll = writer.plan(self._state, lsn, size)
            self._renewing = False
        end = Lsn(lsn + size)
        batch, self._pending_spill = self._pending_spill, SpillBatch()
        batch.lsn, batch.end_lsn = lsn, end
        self._block_lsn = end
        self._job = FlushJob(
            writer, self._spiller, lsn, end, self.durable_lsn, parts, synced, batch, roll
        )
        return self._job

    def _take_last_sync(self) -> FlushJob | None:
        if self._job is None and self.failed is None and self.durable_lsn < self._block_lsn:
            return self._make_job([], 0, True) if self._writer is not None else None
        return None

    def _finish(self, job: FlushJob) -> None:
        try:
            job.sync()
        except OSError as error:
            self.complete_flush(job, error)
        else:
            self.complete_flush(job)

    def _partition_log(self, one: PartitionId, segments: PartitionSegments) -> PartitionLog:
        return PartitionLog(one, self, segments, self._disk, self.config.snapshots_kept)

    def _ram_share(self) -> int:
        return self.config.ram_tail_bytes // max(1, len(self._logs))

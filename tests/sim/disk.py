"""A machine's disk and what a process does with it: flushes, spills, checkpoints, on virtual time.

The disk is the shipped fake. It outlives processes: killing one keeps what was written, synced or
not; a power cut keeps what was synced, and of the rest what the seed says. A process may die in the
middle of a job, after any operation on the disk.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from goqueue.wire.types import CLUSTER_GROUP, PartitionId
from log.config import StorageConfig
from log.disk.files import Bytes, SyncFailed, is_full
from log.disk.memory import MemoryDisk
from log.errors import WalDamaged
from log.store.directory import Store
from log.store.flush import FlushJob
from log.wal.format import BLOCK_BYTES, decode_header, read_block
from tests.sim.loop import ProcessTime

ROOT = "/data"
ROOM = 1 << 40
DAMAGED_SUFFIXES = (".segment", ".offsets", ".terms", ".snapshot", ".wal")
HEADER_BYTES = 64
"""Files are damaged after this."""
FULL_RETRY_S = 0.1
"""How soon what a full disk refused is tried again."""


class Died(Exception):
    """The process ended in the middle of this operation: not an error that it could handle."""


class SimDisk(MemoryDisk):
    """A `MemoryDisk` without its trace, that outlives processes and can lie about syncs."""

    _lives: int | None = None
    _failing: tuple[str, int] | None = None
    is_wal_damaged = False
    incarnation = 0
    """Of the store that a process opened here last."""
    lies = False
    """Says that it has synced, and has not."""
    hides = False
    """Says nothing of syncs that have failed."""

    def _do(self, name: str, *arguments: object) -> None:
        getattr(self, f"_do_{name}")(*arguments)

    def pwritev(self, handle: int, parts: Sequence[Bytes], offset: int) -> int:
        number, path = self._handles[handle]
        if self._lives is not None or self._failing is not None:
            self._check("pwritev", path)
        data = b"".join(parts)
        if self.capacity < ROOM:
            self._grow(number, offset + len(data))
        self._files[number].write(offset, data)
        return len(data)

    def pread(self, handle: int, length: int, offset: int) -> bytes:
        number, path = self._handles[handle]
        if self._lives is not None or self._failing is not None:
            self._check("pread", path)
        return self._files[number].live.read(offset, length)

    def fdatasync(self, handle: int) -> None:
        if self.lies:
            return
        if self._lives is None and self._failing is None:
            self.syncs += 1
            self._files[self._handles[handle][0]].sync()
            return
        try:
            super().fdatasync(handle)
        except SyncFailed:
            if not self.hides:
                raise

    def fail_soon(self, operation: str, number: int) -> None:
        """The next operation of this name fails, once, with this number."""
        self._failing = operation, number

    def _check(self, operation: str, path: str) -> None:
        if self._failing is not None and self._failing[0] == operation:
            number, self._failing = self._failing[1], None
            raise OSError(number, os.strerror(number), path)
        if self._lives is not None:
            self._lives -= 1
            if self._lives < 0:
                raise Died(f"{operation} {path}")

    def process_died(self) -> None:
        self._lives = None
        super().process_died()

    def power_cut(self, rng: random.Random, keep: float) -> SimDisk:
        """What is left when the power comes back."""
        after = SimDisk(capacity=self.capacity)
        after.__dict__.update(self.crash(rng, keep=keep).__dict__)
        after.lies, after.hides = self.lies, self.hides
        after.is_wal_damaged, after.incarnation = self.is_wal_damaged, self.incarnation
        return after

    def damage(
        self,
        rng: random.Random,
        *,
        spared: Collection[PartitionId] = (),
        of_cluster: bool = False,
    ) -> str | None:
        """Flip a bit, or zero some bytes, of what a partition's segment or snapshot or the
        write-ahead log, or a file of the cluster group holds synced; where, if anywhere. The
        write-ahead log is of all groups: it is spared with any of them."""
        files = [path for path in self.paths() if path.endswith(DAMAGED_SUFFIXES)]
        paths = [path for path in files if (f"/{CLUSTER_GROUP}/" in path) == of_cluster]
        if not paths:
            return None
        path = rng.choice(paths)
        number = self._live[path]
        assert number is not None
        file = self._files[number]
        if file.unsynced or len(file.live) <= HEADER_BYTES or len(file.live) != len(file.synced):
            return None
        if any(f"/{partition_id}/" in path for partition_id in spared):
            return None
        at = rng.randrange(HEADER_BYTES, len(file.live))
        if path.endswith(".wal"):
            if spared:
                return None
            known = _known_synced(file.live.whole(), path)
            if not known:
                return None
            at = rng.choice(known)
        flipped = file.live.read(at, 1)[0] ^ 1 << rng.randrange(8)
        damaged = rng.choice((bytes((flipped,)), bytes(16)))
        self.is_wal_damaged = self.is_wal_damaged or path.endswith(".wal")
        for content in (file.live, file.synced):
            content.write(at, damaged[: len(content) - at])
        return path

    def used_bytes(self) -> int:
        """The sum of all files' lengths."""
        return self._used()

    def heal(self) -> None:
        """There is room, and nothing fails."""
        self.capacity = ROOM
        self._failing = None

    def die_after(self, operations: int | None) -> None:
        """Let this many operations pass; the next one ends the process."""
        self._lives = operations


@dataclass
class DiskSpeed:
    """How long a disk takes, in seconds; changed by faults."""

    sync_s: float = 0.002
    spill_s: float = 0.0005
    checkpoint_s: float = 0.02


class Storage:
    """The store of one process, with a writer and a keeper as the node has them."""

    def __init__(
        self,
        disk: SimDisk,
        time: ProcessTime,
        rng: random.Random,
        config: StorageConfig,
        speed: DiskSpeed,
    ) -> None:
        """Opens the store, with all data set aside where a fault has damaged the write-ahead log.
        Raises what that raises."""
        try:
            self.store = _open(disk, config, rng)
        except WalDamaged:
            if not disk.is_wal_damaged:
                raise
            self.store = _open(disk, config, rng, set_aside=True)
        self.set_aside = disk.is_wal_damaged and disk.incarnation != self.store.incarnation
        """Whether the store begins anew, so that this is no voter any more. The data may have been
        set aside by a process that died before its store was open."""
        disk.is_wal_damaged = disk.is_wal_damaged and not self.set_aside
        disk.incarnation = self.store.incarnation
        self.on_flush_begun: Callable[[], None] = lambda: None
        self.on_failed: Callable[[Exception], None] = _raise
        """The store has failed: the process is to leave."""
        self._disk = disk
        self._time = time
        self._rng = rng
        self._speed = speed
        self._taking = False
        self._writing: deque[FlushJob] = deque()
        self._keeping: deque[tuple[Callable[[], object], Callable[[], object]]] = deque()
        self._checkpointing = False
        self._flushed_at = 0.0
        self._seal_planned = False
        self._sync_planned = False
        self._respill_planned = False
        self.store.on_dirty = self._dirty

    def start(self) -> None:
        """To be called once the callbacks are set."""
        self._dirty()

    # the writer

    def _dirty(self) -> None:
        if not self._taking:
            self._taking = True
            self._time.call_soon(self._take)

    def _take(self) -> None:
        self._taking = False
        self._hand_over(self.store.take_flush(self._now_ms()))

    def _hand_over(self, job: FlushJob | None) -> None:
        if job is None:
            return
        self._writing.append(job)
        if len(self._writing) == 1:
            self._begin()
        self.on_flush_begun()

    def _begin(self) -> None:
        delay = self._speed.sync_s * self._rng.uniform(0.5, 1.5)
        self._time.call_later(delay, self._sync)

    def _sync(self) -> None:
        job = self._writing[0]
        try:
            job.sync()
        except OSError as error:
            self._sync_failed(job, error)
            return
        self.store.complete_flush(job)
        self._plan_sync()
        if self.store.seal_waits:
            self._flushed_at = self._time.now()
            self._plan_seal()
        self._time.call_later(self._speed.spill_s, self._spill)

    def _sync_failed(self, job: FlushJob, error: OSError) -> None:
        if is_full(error):
            self.store.stall_flush(job, error)
            self._time.call_later(FULL_RETRY_S, self._sync)
        else:
            self._writing.clear()  # it is not tried again: that would only seem to succeed
            self.store.complete_flush(job, error)
            self.on_failed(error)

    def _spill(self) -> None:
        job = self._writing[0]
        job.spill()
        self.store.complete_spill(job)
        if self.store.failed is not None:
            self.on_failed(self.store.failed)
            return
        self._writing.popleft()
        self._plan_respill()
        if self._writing:
            self._begin()
        if self.store.checkpoint_due and not self._checkpointing:
            self._checkpoint()

    def _plan_respill(self) -> None:
        """Segments that lack what a full disk refused get it soon after there is room."""
        if self.store.spill_waits and not self._respill_planned:
            self._respill_planned = True
            self._time.call_later(FULL_RETRY_S, self._respill)

    def _respill(self) -> None:
        self._respill_planned = False
        self._hand_over(self.store.take_respill())
        self._plan_respill()

    def _plan_sync(self) -> None:
        """Relaxed appends are synced soon, also when nothing follows them."""
        due_ms = self.store.sync_due_ms()
        if due_ms is not None and not self._sync_planned:
            self._sync_planned = True
            self._time.call_later(max(0, due_ms - self._now_ms()) / 1000, self._sync_due)

    def _sync_due(self) -> None:
        self._sync_planned = False
        self._take()

    def _plan_seal(self) -> None:
        if not self._seal_planned:
            self._seal_planned = True
            self._time.call_later(self.store.config.seal_after_ms / 1000, self._seal)

    def _seal(self) -> None:
        self._seal_planned = False
        idle_ms = round((self._time.now() - self._flushed_at) * 1000)
        if idle_ms < self.store.config.seal_after_ms:
            self._plan_seal()
        else:
            self._hand_over(self.store.take_seal(idle_ms))

    def _now_ms(self) -> int:
        return int(self._time.now() * 1000)

    # the keeper

    def keep(self, run: Callable[[], object], done: Callable[[], object]) -> None:
        """Run file work after what the keeper has to do already, then `done`."""
        self._keeping.append((run, done))
        if len(self._keeping) == 1:
            self._time.call_later(self._speed.checkpoint_s, self._kept)

    def _kept(self) -> None:
        run, done = self._keeping[0]
        with contextlib.suppress(OSError):  # the log still has what would have been kept
            run()
        done()
        self._keeping.popleft()
        if self._keeping:
            self._time.call_later(self._speed.checkpoint_s, self._kept)

    def _checkpoint(self) -> None:
        job = self.store.take_checkpoint()
        if job is None:
            return
        self._checkpointing = True

        errors: list[OSError] = []

        def run() -> None:
            try:
                job.run()
            except OSError as error:
                errors.append(error)

        def done() -> None:
            self._checkpointing = False
            self.store.complete_checkpoint(job, next(iter(errors), None))
            if self.store.failed is not None:
                self.on_failed(self.store.failed)

        self.keep(run, done)

    # dying

    def die(self, rng: random.Random) -> None:
        """The process ends now: what the writer and the keeper were at may be done in part."""
        works: list[Callable[[], object]] = [run for run, _done in list(self._keeping)[:1]]
        if self._writing:
            works.append(self._writing[0].sync)
        rng.shuffle(works)
        for work in works:
            if rng.random() < 0.7:
                self._disk.die_after(rng.randrange(8))
                with contextlib.suppress(Died, OSError):
                    work()
        self._disk.process_died()


def _open(
    disk: SimDisk, config: StorageConfig, rng: random.Random, *, set_aside: bool = False
) -> Store:
    draw = lambda: rng.getrandbits(64) or 1  # noqa: E731
    return Store.open(disk, ROOT, config, random_u64=draw, set_aside=set_aside)


def _known_synced(data: bytes, path: str) -> list[int]:
    """Where the blocks of a file of the write-ahead log begin that later blocks know as synced."""
    header = decode_header(data, path)
    view, at, lsn = memoryview(data), header.header_bytes, int(header.start_lsn)
    blocks: list[tuple[int, int]] = []
    synced = 0
    while (block := read_block(view, at, header.file_id, lsn)) is not None:
        blocks.append((at, lsn))
        length, known = block
        synced = max(synced, known)
        at += BLOCK_BYTES + length
        lsn += BLOCK_BYTES + length
    return [at for at, lsn in blocks if lsn < synced]


def _raise(error: Exception) -> None:
    raise error

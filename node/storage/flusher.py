"""The threads that wait for the disk, so that the event loop never does.

The writer thread writes and syncs one block of the write-ahead log at a time, for everything that
waits; the spiller thread then appends the same frames to the segments, those of many blocks at
once. The keeper thread syncs segments, writes checkpoints and stores state snapshots. A node in a
program's own process has no other nodes and clients that its loop must not keep waiting: there the
loop itself writes and syncs, as handing a block to a thread and back costs more than most syncs.

The first failed sync ends the node: a second one would report success over lost data. A full disk
does not: what it has no room for is written again until there is some, and nothing is acknowledged
meanwhile.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from goqueue.background import TaskSet
from log.disk.files import is_full
from log.errors import StoreFailed
from log.store.checkpoint import CheckpointJob
from log.store.directory import Store
from log.store.flush import FlushJob
from node.metrics import Metrics
from node.runtime.logger import get_logger
from node.storage.disk_pace import DiskPace
from node.storage.spills import SPILL_BYTES, SPILL_S, Spills

T = TypeVar("T")

CHECKPOINTS = 3
"""To delete what may go: one that syncs segments, one that moves logs' starts by that, and one that
deletes what the synced starts leave."""
RETRY_S = 0.5
"""How often what a full disk refused is tried again."""

_log = get_logger("flusher")


class Flusher:
    """A service over an open store. `on_failure` is called once, on the loop, with what failed."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        *,
        checkpoint_interval_s: float,
        on_failure: Callable[[Exception], None],
        on_loop: bool = False,
    ) -> None:
        """`on_loop`: blocks are written and synced by the loop's thread; the writer has only those
        that a full disk has refused."""
        self._on_loop = on_loop
        self._store = store
        self._metrics = metrics
        self._checkpoint_interval_s = checkpoint_interval_s
        self._on_failure = on_failure
        self._jobs: queue.SimpleQueue[FlushJob | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._spills = Spills()
        self._keeper: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._taking = False
        self._is_out = False
        self._in_flight = 0
        self._unspilled: FlushJob | None = None
        """Written by the loop, and not in segments yet; nor are those before it, whose spill it has
        taken over."""
        self._syncs_wanted: list[asyncio.Future[None]] = []
        self._syncs_out: list[asyncio.Future[None]] = []
        self._spills_wanted: list[asyncio.Future[None]] = []
        self._idle = asyncio.Event()
        self._failed = False
        self._stopping = False
        self._gives_up = threading.Event()
        self._threads_out: set[str] = set()
        """Threads that are at work now; each adds and removes itself."""
        self._all_threads: list[Callable[[], None]] = []
        """What waits for the end of each."""
        self._writer_ended = asyncio.Event()
        self.pace = DiskPace(time.monotonic)
        self.on_synced: Callable[[float], None] = lambda _took_s: None
        """Told how long each sync took."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._checkpoints = TaskSet("node", "checkpoint_failed")
        """At most one at a time."""
        self._flushed_ms = 0

    async def start(self) -> None:
        self._loop = loop = asyncio.get_running_loop()
        self._keeper = ThreadPoolExecutor(1, thread_name_prefix="goqueue-keeper")
        self._writer = threading.Thread(
            target=self._write, name="goqueue-writer", args=(loop,), daemon=True
        )
        self._writer.start()
        spiller = threading.Thread(
            target=self._spill, name="goqueue-spiller", args=(loop,), daemon=True
        )
        spiller.start()
        self._all_threads = [self._writer.join, spiller.join, self._keeper.shutdown]
        self._store.on_dirty = self._dirty
        self._dirty()
        self._plan_checkpoint()

    async def stop(self) -> None:
        """Everything appended before is on disk when this returns, unless the disk failed or is
        full: then it was not acknowledged either."""
        if self._loop is None or self._writer is None:
            return
        self._stopping = True
        self._gives_up.set()
        await self._checkpoints.settled()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._take()
        self._spill_here()
        while not self._failed and self._in_flight:
            self._idle.clear()
            self._spills.hurry()
            await self._idle.wait()
            self._take()
        self._writer = None
        self._jobs.put(None)
        await self._writer_ended.wait()
        if self._keeper is not None:
            self._keeper.shutdown(wait=False)
            self._keeper = None

    def is_writing(self) -> bool:
        """Whether a thread is still in a write or a sync, also after a `stop` that was given up."""
        return bool(self._threads_out)

    @property
    def is_busy(self) -> bool:
        """Whether its threads have work."""
        return self._is_out or self._in_flight > 0

    def join(self) -> None:
        """On another thread, after a `stop` that was given up: return once no thread is in a write
        or a sync, and none begins another one."""
        self._jobs.put(None)
        for thread in self._all_threads:
            thread()

    async def keep(self, work: Callable[[], T]) -> T:
        """Run file work on the keeper thread, after what it has to do already."""
        assert self._loop is not None
        if self._keeper is None:
            raise RuntimeError("the keeper thread has stopped")
        return await self._loop.run_in_executor(self._keeper, work)

    async def sync(self) -> None:
        """Return once everything appended before the call is synced, relaxed or not. Raises
        `StoreFailed`."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._syncs_wanted.append(waiter)
        self._take()
        await waiter

    async def spilled(self) -> None:
        """Return once everything appended before the call is synced, and in segments where its log
        has any. Raises `StoreFailed`."""
        await self.sync()
        lsn = self._store.durable_lsn
        while self._store.spilled_lsn < lsn:
            if self._failed:
                raise StoreFailed(f"storage failed: {self._store.failed}")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._spills_wanted.append(waiter)
            self._spills.hurry()
            self._spill_here()
            await waiter

    async def checkpointed(self) -> None:
        """Return once segments and write-ahead files that may go by now are deleted: what was
        appended before the call stands in segments, synced. What a full disk refuses is left for a
        later checkpoint. Raises `StoreFailed`."""
        await self.spilled()
        for _ in range(CHECKPOINTS):
            await self._checkpoints.settled()
            self._start_checkpoint()
            await self._checkpoints.settled()
            await self.sync()

    # the loop's side

    def _dirty(self) -> None:
        """Flush after this turn of the loop, so that all it appends shares a block."""
        if not self._taking and self._loop is not None:
            self._taking = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        self._taking = False
        if self._failed:
            self._end_syncs()
        elif not self._is_out:  # else this comes again when the job is back
            wanted = self._syncs_wanted
            job = self._store.take_flush(None if wanted else self._now_ms())
            self._syncs_out, self._syncs_wanted = wanted, []
            if job is None:
                self._end_syncs()
            self._hand_over(job)

    def _hand_over(self, job: FlushJob | None) -> None:
        if job is not None:
            self._is_out = True
            if job.synced:
                self.pace.begun()
            if self._on_loop:
                self._write_here(job)
            else:
                self._write_there(job)

    def _write_there(self, job: FlushJob) -> None:
        if self._unspilled is not None:
            job.spill_after(self._unspilled)
            self._unspilled = None
        self._in_flight += 1
        self._jobs.put(job)

    def _write_here(self, job: FlushJob) -> None:
        """Answers do not wait for segments: many blocks are appended to them together."""
        began = time.perf_counter()
        error = _attempt(job.sync)
        if isinstance(error, OSError) and is_full(error):
            self._write_there(job)
            return
        if self._unspilled is not None:
            job.spill_after(self._unspilled)
        self._unspilled = job
        self._synced(job, time.perf_counter() - began, error)
        self._plan_spill()

    def _plan_spill(self) -> None:
        """What a full disk has refused before is not waited with any longer."""
        if self._unspilled is not None and not self._failed:
            many = self._unspilled.spill_bytes >= SPILL_BYTES
            if many or self._stopping or self._store.spill_waits:
                self._spill_here()
            elif "spill" not in self._timers:
                self._set_timer("spill", SPILL_S, self._spill_here)

    def _spill_here(self) -> None:
        """Unless the spiller may be doing so: this comes again when it is done."""
        job = self._unspilled
        if job is not None and not self._failed and not self._in_flight:
            self._unspilled = None
            self._in_flight += 1
            self._spilled(job, 1, _attempt(job.spill))

    def _stalled(self, job: FlushJob, error: OSError) -> None:
        self._metrics.storage.fsync_errors.inc()
        if self._store.stalled is None:
            _log.error("disk_full", problem=str(error))
        self.pace.dropped()
        self._store.stall_flush(job, error)

    def _synced(self, job: FlushJob, took_s: float, error: Exception | None) -> None:
        self._is_out = False
        if self._store.stalled is not None and error is None:
            _log.warning("disk_has_room_again", waited_s=round(took_s, 1))
        if job.synced:
            self.pace.ended()
            self.on_synced(took_s)
            self._metrics.storage.fsync_latency.observe(took_s)
            self._metrics.storage.fsyncs.inc()
        self._store.complete_flush(job, error)
        if error is not None:
            self._metrics.storage.fsync_errors.inc()
            self._fail(error)
            return
        self._metrics.storage.wal_durable_lsn.set(self._store.durable_lsn)
        self._end_syncs()
        if self._syncs_wanted:
            self._dirty()
        self._plan_sync()
        if self._store.seal_waits:
            self._flushed_ms = self._now_ms()
            self._plan_seal()

    def _end_syncs(self) -> None:
        """What `sync` promised is done, or never will be."""
        ended, self._syncs_out = self._syncs_out, []
        if self._failed:
            ended, self._syncs_wanted = [*ended, *self._syncs_wanted], []
        for waiter in ended:
            if waiter.done():
                continue
            if self._failed:
                waiter.set_exception(StoreFailed(f"storage failed: {self._store.failed}"))
            else:
                waiter.set_result(None)

    def _spilled(self, job: FlushJob, count: int, error: Exception | None) -> None:
        self._in_flight -= count
        if error is not None:
            self._fail(error)
        self._store.complete_spill(job)
        if self._store.failed is not None:
            self._fail(self._store.failed)
        if self._store.checkpoint_due:
            self._start_checkpoint()
        self._plan_respill()
        self._idle.set()
        self._wake_spills()
        self._plan_spill()

    def _wake_spills(self) -> None:
        waiting, self._spills_wanted = self._spills_wanted, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _plan_sync(self) -> None:
        """Relaxed appends are synced within their interval, also when nothing follows them."""
        due_ms = self._store.sync_due_ms()
        if due_ms is not None and "sync" not in self._timers:
            self._set_timer("sync", max(0, due_ms - self._now_ms()) / 1000, self._take)

    def _plan_respill(self) -> None:
        """Segments that lack what a full disk refused get it soon after there is room."""
        if self._store.spill_waits and "respill" not in self._timers:
            self._set_timer("respill", RETRY_S, self._respill)

    def _respill(self) -> None:
        if not self._failed and not self._is_out:
            self._hand_over(self._store.take_respill())
        self._plan_respill()

    def _plan_seal(self) -> None:
        """The last block of a pause is sealed, so that damage to it can't pass for a tear: one
        more sync for a pause, none for a write."""
        if "seal" not in self._timers:
            self._set_timer("seal", self._store.config.seal_after_ms / 1000, self._seal)

    def _seal(self) -> None:
        idle_ms = self._now_ms() - self._flushed_ms
        if self._failed or self._is_out:
            return
        if idle_ms < self._store.config.seal_after_ms:
            self._plan_seal()
            return
        self._hand_over(self._store.take_seal(idle_ms))

    def _set_timer(self, name: str, delay_s: float, action: Callable[[], None]) -> None:
        assert self._loop is not None
        if self._stopping:
            return

        def run() -> None:
            self._timers.pop(name, None)
            action()

        self._timers[name] = self._loop.call_later(delay_s, run)

    def _now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def _fail(self, error: Exception) -> None:
        if not self._failed:
            self._failed = True
            self._store.failed = self._store.failed or error
            self._idle.set()
            self._end_syncs()
            self._wake_spills()
            if self._stopping and is_full(error):
                _log.error("stopped_while_the_disk_was_full", problem=str(error))
                return
            _log.critical("disk_failed", error=repr(error))
            self._on_failure(error)

    # checkpoints

    def _plan_checkpoint(self) -> None:
        self._set_timer("checkpoint", self._checkpoint_interval_s, self._start_checkpoint)

    def _start_checkpoint(self) -> None:
        if not self._checkpoints and not self._stopping:
            self._checkpoints.begin(self._run_checkpoint())

    async def _run_checkpoint(self) -> None:
        job = None if self._failed or self._keeper is None else self._store.take_checkpoint()
        if job is not None:
            error = await self.keep(lambda: self._noted(job.run))
            if error is None:
                await self._log_again(job)
            self._store.complete_checkpoint(job, error)
            if error is not None:
                self._metrics.storage.fsync_errors.inc()
                self._fail(error)
        if not self._failed and self._keeper is not None and "checkpoint" not in self._timers:
            self._plan_checkpoint()

    async def _log_again(self, job: CheckpointJob) -> None:
        """In turns that hold up nobody; its completion would do it in one."""
        while self._store.failed is None and self._store.log_again(job):  # noqa: ASYNC110
            await asyncio.sleep(0)

    def _noted(self, work: Callable[[], object]) -> Exception | None:
        """On the keeper thread."""
        self._threads_out.add("keeper")
        error = _attempt(work)
        self._threads_out.discard("keeper")
        return error

    # the writer and the spiller thread

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        while (job := self._jobs.get()) is not None:
            self._threads_out.add("writer")
            began = time.perf_counter()
            error = _attempt(job.sync)
            while isinstance(error, OSError) and is_full(error):
                loop.call_soon_threadsafe(self._stalled, job, error)
                if self._gives_up.wait(RETRY_S):
                    break
                error = _attempt(job.sync)
            took_s = time.perf_counter() - began
            self._threads_out.discard("writer")
            if loop.is_closed():
                break  # it was waited for in vain: nobody hears of it, and nothing more is written
            loop.call_soon_threadsafe(self._synced, job, took_s, error)
            if error is None:
                self._spills.put(job)
            else:
                loop.call_soon_threadsafe(self._spilled, job, 1, error)
        self._spills.end()

    def _spill(self, loop: asyncio.AbstractEventLoop) -> None:
        while (taken := self._spills.take()) is not None and not loop.is_closed():
            job, count = taken
            self._threads_out.add("spiller")
            error = _attempt(job.spill)
            self._threads_out.discard("spiller")
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._spilled, job, count, error)
        self._spills.end()  # nobody waits in `put` for what is not appended any more
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._writer_ended.set)


def _attempt(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - carried to the loop, which ends the node
        return error
    return None

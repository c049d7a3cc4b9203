"""Everything that lies on the disk is read again, from time to time, and compared with the others'.

Damage at rest is found while there are still sound copies of it. Rounds are throttled, and begin
soon after the start, then once an interval. What sound bytes tell is put right here and now: index
files, headers, snapshots of the state, the write-ahead log. Damaged entries go to the healer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from goqueue.wire.types import PartitionId
from log.errors import Damaged, LogError, WalDamaged
from log.partition.log import PartitionLog
from log.partition.range_hashes import RangeHashes
from log.segments.segment import Segment
from log.segments.verify import Findings
from node.api.scrub import ScrubView
from node.runtime.logger import get_logger
from node.runtime.periodic import Periodic
from node.runtime.throttle import Throttle
from node.storage.parts import StorageParts
from node.storage.repair.comparison import Comparison

FIRST_S = 5.0
"""From the start to the first round: what was damaged while nobody looked is found soon."""
TIDY_S = 10.0
FOUND_MAX = 100
T = TypeVar("T")

_log = get_logger("scrub")


class Scrub:
    """A service. `renew_snapshot` stores a group's state anew, and tells whether it could;
    `is_whole` whether nothing that was set aside of a group is needed any more."""

    def __init__(
        self,
        parts: StorageParts,
        comparison: Comparison,
        workers: Executor,
        *,
        interval_s: float,
        throttle: Throttle,
        renew_snapshot: Callable[[PartitionId], Awaitable[bool]],
        is_whole: Callable[[PartitionId], bool],
        wall_ms: Callable[[], int],
    ) -> None:
        self._store = parts.store
        self._flusher = parts.flusher
        self._comparison = comparison
        self._workers = workers
        self._metrics = parts.metrics
        self._renew_snapshot = renew_snapshot
        self._is_whole = is_whole
        self._wall_ms = wall_ms
        self._throttle = throttle
        self._round_loop = Periodic(
            "scrub",
            self._guarded_round,
            interval_s or None,
            _log,
            "scrub_interrupted",
            first_s=FIRST_S if interval_s else None,
        )
        self._tidying = Periodic("set-aside", self._tidy, TIDY_S, _log, "set_aside_not_removed")
        self._found: deque[str] = deque(maxlen=FOUND_MAX)
        self._running = False
        self._rounds = self._started_ms = self._ended_ms = 0
        self._bytes_total = self._bytes_done = 0
        self._damaged = self._mended = self._compared = 0

    async def start(self) -> None:
        await self._round_loop.start()
        await self._tidying.start()

    async def stop(self) -> None:
        await self._round_loop.stop()
        await self._tidying.stop()

    def begin(self) -> None:
        """A round now; one more after the one that runs."""
        self._round_loop.wake()

    def status(self) -> ScrubView:
        logs = [
            self._store.partition_log(partition_id) for partition_id in self._store.partition_ids()
        ]
        return ScrubView(
            running=self._running or self._round_loop.woken.is_set(),
            rounds=self._rounds,
            started_ms=self._started_ms,
            ended_ms=self._ended_ms,
            bytes_total=self._bytes_total,
            bytes_done=self._bytes_done,
            damaged_entries=self._damaged,
            mended_files=self._mended,
            ranges_compared=self._compared,
            found=list(self._found),
            diverged=self._comparison.diverged()
            + [f"{log.id} is to be copied anew" for log in logs if log.untrusted],
            damaged=[str(log.id) for log in logs if log.damaged is not None],
        )

    async def round(self) -> None:
        """Reads everything once. Raises StoreFailed where something can't be put right."""
        self._running, self._started_ms = True, self._wall_ms()
        self._bytes_done = self._damaged = self._mended = self._compared = 0
        logs = [
            self._store.partition_log(partition_id) for partition_id in self._store.partition_ids()
        ]
        self._bytes_total = sum(log.size_bytes for log in logs)
        try:
            await self._check_wal()
            for log in logs:
                try:
                    await self._check_log(log)
                except (OSError, LogError):  # the others are read all the same
                    _log.exception("group_not_scrubbed", group=str(log.id))
        finally:
            self._running, self._ended_ms = False, self._wall_ms()
        self._rounds += 1
        self._metrics.storage.scrub_rounds.inc()

    # -- private

    async def _guarded_round(self) -> None:
        """What failed is read again after an interval, or as soon as somebody asks for it."""
        try:
            await self.round()
        except Exception:  # noqa: BLE001 - a loop's failure would keep who asks waiting an interval
            _log.exception("scrub_interrupted")

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work)

    async def _pay(self, size: int) -> None:
        self._metrics.storage.scrub_bytes.inc(size)
        await self._throttle.take(size)

    def _tell(self, text: str) -> None:
        self._found.append(text)
        _log.error("scrub_found", problem=text)

    async def _check_wal(self) -> None:
        check = self._store.wal_check()
        if check is None:
            return
        try:
            while size := await self._off_loop(check.step):
                await self._pay(size)
        except WalDamaged as error:
            if self._store.keeps_wal(check.path):
                self._tell(f"{error}: the log goes on in a new file")
                self._mended += 1
                self._store.renew_wal(check.path)
        finally:
            check.close()

    async def _check_log(self, log: PartitionLog) -> None:
        if not self._store.holds(log):
            return
        await self._check_snapshots(log)
        replica = self._comparison.replica(log.id)
        committed = 0 if replica is None else replica.commit_index
        hashes = RangeHashes(min(committed, log.spilled_index))
        for segment in log.disk_segments.chain:
            if segment in log.disk_segments.chain and self._store.holds(log):
                await self._check_segment(log, segment, hashes)
        if log.damaged is None and self._store.holds(log):
            self._compared += await self._comparison.compare(log.id, hashes)

    async def _check_segment(
        self, log: PartitionLog, segment: Segment, hashes: RangeHashes
    ) -> None:
        segments = log.disk_segments
        generation = segments.generation
        check = segments.verification(segment, segment.last_index, hashes.add)
        try:
            while size := await self._off_loop(check.step):
                self._bytes_done += size
                await self._pay(size)
        finally:
            check.close()
        is_same = segments.generation == generation and segment in segments.chain
        if check.findings.any and is_same and self._store.holds(log):
            await self._act(log, segment, check.findings, generation)

    async def _act(
        self, log: PartitionLog, segment: Segment, findings: Findings, generation: int
    ) -> None:
        """Puts right what can be put right here, and names what can't."""
        segments = log.disk_segments
        if segment is segments.chain[-1] and segments.lacks_files(segment):
            self._tell(f"a file of {segment.path()} is missing: written again")
            self._mended += 1
            log.reattach()
            await self._flusher.spilled()
            await self._check_segment(log, segment, RangeHashes(0))
            return
        written = await self._flusher.keep(lambda: segments.mend(segment, findings, generation))
        if written is None:
            return  # entries were replaced meanwhile: the next round looks at those
        self._mended += len(written)
        for path in written:
            self._tell(f"{path} disagreed with its entries: written again")
        for first, last in findings.entries:
            first = max(first, log.first_index)
            if first > last:
                continue
            self._damaged += last - first + 1
            self._metrics.storage.scrub_damaged_entries.inc(last - first + 1)
            self._tell(f"entries {first} to {last} of {log.id} are damaged")
            log.quarantine(first, last, "found by a scrub")
        self._metrics.storage.scrub_mended_files.inc(len(written))

    async def _check_snapshots(self, log: PartitionLog) -> None:
        for index in log.snapshots.indexes:
            try:
                size = await self._off_loop(partial(log.snapshots.verify, log.created_lsn, index))
            except (Damaged, OSError) as error:
                await self._renew(log, index, error)
            else:
                await self._pay(size)

    async def _renew(self, log: PartitionLog, index: int, error: Exception) -> None:
        """A state that can't be read is stored again, from memory."""
        renewed = await self._renew_snapshot(log.id)
        self._tell(f"{error}: {'stored again' if renewed else 'an older one has to do'}")
        newest = max(log.snapshots.indexes, default=0)
        if renewed:
            self._mended += 1
            self._metrics.storage.scrub_mended_files.inc()
            if index != newest and self._store.holds(log):
                await self._flusher.keep(lambda: log.snapshots.discard(index))

    async def _tidy(self) -> None:
        """What was set aside goes once nothing of it is needed."""
        aside = self._store.set_aside
        if not aside.exists:
            return
        for partition_id in await self._off_loop(aside.partition_ids):
            if self._is_whole(partition_id):
                await self._off_loop(partial(aside.remove_log, partition_id))
                _log.info("set_aside_removed", group=str(partition_id))
        if not await self._off_loop(aside.partition_ids):
            await self._off_loop(aside.remove)

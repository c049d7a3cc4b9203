"""Key compaction: of each key the last message stays, with its offset; what it superseded goes.

The leader looks through what is sealed, appends what must stay once more, in entries of kind KEPT,
and then proposes where the log begins: the entry that every replica obeys. Nothing is begun that
is not worth it, and nothing is held: the log is read in small steps, off the loop.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from coordinator.topics.settings import TopicConfig
from delivery.entries.reappended import ReappendedBatch, encode_reappended
from delivery.history.compacted_set import Compaction, encode_compaction
from delivery.offsets.bitmaps import BitMap64, span
from delivery.state.partition import PartitionState
from goqueue.wire.errors import GoQueueError, NotLeader
from goqueue.wire.types import Index, NodeId, Offset
from log.entry import Entry, EntryKind
from log.errors import LogError
from log.partition.log import PartitionLog
from node.metrics import Metrics
from node.partition.reading.reader import PartitionReader
from node.partition.retention.compaction_scan import Scan, cut_rows
from node.partition.retention.trimming import Retention
from node.runtime.logger import get_logger
from raft.errors import Outcome
from raft.group import RaftGroup

STEP_BYTES = 256 << 10
"""Of the log, looked at in one step on a worker thread."""
KEPT_BYTES = 256 << 10
"""Of one entry that carries messages: what reading one of them costs at most."""
OVER_QUOTA = 1.25
"""`compact,delete` is run, whatever the ratio, once a partition is so much beyond its bytes."""
REST = 1.0
"""A run pauses so long after each step, in parts of what the step took."""

DECIDES = 3
"""How often a run carries what has died or was leased meanwhile, before it gives up."""

P = ParamSpec("P")
T = TypeVar("T")

_log = get_logger("compaction")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would work on: entries from the log's start up to `index`, where `offset` is the
    first message that it leaves alone."""

    index: Index
    offset: Offset
    dirty_bytes: int
    clean_bytes: int

    @property
    def ratio(self) -> float:
        """Of what a run would look at, how much is not compacted."""
        return self.dirty_bytes / max(1, self.dirty_bytes + self.clean_bytes)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a run dropped, or would: messages, and of those that stay keys and null values.
    `outcome`: done, nothing (to do), busy, or why it ended early."""

    outcome: str
    dropped: int = 0
    kept: int = 0
    tombstones: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """How a partition stands: bytes that can be compacted and are not, and that are."""

    running: bool
    dirty_bytes: int
    clean_bytes: int
    ratio: float
    kept: int
    runs: int
    dropped: int
    last_ms: int


class Shared(Protocol):
    """What a compaction needs of what all replicas of a node share."""

    @property
    def metrics(self) -> Metrics: ...

    @property
    def workers(self) -> Executor: ...

    @property
    def lacks_room(self) -> Callable[[Iterable[NodeId]], bool]:
        """Whether the disks of these voters have no room for more messages."""
        ...

    @property
    def least_room(self) -> Callable[[Iterable[NodeId]], tuple[int, NodeId]]:
        """The room of the fullest of these voters' disks, and whose it is."""
        ...


class Compactor:
    """The compaction of one partition. Loop thread only."""

    def __init__(
        self,
        *,
        topic: str,
        log: PartitionLog,
        state: PartitionState,
        reader: PartitionReader,
        retention: Retention,
        raft_group: Callable[[], RaftGroup],
        config: Callable[[], TopicConfig],
        parts: Shared,
    ) -> None:
        self._topic = topic
        self._log = log
        self._state = state
        self._reader = reader
        self._retention = retention
        self._raft_group = raft_group
        self._config = config
        self._parts = parts
        self.running = False
        self._begun_s = 0.0

    def standing(self) -> Standing:
        """As of now, on any replica."""
        plan, compacted_set = self._plan(), self._state.queue.compacted_set
        return Standing(
            self.running,
            0 if plan is None else plan.dirty_bytes,
            compacted_set.carried_bytes,
            0.0 if plan is None else plan.ratio,
            len(compacted_set.offsets),
            compacted_set.runs,
            compacted_set.dropped,
            compacted_set.last_ms,
        )

    async def run(self, *, force: bool = False, dry_run: bool = False) -> Findings:
        """As leader: compact if that is due, or is asked for; `dry_run` only tells what would go.

        One at a time in a partition. Raises nothing that leadership or a disk explains.
        """
        if self.running or self._retention.in_flight:
            return Findings("busy")
        compacted = self._config().is_compacted
        if not (compacted or self._state.queue.compacted) or not self._raft_group().is_ready_leader:
            return Findings("nothing")
        self.running = self._retention.in_flight = True
        self._begun_s = time.monotonic()
        try:
            plan = self._plan() if compacted else None
            if plan is not None and (force or dry_run or self._is_due(plan)):
                return await self._compact(plan, dry_run=dry_run)
            return Findings("nothing") if dry_run else await self._forget()
        except NotLeader:
            return Findings("another node leads")
        except (LogError, GoQueueError, ValueError, OSError) as error:
            _log.warning("not_compacted", group=str(self._log.id), problem=str(error))
            return Findings(str(error))
        finally:
            self.running = self._retention.in_flight = False

    # what is to be done

    def _plan(self) -> Plan | None:
        """The sealed segments that every voter has and that are old enough; None for none."""
        config, state, log = self._config(), self._state, self._log
        limit = min(self._raft_group().replication.trim_limit, state.applied_index) + 1
        if config.min_compaction_lag_ms:
            young = log.locate_time(
                self._raft_group().log_time.now_ms() - config.min_compaction_lag_ms
            )
            limit = limit if young is None else min(limit, young)
        limit = min(limit, self._retention.archiving.end_index())
        sealed = [
            segment
            for segment in log.segments()
            if segment.sealed and state.log_start_index <= segment.last_index < limit
        ]
        if not sealed or self._retention.archiving.holds_kept:
            return None
        index = Index(sealed[-1].last_index + 1)
        carriers = state.queue.compacted_set.carriers
        carried = sum(carrier.size_bytes for carrier in carriers if carrier.index < index)
        dirty = max(0, sum(segment.size_bytes for segment in sealed) - carried)
        return Plan(index, Offset(0), dirty, state.queue.compacted_set.carried_bytes)

    def _is_due(self, plan: Plan) -> bool:
        config = self._config()
        if plan.dirty_bytes and plan.ratio >= config.min_cleanable_ratio:
            return True
        quota = config.retention_bytes
        return config.is_deleted and 0 <= quota * OVER_QUOTA < self._log.size_bytes

    # a run

    async def _compact(self, plan: Plan, *, dry_run: bool) -> Findings:
        state, queue = self._state, self._state.queue
        begun_at, before = state.log_start_index, state.log_start_offset
        kept_before, now_ms = len(queue.compacted), self._raft_group().log_time.now_ms()
        offset = max(self._retention.offset_from(plan.index), before)
        overdue = self._overdue(now_ms)  # before the log is read: what is delayed now supersedes
        live, nulls = await self._live(plan.index, now_ms)  # nothing in this run, even once due
        live -= overdue & nulls
        size = after = plan.dirty_bytes + plan.clean_bytes
        quota = self._config().retention_bytes
        room = quota if self._config().is_deleted and quota >= 0 else None
        if dry_run or (room is not None and self._log.size_bytes > room):
            live, after = await self._fit(plan.index, live, room)
        tombstones = live & nulls
        dropped = offset - before + kept_before - len(live)
        if dry_run:
            return Findings("done", dropped, len(live), len(tombstones), size, after)
        await self._check_fits(plan.index, offset, live, size)
        if not await self._carry_needed(plan.index, offset):
            return Findings("what must be kept could not be carried")
        since, after = await self._carry(plan.index, live)
        decision = Compaction(begun_at, plan.index, offset, since, live, tombstones)
        for _ in range(DECIDES):
            if not await self._carry_needed(plan.index, offset, self._leased(offset, live)):
                return Findings("what must be kept could not be carried")
            await self._propose(EntryKind.COMPACT, encode_compaction(decision))
            if state.log_start_index == plan.index:
                self._count(dropped, max(0, size - after))
                return Findings("done", dropped, len(live), len(tombstones), size, after)
        return Findings("the log changed meanwhile")

    async def _live(self, index: Index, now_ms: int) -> tuple[BitMap64, BitMap64]:
        """The messages before this entry that stay for their key's sake, and all null ones.

        A delayed message that is not due stays, and supersedes nothing until it is; one that was
        cancelled is none; one that has expired supersedes, and goes itself. Delayed ones that have
        outlived retention are no part of it: they are carried, and readers don't find them.
        """
        queue, config = self._state.queue, self._config()
        hidden, kept = queue.hidden.copy(), queue.compacted
        expired = queue.withdrawn - queue.cancelled
        end = self._retention.offset_from(index)
        scan = Scan(hidden | queue.cancelled)
        found_hidden = hidden & span(self._state.log_start_offset, end) | (hidden & kept)
        more = True
        while more:
            async for entries, among in self._sources(index, kept):
                await self._step(scan.add, entries, among)
            more = scan.end_pass()
        live = (scan.live | found_hidden) - expired
        if config.is_deleted and config.retention_ms >= 0:
            first = self._reader.offset_at(now_ms - config.retention_ms)
            live -= span(0, self._state.next_offset if first is None else first) - found_hidden
        return live, scan.nulls

    def _overdue(self, now_ms: int) -> BitMap64:
        """Null values whose delay is over; those behind a delayed message may be needed yet."""
        queue = self._state.queue
        overdue = queue.compacted_set.tombstones_met_before(
            now_ms - self._config().delete_retention_ms
        )
        if queue.hidden:
            overdue &= span(0, queue.hidden.min())
        return overdue

    def _leased(self, below: int, live: BitMap64) -> list[int]:
        """What consumers work on, and is superseded: it is not taken from them."""
        groups = self._state.queue.groups.values()
        return [o for group in groups for o in group.leases if o < below and o not in live]

    async def _fit(self, index: Index, live: BitMap64, room: int | None) -> tuple[BitMap64, int]:
        """The newest of the live messages that fit, and the bytes that carrying them takes."""
        firsts, sizes, total = array("Q"), array("Q"), 0
        async for batches, size in self._bodies(index, live):
            firsts.extend(batch.offsets[0] for batch in batches)
            sizes.extend(map(_size, batches))
            total += size
        if room is not None:
            room -= sum(s.size_bytes for s in self._log.segments() if s.first_index >= index)
            gone = 0
            while gone < len(sizes) and total > room:
                total -= sizes[gone]
                gone += 1
            live = live - span(0, firsts[gone] if gone < len(firsts) else self._state.next_offset)
        return live, total

    async def _carry_needed(self, index: Index, offset: Offset, also: Sequence[int] = ()) -> bool:
        """Carry on what the queue must keep, and these, all in this run: the next one begins later,
        and would have to carry them again. Before what stays, which is in vain without it."""
        done = self._carried_from(index)
        while not await self._retention.carry(index, offset, also):
            before, done = done, self._carried_from(index)
            if done == before:
                return False
            self._check_room()
        return True

    def _carried_from(self, index: Index) -> int:
        return sum(at >= index for at in self._state.queue.reappended.values())

    def _check_room(self) -> None:
        if self._parts.lacks_room(voter.node for voter in self._raft_group().membership.voters):
            raise ValueError("the disk is full")

    async def _check_fits(self, index: Index, offset: Offset, live: BitMap64, most: int) -> None:
        """Raises ValueError, before anything is appended, where a voter has not the room for all
        that a run appends before anything goes. It is measured only where `most` would not fit."""
        if most <= self._least_room()[0]:
            return
        needed = await self._needs(index, offset, live)
        room, node = self._least_room()
        if needed > room:
            raise ValueError(f"it takes {needed} bytes, and {node} has room for {room}")

    def _least_room(self) -> tuple[int, NodeId]:
        return self._parts.least_room(voter.node for voter in self._raft_group().membership.voters)

    async def _needs(self, index: Index, offset: Offset, live: BitMap64) -> int:
        """The bytes of what stays, and of what the queue must keep, stored or carried by now."""
        queue = self._state.queue
        _, needed = await self._fit(index, live, None)
        _, more = await self._fit(index, BitMap64(queue.needed_below(offset)), None)
        for at in sorted({at for at in queue.reappended.values() if at < index}):
            [entry] = await self._entries(Index(at), Index(at + 1))
            more += len(entry.frame)
        return needed + more

    async def _carry(self, index: Index, live: BitMap64) -> tuple[Index, int]:
        """Append what stays once more: the first entry that holds any of it, and their bytes."""
        since, total = Index(0), 0
        async for batches, size in self._bodies(index, live):
            self._check_room()
            at = await self._propose(EntryKind.KEPT, encode_reappended(batches))
            since, total = since or at, total + size
        return since or Index(self._log.last_index + 1), total

    async def _bodies(
        self, index: Index, live: BitMap64
    ) -> AsyncIterator[tuple[list[ReappendedBatch], int]]:
        """What stays, in runs that fit into an entry each, and their bytes."""
        batches: list[ReappendedBatch] = []
        size = 0
        kept = live & self._state.queue.compacted
        async for entries, among in self._sources(index, self._state.queue.compacted):
            kind = EntryKind.RECORDS if among is None else EntryKind.KEPT
            for batch in await self._step(cut_rows, entries, live if among is None else kept, kind):
                length = _size(batch)
                if batches and size + length > KEPT_BYTES:
                    yield batches, size
                    batches, size = [], 0
                batches.append(batch)
                size += length
        if batches:
            yield batches, size

    async def _sources(
        self, index: Index, kept: BitMap64
    ) -> AsyncIterator[tuple[list[Entry], BitMap64 | None]]:
        """All messages before this entry, in the order of their offsets: what is kept, then what
        the log holds. Of what is kept, the set says which messages count."""
        carriers = list(self._state.queue.compacted_set.carriers)
        for carrier in carriers:
            yield await self._entries(carrier.index, Index(carrier.index + 1)), kept
        at = self._state.log_start_index
        while at < index:
            entries = await self._entries(at, index)
            at = Index(entries[-1].index + 1)
            yield entries, None

    async def _entries(self, first: Index, end: Index) -> list[Entry]:
        count = end - first
        if self._log.is_cold(first):
            read = self._log.cold_entries
            return await self._step(lambda: read(first, max_bytes=STEP_BYTES, max_count=count))
        return self._log.entries(first, max_bytes=STEP_BYTES, max_count=count)

    async def _step(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do it on a worker thread, then rest: others need the processor too."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        found = await loop.run_in_executor(self._parts.workers, lambda: work(*args, **kwargs))
        await asyncio.sleep(REST * (loop.time() - begun_s))
        if not self._raft_group().is_ready_leader:
            raise NotLeader(self._raft_group().leader)
        return found

    # what needs no run

    async def _forget(self) -> Findings:
        """Drop what is kept and has had its time: null values, and by age what is too old."""
        state, queue, config = self._state, self._state.queue, self._config()
        kept, now_ms = queue.compacted, self._raft_group().log_time.now_ms()
        gone = self._overdue(now_ms)
        delayed = kept & queue.delayed_ever
        if delayed:
            gone &= span(0, delayed.min())
        if kept and config.is_deleted and config.retention_ms >= 0:
            first = self._reader.offset_at(now_ms - config.retention_ms)
            gone |= (kept & span(0, state.log_start_offset if first is None else first)) - delayed
        gone &= kept
        if self._retention.archiving.is_required:
            gone &= span(0, self._retention.archiving.position)
        if not gone:
            return Findings("nothing")
        tombstones = BitMap64()
        for _, offsets in queue.compacted_set.tombstones:
            tombstones |= offsets
        start, offset = state.log_start_index, state.log_start_offset
        decision = Compaction(start, start, offset, Index(0), kept - gone, tombstones - gone)
        await self._propose(EntryKind.COMPACT, encode_compaction(decision))
        self._count(len(gone), 0)
        return Findings("done", len(gone), len(decision.kept), len(decision.tombstones))

    async def _propose(self, kind: EntryKind, body: bytes) -> Index:
        """The entry's index, once it is applied. Raises NotLeader where it may not be."""
        done: asyncio.Future[Index] = asyncio.get_running_loop().create_future()

        def ended(outcome: Outcome, _result: object, index: Index) -> None:
            if done.done():
                return
            if outcome is Outcome.APPLIED:
                done.set_result(index)
            else:
                done.set_exception(NotLeader(None))

        self._raft_group().propose(kind, body, callback=ended)
        return await done

    def _count(self, dropped: int, freed: int) -> None:
        metrics = self._parts.metrics
        metrics.storage.compaction_runs.labels(self._topic).inc()
        metrics.storage.compaction_dropped_messages.labels(self._topic).inc(dropped)
        metrics.storage.compaction_bytes_reclaimed.labels(self._topic).inc(freed)
        latency = metrics.storage.compaction_latency.labels(self._topic)
        latency.observe(time.monotonic() - self._begun_s)


def _size(batch: ReappendedBatch) -> int:
    return len(batch.batch) + 8 * len(batch.offsets) + 16

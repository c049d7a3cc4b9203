"""One partition's replica on this node: its Raft group, state, publishes and readers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import structlog

from coordinator.topics import TopicConfig
from delivery.appender import Appender
from delivery.partition import PartitionState
from delivery.records import encode_trim
from goqueue.wire.errors import Busy, DiskFull, NotLeader
from goqueue.wire.types import GroupId, Index, NodeId, Offset, Term, Voter
from log.entry import Entry, EntryKind
from log.group import GroupLog
from node.append_queue import AppendQueue, ByteBudget
from node.http.broker import AppendResult, Slice
from node.metrics import Metrics
from node.partition_reader import Bounds, PartitionReader
from node.stored_ids import StoredIds
from raft.errors import Outcome
from raft.group import RaftGroup
from raft.interfaces import SnapshotWork

APPLIED_TIMES_MAX = 64
"""Newest entries whose time of application is remembered: the tail that no later frame tells of."""
IN_SYNC_LAG_ENTRIES = 1000
"""Entries that a replica may be behind what is committed and still count as in sync: what is in
flight of a busy partition."""
WAITED_FOR_BYTES = 1 << 30
"""Beyond its quota a partition keeps this much, or as much again as the quota if that is more, for
a replica that is away: what is trimmed before it has come back, it can't get any more."""

_log = structlog.get_logger("partition")


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """What a replica is told by the node."""

    pending_bytes_max: int
    entry_bytes: int
    read_waiters_max: int


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What the replicas of one node share."""

    node: NodeId
    budget: ByteBudget
    metrics: Metrics
    workers: Executor
    disk_full: Callable[[], bool]
    disk_behind: Callable[[], bool]
    wall_ms: Callable[[], int]
    on_leader: Callable[[GroupId, NodeId], None]
    """Told when a partition's leader is another one."""


class PartitionHost:
    """Implements Raft's StateMachine for one partition; loop thread only.

    `attach` gives it its group, after which Raft may call it.
    """

    def __init__(
        self,
        *,
        id: GroupId,
        topic: str,
        config: TopicConfig,
        log: GroupLog,
        settings: PartitionSettings,
        parts: NodeParts,
    ) -> None:
        self.id = id
        self.topic = topic
        self.config = config
        self.log = log
        log.relaxed = config.durability == "relaxed"
        self.state = PartitionState()
        self.reader = PartitionReader(log, self._bounds)
        self._settings = settings
        self._parts = parts
        self._group: RaftGroup | None = None
        self._queue: AppendQueue | None = None
        self._applied = Index(0)
        self._applied_times: deque[tuple[Index, int]] = deque(maxlen=APPLIED_TIMES_MAX)
        self._found_index = log.last_index  # up to here entries are applied again, not first
        self._waiters: set[asyncio.Future[None]] = set()
        self._leader_waiters: set[asyncio.Future[None]] = set()
        self._snapshot_index = Index(0)
        self._trim_in_flight = False

    # lifecycle

    def attach(self, group: RaftGroup) -> None:
        """Take the group that was started with this state machine."""
        self._group = group
        self._queue = AppendQueue(
            topic=self.topic,
            group=group,
            appender=self._make_appender,
            original_time_ms=lambda offset: self.reader.time_at(offset) or 0,
            pending_bytes_max=self._settings.pending_bytes_max,
            entry_bytes=self._settings.entry_bytes,
            budget=self._parts.budget,
            metrics=self._parts.metrics,
            workers=self._parts.workers,
        )

    def close(self) -> None:
        """The replica is leaving this node: nothing that waits here will be served by it."""
        if self._queue is not None:
            self._queue.close(None)
        self._wake(self._waiters)
        self._wake(self._leader_waiters)

    @property
    def group(self) -> RaftGroup:
        assert self._group is not None, "not attached"
        return self._group

    @property
    def is_leader(self) -> bool:
        return self._group is not None and self._group.is_ready_leader

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self.group.voters

    @property
    def applied_index(self) -> Index:
        return self._applied

    def matches(self) -> dict[NodeId, Index]:
        """What each replica is known to hold durably, as far as this node knows."""
        return self.group.matches()

    def applied_ms(self, index: Index) -> int:
        """When this node applied an entry, by its wall clock; 0 where that is not remembered."""
        times = self._applied_times
        if not times or index < times[0][0]:
            return 0
        return next((at for applied, at in times if applied >= index), 0)

    def in_sync(self) -> list[str]:
        """Replicas with a live link to here; as their leader sees it, those that lag behind what
        is committed are left out."""
        peers = self.group.peers
        if self.is_leader:
            floor = self.group.commit_index - IN_SYNC_LAG_ENTRIES
            behind = {name for name, match in self.matches().items() if match < floor}
            there = {name for name, peer in peers.items() if peer.connected}
            return sorted({self._parts.node, *there} - behind)
        return sorted({self._parts.node, *(n for n, peer in peers.items() if peer.connected)})

    def topic_changed(self, config: TopicConfig) -> None:
        """The topic was altered."""
        if config != self.config:
            self.config = config
            self.log.relaxed = config.durability == "relaxed"

    # Raft's StateMachine

    def apply(self, entry: Entry) -> object:
        self.state.apply(entry)
        self._applied = entry.index
        if entry.index > self._found_index:
            self._applied_times.append((entry.index, self._parts.wall_ms()))
        if entry.kind == EntryKind.RECORDS:
            self._wake(self._waiters)
        elif entry.kind == EntryKind.TRIM:
            self.log.trim_to(self.state.log_start_index)
        return None

    def snapshot(self) -> bytes:
        return self.state.snapshot()

    def restore(self, index: Index, state: bytes) -> None:
        self.state.restore(state)
        self.log.trim_to(self.state.log_start_index)
        self._applied = index
        self._snapshot_index = index

    def on_leader(self, term: Term) -> None:
        assert self._queue is not None
        self._queue.open()
        self._parts.metrics.elections.inc()
        self._wake(self._leader_waiters)
        self._parts.on_leader(self.id, self._parts.node)

    def on_follower(self, leader: NodeId | None) -> None:
        if self._queue is not None:
            self._queue.close(leader)
        self._trim_in_flight = False
        self._wake(self._leader_waiters)
        self._wake(self._waiters)  # long polls of the former leader look for the new one
        if leader is not None:
            self._parts.on_leader(self.id, leader)

    # publishing

    def append(
        self, batch: bytes, *, request_id: int, validated: bool
    ) -> asyncio.Future[AppendResult]:
        """Append as leader. Raises `NotLeader`, `NoQuorum`, `DiskFull`, `Busy`, and what a bad
        batch raises; nothing has happened then."""
        group = self.group
        if self._queue is None or not group.is_ready_leader:
            raise NotLeader(group.leader)
        if not group.has_quorum:
            raise NotLeader(None)
        if self._parts.disk_full():
            raise DiskFull(retry_after_s=10)
        if self._parts.disk_behind():
            raise Busy("the disk is behind", retry_after_s=1, passing=True)
        return self._queue.append(batch, request_id=request_id, validated=validated)

    @property
    def duplicates(self) -> int:
        """Messages that this node, as leader, answered with the offset of their original."""
        return 0 if self._queue is None else self._queue.duplicates

    # reading

    @property
    def end_offset(self) -> Offset:
        return self.state.next_offset

    def read(
        self, offset: Offset, *, max_records: int, max_bytes: int, to_time_ms: int | None
    ) -> Slice:
        """What is applied here; see `PartitionReader.read`."""
        slice_ = self.reader.read(
            offset, max_records=max_records, max_bytes=max_bytes, to_time_ms=to_time_ms
        )
        metrics = self._parts.metrics
        metrics.read_messages.labels(self.topic).inc(
            max(0, slice_.next_offset - max(offset, slice_.log_start))
        )
        metrics.read_bytes.labels(self.topic).inc(
            sum(len(stored.batch) for stored in slice_.batches)
        )
        return slice_

    async def wait_for_records(self, offset: Offset, timeout_s: float) -> bool:
        """Wait until something is stored at `offset`, leadership moves, or the time is over;
        True when there is. With too many waiters it answers at once."""
        if self.end_offset <= offset and len(self._waiters) < self._settings.read_waiters_max:
            await self._wait(self._waiters, timeout_s)
        return self.end_offset > offset

    async def wait_for_leadership(self, timeout_s: float) -> None:
        """Return when the leader may have changed, or after the time."""
        await self._wait(self._leader_waiters, timeout_s)

    # upkeep, called by the node from time to time

    def propose_trim(self, now_ms: int) -> None:
        """As leader: move the log start by age and size, through the log. At most one in flight."""
        if not self.is_leader or self._trim_in_flight:
            return
        trim = self._retention(now_ms)
        if trim is None:
            return
        self._trim_in_flight = True
        try:
            self.group.propose(EntryKind.TRIM, encode_trim(*trim), callback=self._trimmed)
        except NotLeader:
            self._trim_in_flight = False

    @property
    def is_snapshot_due(self) -> bool:
        """Whether anything was applied since the last local state snapshot."""
        return self._applied > self._snapshot_index

    def take_snapshot(self) -> SnapshotWork | None:
        """The applied state, to be written on any thread; None while there is nothing durable."""
        work = self.group.take_snapshot()
        if work is not None:
            self._snapshot_index = self._applied
        return work

    # private

    def _make_appender(self) -> Appender:
        return Appender(
            self.state,
            max_message_bytes=self.config.max_message_bytes,
            verify=StoredIds(self.reader.entry_at).verify,
        )

    def _bounds(self) -> Bounds:
        return Bounds(self.state.log_start_offset, self.state.next_offset, self._applied)

    def _trimmed(self, outcome: Outcome, _result: object, _index: Index) -> None:
        self._trim_in_flight = False

    def _retention(self, now_ms: int) -> tuple[Index, Offset] | None:
        """The first entry to keep and the offset it begins with; None to keep all."""
        config, log = self.config, self.log
        index = self.state.log_start_index
        if config.retention_ms >= 0:
            kept = log.locate_time(now_ms - config.retention_ms)
            index = max(index, Index(self._applied + 1) if kept is None else kept)
        floor = self.group.trim_limit
        if config.retention_bytes >= 0:
            segments = [s for s in log.segments() if s.last_index >= self.state.log_start_index]
            spare = sum(segment.size_bytes for segment in segments) - config.retention_bytes
            for segment in segments[:-1]:
                if spare <= 0:
                    break
                spare -= segment.size_bytes
                index = max(index, Index(segment.last_index + 1))
                if spare > max(config.retention_bytes, WAITED_FOR_BYTES):  # nobody is waited for
                    floor = max(floor, Index(segment.last_index))
        index = Index(min(index, floor + 1))
        if index <= self.state.log_start_index:
            return None
        offset = self._offset_from(index)
        return None if offset <= self.state.log_start_offset else (index, offset)

    def _offset_from(self, index: Index) -> Offset:
        """The offset that the entries before this index end at."""
        last = self._applied
        while index <= last:
            for entry in self.log.entries(index, max_bytes=1 << 16, max_count=64):
                if entry.kind == EntryKind.RECORDS:
                    return entry.base_offset
                index = Index(entry.index + 1)
        return self.state.next_offset

    @staticmethod
    def _wake(waiters: set[asyncio.Future[None]]) -> None:
        for future in waiters:
            if not future.done():
                future.set_result(None)
        waiters.clear()

    @staticmethod
    async def _wait(waiters: set[asyncio.Future[None]], timeout_s: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters.add(future)
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return
        finally:
            waiters.discard(future)

"""One partition's replica on this node: its Raft group, state, publishes and readers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

from coordinator.topics.settings import TopicConfig, queue_config
from delivery.config import QueueConfig
from delivery.leader.appender import Appender
from delivery.offsets.bitmaps import span
from delivery.state.partition import PartitionState
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import Busy, DiskFull, NotLeader
from goqueue.wire.types import Index, NodeId, Offset, PartitionId, Term, Voter
from log.entry import Entry, EntryKind
from log.errors import EntryMissing
from log.levels import Levels
from log.partition.log import PartitionLog
from node.api.archive import PartitionArchive
from node.api.records import AppendResult, Slice, Visibility
from node.metrics import Metrics
from node.partition.append_queue import AppendLimits, AppendQueue, ByteBudget
from node.partition.metrics import PartitionMetrics
from node.partition.queue import QueueHost
from node.partition.queue_metrics import PartitionCounters
from node.partition.reading.message_entry_index import PartitionEntryIndex
from node.partition.reading.message_reader import BatchCache, MessageReader
from node.partition.reading.reader import Bounds, PartitionReader, begins_later
from node.partition.reading.search_hashes import PartitionHashes
from node.partition.reading.stored_ids import StoredIds
from node.partition.retention.compaction import Compactor
from node.partition.retention.reappended import CompactedReader
from node.partition.retention.trimming import Retention
from node.partition.timeline_lookup import stories_of
from node.partition.unreadable_messages import UnreadableMessages
from node.runtime.logger import get_logger
from raft.configuration import Configuration
from raft.group import RaftGroup
from raft.interfaces import SnapshotWork

IN_SYNC_LAG_ENTRIES = 1000
"""Entries that a replica may be behind what is committed and still count as in sync: what is in
flight of a busy partition."""
ELECTION_S = 3.0
"""What an election takes, with one that nobody wins before it."""
ELECTED, HANDOVER = "elected", "handover"
"""How this node came to lead."""

_log = get_logger("partition")


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """What a replica is told by the node."""

    pending_bytes_max: int
    entry_bytes: int
    read_waiters_max: int
    timelines: bool = True
    """Whether messages' timelines are indexed and told."""


@dataclass(frozen=True, slots=True)
class NodeParts:
    """What the replicas of one node share."""

    node: NodeId
    budget: ByteBudget
    metrics: Metrics
    workers: Executor
    lacks_room: Callable[[Iterable[NodeId]], bool]
    """Whether the disks of these voters have no room for more messages."""
    least_room: Callable[[Iterable[NodeId]], tuple[int, NodeId]]
    """The room of the fullest of these voters' disks, and whose it is."""
    is_stuck: Callable[[Iterable[NodeId]], bool]
    """Whether the disks of these voters can confirm nothing at all."""
    disk_behind: Callable[[], bool]
    on_leader: Callable[[PartitionId, NodeId], None]
    """Told when a partition's leader is another one."""
    batches: BatchCache
    is_there: Callable[[Voter], bool]
    """Whether a voter is this node, or a connected one with the very data directory meant."""
    levels: Levels = field(default_factory=Levels)


class PartitionHost:
    """Implements Raft's StateMachine for one partition; loop thread only.

    `attach` gives it its group, after which Raft may call it.
    """

    queue: QueueHost
    """What its leader does for groups; there once it is attached, as the publishes are."""
    _appends: AppendQueue

    def __init__(
        self,
        *,
        id: PartitionId,
        topic: str,
        config: TopicConfig,
        log: PartitionLog,
        settings: PartitionSettings,
        parts: NodeParts,
        created: int = 0,
    ) -> None:
        """`created`: the index of the command that added the partition to a topic that was there,
        0 for none."""
        self.id = id
        self._created = created
        self.topic = topic
        self.config = config
        self.log = log
        log.relaxed = config.durability == "relaxed"
        log.flush_interval_ms = config.flush_interval_ms
        self.state = PartitionState()
        kept = CompactedReader(log, lambda: self.state.queue.compacted_set)
        self.reader = PartitionReader(log, self._bounds, kept)
        self._settings = settings
        self._parts = parts
        self.retention = Retention(
            log=log,
            state=self.state,
            reader=self.reader,
            raft_group=lambda: self.raft_group,
            config=lambda: self.config,
            stories=partial(stories_of, self) if settings.timelines else None,
        )
        self.compactor = Compactor(
            topic=topic,
            log=log,
            state=self.state,
            reader=self.reader,
            retention=self.retention,
            raft_group=lambda: self.raft_group,
            config=lambda: self.config,
            parts=parts,
        )
        self.messages = MessageReader(
            id,
            self.reader,
            parts.batches,
            carried=lambda: self.state.queue.held,
            carried_rows=self.retention.reappended_rows,
        )
        self.unreadable = UnreadableMessages()
        self.hashes = PartitionHashes(log, lambda: self._applied, parts.workers)
        self.message_entries = PartitionEntryIndex(
            log, lambda: self._applied, lambda: self.state.queue.outcome_notes, parts.workers
        )
        self._counters = PartitionCounters(topic, self.state, parts.metrics)
        self.figures = PartitionMetrics(topic, parts.metrics)
        self._raft_group: RaftGroup | None = None
        self._applied = Index(0)
        self._found_index = log.last_index  # up to here entries are applied again, not first
        self._waiters: set[asyncio.Future[None]] = set()
        self._leader_waiters: set[asyncio.Future[None]] = set()
        self._snapshot_index = Index(0)
        self._leaderless_s: float | None = time.monotonic()
        """Since when no leader is known here."""

    # lifecycle

    def attach(self, raft_group: RaftGroup) -> None:
        """Take the group that was started with this state machine."""
        raft_group.membership.on_voters = self._vote
        self.queue = QueueHost(
            raft_group=raft_group,
            state=self.state,
            config=lambda: queue_settings(self.config),
            is_stuck=lambda: self._parts.is_stuck(voter.node for voter in self.voters),
            requires_archive=lambda: self.config.require_archive,
            created=self._created,
            levels=self._parts.levels,
        )
        self._appends = AppendQueue(
            topic=self.topic,
            raft_group=raft_group,
            appender=self._make_appender,
            original_time_ms=lambda offset: self.reader.time_at(offset) or 0,
            is_relaxed=lambda: self.log.relaxed,
            limits=AppendLimits(
                self._settings.pending_bytes_max, self._settings.entry_bytes, self._parts.budget
            ),
            metrics=self._parts.metrics,
            workers=self._parts.workers,
        )
        self._raft_group = raft_group

    def close(self) -> None:
        """The replica is leaving this node: nothing that waits here will be served by it."""
        self._step_down(None)
        self._wake(self._waiters)
        self._wake(self._leader_waiters)
        self._parts.batches.forget(self.id)
        self.hashes.forget()
        self.message_entries.forget()

    @property
    def raft_group(self) -> RaftGroup:
        assert self._raft_group is not None, "not attached"
        return self._raft_group

    def log_time_ms(self) -> int:
        """The partition's time now: its leader's, and about that elsewhere."""
        return self.raft_group.log_time.now_ms()

    @property
    def is_leader(self) -> bool:
        return self._raft_group is not None and self._raft_group.is_ready_leader

    @property
    def rests(self) -> bool:
        """Whether its Raft group has nothing to do: all replicas that can be reached hold the same,
        and this one has applied it."""
        group = self.raft_group
        return group.rests and group.applied_index == self.log.last_index

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self.raft_group.membership.voters

    @property
    def applied_index(self) -> Index:
        return self._applied

    @property
    def is_replaying(self) -> bool:
        """Whether entries that were found at the start are not applied yet: should it lead, its
        partition would wait for that."""
        raft_group = self.raft_group
        if raft_group.failed is not None or self.log.quarantined:
            return False
        return raft_group.applied_index < min(self._found_index, self.log.last_index)

    @property
    def has_leader_soon(self) -> bool:
        """Whether somebody leads the partition, or an election's time has not passed yet."""
        since_s = self._leaderless_s
        if self.raft_group.leader is not None or since_s is None:
            return True
        return time.monotonic() - since_s < ELECTION_S

    def matches(self) -> dict[NodeId, Index]:
        """What each replica is known to hold durably, as far as this node knows."""
        return self.raft_group.replication.matches()

    def in_sync(self) -> list[str]:
        """Voters with a live link to here and the data directory that they vote with; as their
        leader sees it, those that lag behind what is committed are left out."""
        peers = self.raft_group.peers
        there = {name for name, peer in peers.items() if peer.connected} | {self._parts.node}
        if self.is_leader:
            floor = self.raft_group.commit_index - IN_SYNC_LAG_ENTRIES
            there -= {name for name, match in self.matches().items() if match < floor}
        is_there = self._parts.is_there
        return sorted(v.node for v in self.voters if v.node in there and is_there(v))

    def topic_changed(self, config: TopicConfig) -> None:
        """The topic was altered."""
        if config != self.config:
            self.config = config
            self.log.flush_interval_ms = config.flush_interval_ms
            if self.log.relaxed != (config.durability == "relaxed"):
                self.log.relaxed = not self.log.relaxed
                if self._raft_group is not None:
                    self._appends.durability_altered()
            if self._raft_group is not None:
                self.queue.configure()

    # Raft's StateMachine

    def apply(self, entry: Entry) -> object:
        due_ms = self.state.queue.delays.next_ms() if self.is_leader else None
        results = self.state.apply(entry)
        self._applied = entry.index
        if entry.kind == EntryKind.RECORDS:
            self._wake(self._waiters)
        elif entry.kind in (EntryKind.TRIM, EntryKind.COMPACT):
            self.log.trim_to(self.state.log_start_index)
        if self._raft_group is not None:
            self.queue.applied(is_records=entry.kind == EntryKind.RECORDS)
            if due_ms is not None and due_ms <= entry.time_ms:
                late_ms = self.log_time_ms() - due_ms
                self._parts.metrics.broker.delay_lateness.observe(late_ms / 1000)
        return results

    def snapshot(self) -> Callable[[], bytes]:
        return self.state.freeze()

    def restore(self, index: Index, state: bytes) -> None:
        self.state.restore(state)
        self.log.trim_to(self.state.log_start_index)
        self._applied = index
        self._snapshot_index = index

    def on_leader(self, term: Term) -> None:
        self._appends.open()
        self.queue.open()
        self._counters.begin()
        self._count_election()
        self._wake(self._leader_waiters)
        self._parts.on_leader(self.id, self._parts.node)

    def on_follower(self, leader: NodeId | None) -> None:
        self._leaderless_s = self._leaderless_s if leader is None else None
        if leader is None and self._leaderless_s is None:
            self._leaderless_s = time.monotonic()
        self._step_down(leader)
        self._wake(self._leader_waiters)
        self._wake(self._waiters)  # long polls of the former leader look for the new one
        if leader is not None:
            self._parts.on_leader(self.id, leader)

    # publishing

    def append(
        self, batch: bytes | RecordBatch, *, request_id: int, validated: bool
    ) -> asyncio.Future[AppendResult]:
        """Append as leader. Raises `NotLeader`, `NoQuorum`, `DiskFull`, `Busy`, and what a bad
        batch raises; nothing has happened then."""
        raft_group = self.raft_group
        if not raft_group.is_ready_leader:
            raise NotLeader(raft_group.leader)
        if not raft_group.election.has_quorum:
            raise NotLeader(None)
        if self._parts.lacks_room(voter.node for voter in self.voters):
            raise DiskFull(retry_after_s=10)
        if self._parts.disk_behind():
            raise Busy("the disk is behind", retry_after_s=1, passing=True)
        return self._appends.append(batch, request_id=request_id, validated=validated)

    @property
    def duplicates(self) -> int:
        """Messages that this node, as leader, answered with the offset of their original."""
        return 0 if self._raft_group is None else self._appends.duplicates

    # reading

    @property
    def end_offset(self) -> Offset:
        return self.state.next_offset

    def read(
        self, offset: Offset, *, max_records: int, max_bytes: int, to_time_ms: int | None
    ) -> Slice:
        """What is applied here; see `PartitionReader.read`. Raises EntryMissing as `_know_kept`."""
        self._know_kept()
        slice_ = self.reader.read(
            offset, max_records=max_records, max_bytes=max_bytes, to_time_ms=to_time_ms
        )
        self.figures.read(offset, slice_)
        return slice_

    def offset_at(self, time_ms: int) -> Offset | None:
        """See `PartitionReader.offset_at`. Raises EntryMissing as `_know_kept`, LogError."""
        self._know_kept()
        return self.reader.offset_at(time_ms)

    def _know_kept(self) -> None:
        """Raises EntryMissing on a replica that does not know yet what compaction has kept of what
        its log has no more."""
        start = self.state.log_start_index
        if self.config.is_compacted and begins_later(self.log, start):
            raise EntryMissing(str(self.id), start, self.log.first_index, self.log.last_index)

    def visibility(self, first: Offset, end: Offset) -> Visibility:
        """What hides messages from `first` up to `end`, as far as this replica has applied."""
        queue = self.state.queue
        time_ms = self.raft_group.log_time.now_ms() if self.is_leader else self.state.time_ms
        withdrawn = list(queue.withdrawn & span(first, end)) if queue.withdrawn else []
        return Visibility(time_ms, queue.config.ttl_ms, withdrawn)

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

    def count_queue(self) -> None:
        """As leader: add to the counters what the queue has done."""
        if self.is_leader:
            self._counters.count()

    def archived(self) -> PartitionArchive | None:
        """How far the partition is archived; None where there is nothing to tell."""
        archiving = self.retention.archiving
        return archiving.standing(self.log_time_ms()) if archiving.is_used else None

    @property
    def is_snapshot_due(self) -> bool:
        """Whether anything was applied since the last local state snapshot."""
        return self._applied > self._snapshot_index

    def take_snapshot(self, *, again: bool = False) -> SnapshotWork | None:
        """The applied state, to be written on any thread; None while there is nothing durable, or
        nothing new, unless it is to be stored `again`."""
        work = self.raft_group.apply.take_snapshot(again=again)
        if work is not None:
            self._snapshot_index = self._applied
        return work

    @property
    def workers(self) -> Executor:
        return self._parts.workers

    @property
    def has_timelines(self) -> bool:
        """Whether this node indexes its entries, and tells timelines."""
        return self._settings.timelines

    # private

    def _vote(self, committed: Configuration) -> None:
        names = [voter.node for voter in committed.voters]
        self.state.queue.outcome_notes.vote(committed.index, names)

    def _make_appender(self) -> Appender:
        return Appender(
            self.state,
            max_message_bytes=self.config.max_message_bytes,
            compacted=lambda: self.config.is_compacted,
            verify=StoredIds(self.reader.entry_at, self.messages.carried_id).verify,
        )

    def _bounds(self) -> Bounds:
        state = self.state
        return Bounds(state.log_start_offset, state.next_offset, self._applied, state.first_offset)

    def _count_election(self) -> None:
        """This node serves from now on; for how long nobody did is not known of those before it."""
        cluster, now_s = self._parts.metrics.cluster, time.monotonic()
        kind = HANDOVER if self.raft_group.voting.was_asked_to_lead else ELECTED
        cluster.leader_elections.labels(self.topic, kind).inc()
        since_s, self._leaderless_s = self._leaderless_s, None
        latency = cluster.leader_election_latency.labels(self.topic)
        latency.observe(0.0 if since_s is None else now_s - since_s)

    def _step_down(self, leader: NodeId | None) -> None:
        if self._raft_group is not None:
            if self.queue.is_open:
                self._counters.count()
            self._appends.close(leader)
            self.queue.close(leader)

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


def queue_settings(config: TopicConfig) -> QueueConfig:
    """What a partition's queue obeys of its topic's settings."""
    return QueueConfig(**queue_config(config))

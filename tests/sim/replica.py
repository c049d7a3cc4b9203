"""One partition's replica in a simulated process: production state, appender and Raft group."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

import msgspec

from coordinator.topics.settings import TopicConfig
from delivery.dedup.requests import REQUEST_BYTES
from delivery.leader.appender import Appender
from delivery.state.partition import PartitionState
from goqueue.wire.errors import DiskFull, NotLeader
from goqueue.wire.types import Index, NodeId, Offset, PartitionId, Term
from log.entry import Entry, EntryKind
from log.errors import EntryDamaged, LogError
from log.partition.log import PartitionLog
from node.api.records import AppendResult
from node.partition.append_queue import AppendLimits, AppendQueue, ByteBudget
from node.partition.reading.message_reader import BatchCache, MessageReader
from node.partition.reading.reader import Bounds, PartitionReader
from node.partition.retention.reappended import CompactedReader
from node.partition.retention.trimming import Retention
from node.partition.unreadable_messages import UnreadableMessages
from node.rpc.queue import GroupRef
from raft.configuration import Configuration
from raft.group import RaftGroup
from tests.sim.compacting import Compacting
from tests.sim.front import Nothing
from tests.sim.maintenance import Maintenance
from tests.sim.mutants import Mutant
from tests.sim.queue_mutants import DelayByWallClock
from tests.sim.watched_queue import WatchedQueue

if TYPE_CHECKING:
    from tests.sim.process import Process

STATE_CHECKED_EVERY = 16
"""Entries between two looks at the whole state."""
QUEUE_STATE_CHECKED_EVERY = 48
"""Of a partition whose queue is used: it has several times as many entries."""
ENTRY_BYTES = 1200
"""Of one entry: a few batches."""
PENDING_BYTES_MAX = 1 << 20
CACHE_BYTES = 1 << 16


class Replica:
    """Implements Raft's StateMachine, around the production append queue and queue host; `attach`
    gives it its group."""

    def __init__(
        self, process: Process, partition_id: PartitionId, log: PartitionLog, mutant: Mutant
    ) -> None:
        self.id = partition_id
        self.state = mutant.state()
        if isinstance(self.state, DelayByWallClock):
            self.state.wall_ms = process.wall_ms
        if process.world.shape.requests_kept:
            _remember_few(self.state, process.world.shape.requests_kept)
        self.log = log
        self._found_index = log.last_index
        self.raft: RaftGroup
        self._process = self.process = process
        kept = CompactedReader(log, lambda: self.state.queue.compacted_set)
        self._reader = self.reader = PartitionReader(log, self._bounds, kept)
        self._maintenance = Maintenance(self, self._reader, process.world.rng("trim"))
        self._compaction = process.world.compaction
        self.compacting = None
        if self._compaction is not None:
            self.compacting = Compacting(self, self._reader, self._compaction.config)
        self._checks = process.world.checks
        self._mutant = mutant
        self._last_appender: Appender | None = None
        self._appends: AppendQueue | None = None
        self._leader_waiters: dict[asyncio.Future[None], None] = {}
        work = process.world.queue or process.world.members
        self._work = work if work is not None and work.has(partition_id) else None
        self.queue: WatchedQueue | None = None
        nothing: Any = Nothing()
        self.figures = nothing
        self.config = TopicConfig()
        self.unreadable = UnreadableMessages()
        retention: Any = Retention(
            log=log,
            state=self.state,
            reader=self._reader,
            raft_group=lambda: self.raft,
            config=lambda: self.config,
        )
        self.messages = MessageReader(
            partition_id,
            self._reader,
            BatchCache(CACHE_BYTES),
            carried=lambda: self.state.queue.held,
            carried_rows=retention.reappended_rows,
        )

    def attach(self, raft: RaftGroup) -> None:
        """Take the group that was started with this state machine."""
        self.raft = raft
        raft.membership.on_voters = self.vote
        self._process.front.within(self._open_queues)

    def _open_queues(self) -> None:
        nothing: Any = Nothing()
        self._appends = self._mutant.appends(
            topic="t",
            raft_group=self.raft,
            appender=self._make_appender,
            original_time_ms=lambda offset: self._reader.time_at(offset) or 0,
            is_relaxed=lambda: self.log.relaxed,
            limits=AppendLimits(PENDING_BYTES_MAX, ENTRY_BYTES, ByteBudget(PENDING_BYTES_MAX)),
            metrics=nothing,
            workers=nothing,
        )
        if self._work is not None:
            self.queue = WatchedQueue(self, self._work)

    # Raft's StateMachine

    @property
    def raft_group(self) -> RaftGroup:
        """As a node's partition has it."""
        return self.raft

    @property
    def is_leader(self) -> bool:
        return self.raft.is_ready_leader

    @property
    def rests(self) -> bool:
        return self.raft.rests and self.raft.applied_index == self.log.last_index

    @property
    def is_replaying(self) -> bool:
        return self.raft.applied_index < min(self._found_index, self.log.last_index)

    @property
    def has_leader_soon(self) -> bool:
        """Whether somebody leads the partition."""
        return self.raft.leader is not None

    def topic_changed(self, config: TopicConfig) -> None:
        """Nothing of it is used here."""

    def apply(self, entry: Entry) -> object:
        self._checks.applied(self._process.node, self.log, entry)
        self._process.world.traps.committed(self._process.node, self.id)
        result = self.state.apply(entry)
        if self._work is not None:
            self._work.applied(self.id, entry, self.state, result)
        if self.queue is not None:
            self.queue.applied(is_records=entry.kind == EntryKind.RECORDS)
        if self._compaction is not None:
            self._compaction.applied(self.id, entry, self.state)
        if entry.kind in (EntryKind.TRIM, EntryKind.COMPACT):
            self.log.trim_to(self.state.log_start_index)
        every = STATE_CHECKED_EVERY if self._work is None else QUEUE_STATE_CHECKED_EVERY
        if entry.index % every == 0:
            self.check_state()
        return result

    def snapshot(self) -> bytes:
        return self.state.snapshot()

    def restore(self, index: Index, state: bytes) -> None:
        self.state.restore(state)
        self.check_state()

    def vote(self, committed: Configuration) -> None:
        """These vote from an entry on that has applied."""
        names = [voter.node for voter in committed.voters]
        self.state.queue.outcome_notes.vote(committed.index, names)
        self._process.world.relaxed.committed(self.id, committed)
        if self._process.world.moves is not None:
            self._process.world.moves.removing.committed(self.id, committed)

    def on_leader(self, term: Term) -> None:
        assert self._appends is not None, "attached before it can lead"
        self._appends.open()
        if self.queue is not None:
            self.queue.open()
            self.groups_changed()
        if self._process.world.queue is not None:
            self._process.world.queue.log_time_is(self.raft.log_time.now_ms())
        self._wake()
        self._process.front.leader_changed(self.id, self._process.node)

    def groups_changed(self) -> None:
        """What this node knows of the groups is wanted here."""
        for spec in self._work.known_groups(self._process.node) if self._work else ():
            if self.queue is not None:
                self.queue.reopen(GroupRef(spec.id, spec.name, spec.version, spec.config))

    def _make_appender(self) -> Appender:
        if self._last_appender is None or not self._mutant.appender_kept:
            options: dict[str, Any] = (
                {} if self._compaction is None else {"compacted": lambda: True}
            )
            self._last_appender = self._mutant.appender(self.state, **options)
        return self._last_appender

    def on_follower(self, leader: NodeId | None) -> None:
        self._step_down(leader)
        if leader is not None:
            self._process.front.leader_changed(self.id, leader)

    def close(self) -> None:
        """The replica is leaving this node: nothing that waits here will be served by it."""
        self._step_down(None)

    def _step_down(self, leader: NodeId | None) -> None:
        if self._appends is not None:
            self._appends.close(leader)
        if self.queue is not None:
            self.queue.close(leader)
        self._wake()

    def check_state(self) -> None:
        """The same state at the same index on every replica, for ever. Entries with voters are
        noted, and are none that the queue applies."""
        voted = self.state.queue.outcome_notes.voters
        self._checks.state_is(
            self._process.node,
            self.id,
            Index(max(self.state.applied_index, voted[-1][0] if voted else 0)),
            zlib.crc32(self.state.snapshot()),
        )

    # as the production code of a node sees a partition

    @property
    def end_offset(self) -> Offset:
        return self.state.next_offset

    def log_time_ms(self) -> int:
        return self.raft.log_time.now_ms()

    def append(
        self, batch: bytes, *, request_id: int, validated: bool
    ) -> asyncio.Future[AppendResult]:
        """As `node.partition.host` does."""
        if self._appends is None or not self.raft.is_ready_leader:
            raise NotLeader(self.raft.leader)
        if not self.raft.election.has_quorum:
            raise NotLeader(None)
        if self._process.store.stalled is not None:
            raise DiskFull(retry_after_s=10)
        return self._appends.append(batch, request_id=request_id, validated=validated)

    async def wait_for_leadership(self, timeout_s: float) -> None:
        """Return when the leader may have changed, or after the time."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._leader_waiters[waiter] = None
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await waiter
        except TimeoutError:
            return
        finally:
            self._leader_waiters.pop(waiter, None)

    def _wake(self) -> None:
        for waiter in self._leader_waiters:
            if not waiter.done():
                waiter.set_result(None)

    # other work of a leader

    def trim(self, keep: int) -> None:
        """As leader: move the log start, keeping at least this many entries. Damage that it meets
        is known from then on, and healed."""
        try:
            if not self.log.quarantined:
                self._maintenance.trim(keep)
        except EntryDamaged:
            if not self._process.world.is_damaged or not self.log.quarantined:
                raise

    def read(self, offset: Offset, max_records: int, max_bytes: int) -> None:
        """Read as the node's front would, and let the checks judge the answer."""
        if self._compaction is not None:
            return  # there are other rules then, and who knows them reads
        try:
            found = self._reader.read(offset, max_records=max_records, max_bytes=max_bytes)
            begins = self._begins()
        except LogError:
            if not self._process.world.is_damaged:
                raise
        else:
            self._checks.read(self._process.node, self.id, max(offset, begins), found)

    def _begins(self) -> Offset:
        """The first offset here. A replica that restarted from a snapshot older than the last
        trim believes in more than its log has, until it has applied that trim again."""
        if self.log.first_index <= self.state.log_start_index:
            return self.state.log_start_offset
        index = self.log.first_index
        while index <= self.state.applied_index:
            entry = self.log.entry(index)
            if entry.kind == EntryKind.RECORDS:
                return entry.base_offset
            index = Index(index + 1)
        return self.state.next_offset

    def _bounds(self) -> Bounds:
        state = self.state
        first = state.first_offset
        return Bounds(state.log_start_offset, state.next_offset, self.raft.applied_index, first)

    def read_index(self) -> None:
        """Ask what is the end; it must not be older than the question."""
        if not self.raft.is_ready_leader:
            return
        asked = self._checks.acked_end(self.id)

        def confirmed(ok: bool, _index: Index) -> None:
            if ok:
                self._checks.end_read(self._process.node, self.id, self.state.next_offset, asked)

        self.raft.reads.ask(confirmed)


def _remember_few(state: PartitionState, requests: int) -> None:
    """A smaller bound than a topic may have: as the log brings it, and snapshots keep it."""
    few = requests * REQUEST_BYTES
    state.queue.config = msgspec.structs.replace(state.queue.config, dedup_requests_bytes=few)
    state.requests.configure(few)

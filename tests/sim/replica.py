"""One partition's replica in a simulated process: production state, appender and Raft group."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.topics import TopicConfig
from delivery.appender import NOT_PROPOSED, Admitted, Appender
from delivery.records import AppendBatch, encode_records
from goqueue.wire.errors import DiskFull, GoQueueError, NotLeader, OutcomeUnknown
from goqueue.wire.types import GroupId, Index, NodeId, Offset, Term
from log.entry import Entry, EntryKind
from log.errors import EntryDamaged, LogError
from log.group import GroupLog
from node.carried_rows import KeptReader
from node.partition_reader import Bounds, PartitionReader
from raft.configuration import Configuration
from raft.errors import Outcome
from raft.group import RaftGroup
from tests.sim.compacting import Compacting
from tests.sim.mutants import Mutant
from tests.sim.queue_mutants import DelayByWallClock
from tests.sim.queue_side import QueueSide
from tests.sim.requests import Answer, Publish, Refused, Stored
from tests.sim.upkeep import Upkeep

if TYPE_CHECKING:
    from tests.sim.process import Process

STATE_CHECKED_EVERY = 16
"""Entries between two looks at the whole state."""
QUEUE_STATE_CHECKED_EVERY = 48
"""Of a partition whose queue is used: it has several times as many entries."""
ENTRY_BATCHES_MAX = 8


@dataclass(frozen=True, slots=True)
class Boarded:
    """A publish in an entry: what of its batch is new, and what to answer once that applied."""

    publish: Publish
    batch: AppendBatch
    stored: Stored


class Replica:
    """Implements Raft's StateMachine; publishes of one turn share entries, as in the node."""

    def __init__(self, process: Process, group: GroupId, log: GroupLog, mutant: Mutant) -> None:
        self.id = group
        self.state = mutant.state()
        if isinstance(self.state, DelayByWallClock):
            self.state.wall_ms = process.wall_ms
        self.log = log
        self._found_index = log.last_index
        self.raft: RaftGroup
        self._process = self.process = process
        kept = KeptReader(log, lambda: self.state.queue.survivors)
        self._reader = self.reader = PartitionReader(log, self._bounds, kept)
        self._upkeep = Upkeep(self, self._reader, process.world.rng("trim"))
        self._compaction = process.world.compaction
        self.compacting = None
        if self._compaction is not None:
            self.compacting = Compacting(self, self._reader, self._compaction.config)
        self._checks = process.world.checks
        self._mutant = mutant
        self._appender: Appender | None = None
        self._last_appender: Appender | None = None
        self._waiting: list[Publish] = []
        self._turn_planned = False
        self._on_original: dict[Index, list[tuple[Publish, Stored]]] = {}
        work = process.world.queue or process.world.members
        self.queue = None
        if work is not None and work.has(group):
            self.queue = QueueSide(process, self, work)

    # Raft's StateMachine

    @property
    def group(self) -> RaftGroup:
        """As a node's partition has it."""
        return self.raft

    @property
    def is_leader(self) -> bool:
        return self.raft.is_ready_leader

    @property
    def is_replaying(self) -> bool:
        return self.raft.applied_index < min(self._found_index, self.log.last_index)

    @property
    def has_leader_soon(self) -> bool:
        """Whether somebody leads the partition."""
        return self.raft.leader is not None

    def attach(self, group: RaftGroup) -> None:
        """Take the group that was started with this state machine."""
        self.raft = group
        group.on_voters = self.vote

    def topic_changed(self, config: TopicConfig) -> None:
        """Nothing of it is used here."""

    def close(self) -> None:
        """It runs no more: what waits here is refused."""
        self.on_follower(None)

    def apply(self, entry: Entry) -> object:
        self._checks.applied(self._process.node, self.log, entry)
        self._process.world.traps.committed(self._process.node, self.id)
        result = self.state.apply(entry)
        if self.queue is not None:
            self.queue.applied(entry, result)
        if self._compaction is not None:
            self._compaction.applied(self.id, entry, self.state)
        if entry.kind in (EntryKind.TRIM, EntryKind.COMPACT):
            self.log.trim_to(self.state.log_start_index)
        every = STATE_CHECKED_EVERY if self.queue is None else QUEUE_STATE_CHECKED_EVERY
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
        self.state.queue.chronicle.vote(committed.index, names)
        self._process.world.relaxed.committed(self.id, committed)
        if self._process.world.moves is not None:
            self._process.world.moves.removing.committed(self.id, committed)

    def on_leader(self, term: Term) -> None:
        if self._last_appender is None or not self._mutant.appender_kept:
            self._last_appender = self._make_appender()
        self._appender = self._last_appender
        if self.queue is not None:
            self.queue.lead()
        if self._process.world.queue is not None:
            self._process.world.queue.log_time_is(self.raft.log_time_ms())

    def _make_appender(self) -> Appender:
        if self._compaction is None:
            return self._mutant.appender(self.state)
        return self._mutant.appender(self.state, compacted=lambda: True)

    def on_follower(self, leader: NodeId | None) -> None:
        self._appender = None
        waiting, self._waiting = self._waiting, []
        for publish in waiting:
            self._refuse(publish, NotLeader(leader))
        if self.queue is not None:
            self.queue.follow()

    def check_state(self) -> None:
        """The same state at the same index on every replica, for ever. Entries with voters are
        noted, and are none that the queue applies."""
        voted = self.state.queue.chronicle.voters
        self._checks.state_is(
            self._process.node,
            self.id,
            Index(max(self.state.applied_index, voted[-1][0] if voted else 0)),
            zlib.crc32(self.state.snapshot()),
        )

    # publishing

    def publish(self, publish: Publish) -> None:
        if self._appender is None or not self.raft.is_ready_leader:
            self._refuse(publish, NotLeader(self.raft.leader))
            return
        if self._process.store.stalled is not None:
            self._refuse(publish, DiskFull())
            return
        self._waiting.append(publish)
        if not self._turn_planned:
            self._turn_planned = True
            self._process.time.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_planned = False
        waiting, self._waiting = self._waiting, []
        entry: list[Boarded] = []
        for publish in waiting:
            if self._appender is None:
                self._refuse(publish, NotLeader(self.raft.leader))
                continue
            admitted = self._admit(publish)
            if admitted is not None:
                entry.append(admitted)
            if len(entry) >= ENTRY_BATCHES_MAX:
                self._propose(entry)
                entry = []
        if entry:
            self._propose(entry)

    def _admit(self, publish: Publish) -> Boarded | None:
        assert self._appender is not None
        batch = publish.batch
        try:
            verdict = self._appender.admit(batch, publish.request_id, self.raft.log_time_ms())
        except GoQueueError as error:
            self._refuse(publish, error)
            return None
        if isinstance(verdict, Admitted):
            stored = Stored(verdict.base_offset, False, batch.count, verdict.rows)
            return Boarded(publish, verdict.to_append(batch, publish.request_id), stored)
        stored = Stored(verdict.base_offset, True, batch.count, verdict.rows)
        if verdict.pending_index is None:
            self._answer(publish, stored)
        else:
            twins = self._on_original.setdefault(verdict.pending_index, [])
            twins.append((publish, stored))
        return None

    def _propose(self, entry: list[Boarded]) -> None:
        appender = self._appender
        assert appender is not None
        body = encode_records([boarded.batch for boarded in entry])
        try:
            index = self.raft.propose(
                EntryKind.RECORDS,
                body,
                base_offset=entry[0].stored.base_offset,
                record_count=sum(boarded.batch.count for boarded in entry),
                callback=self._ended(entry),
            )
        except NotLeader as error:  # handing over, say; this node may lead on
            appender.withdraw()
            refused = [boarded.publish for boarded in entry]
            refused += [publish for publish, _ in self._on_original.pop(NOT_PROPOSED, ())]
            for publish in refused:
                self._refuse(publish, error)
            return
        appender.proposed(index)
        twins = self._on_original.pop(NOT_PROPOSED, None)
        if twins:
            self._on_original.setdefault(index, []).extend(twins)

    def _ended(self, entry: list[Boarded]) -> Callable[[Outcome, object, Index], None]:
        def ended(outcome: Outcome, _result: object, index: Index) -> None:
            told = [(boarded.publish, boarded.stored) for boarded in entry]
            for publish, stored in (*told, *self._on_original.pop(index, ())):
                if outcome is Outcome.APPLIED:
                    self._answer(publish, stored)
                elif outcome is Outcome.NONE:
                    self._refuse(publish, NotLeader(self.raft.leader))
                else:
                    self._refuse(publish, OutcomeUnknown(), unknown=True)

        return ended

    def _refuse(self, publish: Publish, error: GoQueueError, *, unknown: bool = False) -> None:
        self._answer(publish, Refused(error, unknown, self.raft.leader))

    def _answer(self, publish: Publish, answer: Answer) -> None:
        self._process.answer(publish, answer)

    # other work of a leader

    def trim(self, keep: int) -> None:
        """As leader: move the log start, keeping at least this many entries. Damage that it meets
        is known from then on, and healed."""
        try:
            if not self.log.quarantined:
                self._upkeep.trim(keep)
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

        self.raft.read_index(confirmed)

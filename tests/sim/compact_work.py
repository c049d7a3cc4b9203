"""A compacted partition in a simulated cluster: what is published to it, who compacts it, what must
be readable of it.

kept       of each key the last value is read from the beginning on, at the offset it was acked at,
           on every replica at every moment; a null value until its delay is over
exact      a run's decision keeps the last message of each key, and nothing that was superseded
done       in the end no null value is kept beyond its delay
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.topics.settings import TopicConfig
from delivery.history.compacted_set import Compaction, decode_compaction
from goqueue.wire.batch import RecordBatch
from goqueue.wire.types import NodeId, Offset, PartitionId
from log.entry import Entry, EntryKind
from log.errors import LogError
from node.partition.reading.reader import begins_later, stored_batches
from tests.sim.loop import EPOCH_MS

if TYPE_CHECKING:
    from delivery.state.partition import PartitionState
    from tests.sim.replica import Replica
    from tests.sim.world import World

KEYS = 7
NULL = 0.2
"""How many of the messages delete their key."""
LOOK_S = (0.02, 0.2)
"""The time between two looks at whether there is something to compact."""
READ = 0.25
"""How often all of a replica is read then."""
STRIKE = 0.25
"""How often something happens to a node while it compacts."""
STRIKE_S = 0.12
"""Within this time after the run has begun."""


@dataclass(frozen=True, slots=True)
class Row:
    """A message as it was stored."""

    key: bytes | None
    value: bytes | None
    time_ms: int


class CompactWork:
    """All that is known of the partition, and looks at what is read of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("compaction")
        self._rows: dict[int, Row] = {}
        self._last = 0
        self.runs = 0
        """Decisions that were obeyed."""
        self.dropped_nulls = 0
        self.looked_at = 0
        self.config = TopicConfig(
            cleanup="compact",
            delete_retention_ms=self._rng.choice((0, 300, 1200)),
            min_cleanable_ratio=self._rng.choice((0.1, 0.5)),
        )
        self._quiet_ms = 0

    def start(self) -> None:
        self._world.loop.call_later(self._rng.uniform(*LOOK_S), self._look)

    def heal(self) -> None:
        """No more faults."""
        self._quiet_ms = EPOCH_MS + int(1000 * self._world.loop.time)

    def columns(
        self, rng: random.Random, values: list[bytes]
    ) -> tuple[list[bytes | None], list[bytes]]:
        """Values and keys of a batch."""
        nulls = [None if rng.random() < NULL else value for value in values]
        return nulls, [b"k%d" % rng.randrange(KEYS) for _ in values]

    def _look(self) -> None:
        world, rng = self._world, self._rng
        if world.is_over:
            return
        for process in world.machines.running():
            for replica in process.replicas.values():
                if process.time.is_paused:
                    continue
                if rng.random() < READ:
                    self.read(replica, rng.choice((1, 5, 1000)))
                if replica.compacting is not None and replica.compacting.look():
                    self._strike_later(process.node)
        world.loop.call_later(rng.uniform(*LOOK_S), self._look)

    def _strike_later(self, node: NodeId) -> None:
        if not self._world.is_quiet and self._rng.random() < STRIKE:
            self._world.loop.call_later(self._rng.uniform(0.0, STRIKE_S), self._strike, node)

    def _strike(self, node: NodeId) -> None:
        """In the middle of a run, if it lasts."""
        world, rng = self._world, self._rng
        if world.is_quiet:
            return
        how = rng.choice(("kill", "power", "transfer", "pause", "isolate"))
        world.loop.note("strike", how, node)
        if how == "transfer":
            world.machines.transfer(node)
        elif how == "pause":
            world.machines.pause(node, rng.choice((0.05, 1.0)))
        elif how == "isolate":
            for other in world.others(node):
                world.net.stall(node, other, rng.uniform(0.2, 1.5))
        else:
            world.machines.kill(node, power=how == "power", down_s=rng.uniform(0.02, 0.6))

    # what applies

    def applied(self, partition_id: PartitionId, entry: Entry, state: PartitionState) -> None:
        """A replica has applied an entry; the first time tells what it did."""
        if entry.index <= self._last:
            return
        self._last = entry.index
        if entry.kind == EntryKind.RECORDS:
            for base, _count, stored in stored_batches(entry):
                batch = RecordBatch.parse(stored)
                for row, (key, value) in enumerate(
                    zip(batch.keys(), batch.values_or_nulls(), strict=True)
                ):
                    self._rows[base + row] = Row(key, value, entry.time_ms)
        noted = state.queue.outcome_notes
        if entry.kind == EntryKind.COMPACT and not noted.did_nothing(entry.index, 0):
            self._decided(f"{partition_id}/{entry.index}", entry, decode_compaction(entry.body))

    def _decided(self, told: str, entry: Entry, decision: Compaction) -> None:
        """A run was decided, and obeyed."""
        self.runs += 1
        last = set(self._last_of_keys(decision.offset).values())
        for offset in sorted(last - set(decision.kept)):
            self.dropped_nulls += 1
            if not self._may_go(offset, entry.time_ms):
                self._broken(f"{told} drops {offset}, {self._rows[offset]} at {entry.time_ms}")
        for offset in sorted(set(decision.kept) - last):
            self._broken(f"{told} keeps {offset}, {self._rows.get(offset)}, which is superseded")
        nulls = {offset for offset in decision.kept if self._rows[offset].value is None}
        if nulls != set(decision.tombstones):
            self._broken(f"{told} takes {sorted(decision.tombstones)} for null, not {nulls}")

    def _last_of_keys(self, end: int) -> dict[bytes | None, int]:
        """The last message of each key before this offset."""
        return {row.key: offset for offset, row in self._rows.items() if offset < end}

    def _may_go(self, offset: int, now_ms: int) -> bool:
        row = self._rows[offset]
        return row.value is None and row.time_ms + self.config.delete_retention_ms <= now_ms

    # what is read

    def read(self, replica: Replica, page: int) -> None:
        """Everything, from the beginning on, so many messages at a time."""
        state = replica.state
        early = self._world.mutant.reads_early
        if begins_later(replica.log, state.log_start_index) and not early:
            return  # a node asks another one, too
        try:
            found = self._read(replica, page)
        except LogError:
            if not self._world.is_damaged:
                raise
            return
        self.looked_at += 1
        told = f"{replica.process.node} reads {replica.id}"
        offsets = [offset for offset, _row in found]
        if offsets != sorted(set(offsets)):
            self._broken(f"{told}, and offsets do not rise: {offsets}")
        for offset, row in found:
            stored = self._rows.get(offset)
            if stored is None or (stored.key, stored.value) != row:
                self._broken(f"{told}, and gets {row} at {offset}, where {stored} is")
        lacks = {*range(state.log_start_offset, state.next_offset)} - set(offsets)
        for offset in self._last_of_keys(state.next_offset).values():
            if offset not in offsets and not self._may_go(offset, state.time_ms):
                lacks.add(offset)
        if lacks:
            rows = [(offset, self._rows.get(offset)) for offset in sorted(lacks)[:4]]
            self._broken(f"{told} at {state.time_ms}, and does not get {rows}")

    def _read(
        self, replica: Replica, page: int
    ) -> list[tuple[int, tuple[bytes | None, bytes | None]]]:
        found: list[tuple[int, tuple[bytes | None, bytes | None]]] = []
        at = Offset(0)
        while at < replica.state.next_offset:
            slice_ = replica.reader.read(at, max_records=page, max_bytes=1 << 20)
            for stored in slice_.batches:
                batch = RecordBatch.parse(stored.batch)
                rows = zip(batch.keys(), batch.values_or_nulls(), strict=True)
                found += [(o, row) for o, row in enumerate(rows, stored.base_offset) if o >= at]
            if slice_.next_offset <= at:
                self._broken(f"{replica.process.node} reads {replica.id}, and stays at {at}")
                break
            at = slice_.next_offset
        return found

    # the end

    def unsettled(self) -> str:
        """What is still to be compacted, in words; not where a voter is gone for good, for which
        the log's end waits."""
        world = self._world
        if world.machines.wiped():
            return ""
        for process in world.machines.running():
            for replica in process.replicas.values():
                kept = replica.state.queue.compacted_set.offsets
                old = [o for o in kept if self._may_go(o, self._quiet_ms)]
                if old:
                    return f"{process.node} keeps null values of {replica.id}: {old[:5]}"
        return ""

    def judge(self, replicas: list[Replica]) -> None:
        """Everything is settled."""
        for replica in replicas:
            self.read(replica, 1000)

    def _broken(self, text: str) -> None:
        self._world.checks.violated(f"kept: {text}")

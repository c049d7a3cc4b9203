"""The store against a model: whatever is done, wherever the power goes, nothing acked is lost."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from goqueue.wire.types import Index, PartitionId, Term
from log.disk.memory import MemoryDisk
from log.entry import Entry, decode_frames
from log.store.flush import FlushJob
from tests.unit.log.stores import (
    GROUP,
    OTHER,
    SMALL,
    checkpoint,
    entry,
    everything,
    flush,
    frames,
    group_of,
    open_store,
    seal,
)

GROUPS = (GROUP, OTHER)
RECORDS = st.sampled_from([0, 0, 0, 1])
"""An entry without records leaves a log that has no segments without them."""
LIMITS = replace(SMALL, wal_file_bytes=1024, segment_bytes=300)


class LogAgainstModel(RuleBasedStateMachine):
    """Per group: the entries appended, and those that a completed flush made durable."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.store = open_store(self.disk, LIMITS)
        self.entries: dict[PartitionId, list[Entry]] = {}
        self.hard: dict[PartitionId, tuple[int, str | None]] = {}
        self.durable: dict[PartitionId, list[Entry]] = {}
        self.durable_hard: dict[PartitionId, tuple[int, str | None]] = {}
        self.history: dict[PartitionId, list[list[bytes]]] = {
            partition_id: [] for partition_id in GROUPS
        }
        self.hard_history: dict[PartitionId, list[tuple[int, str | None]]] = {}
        self.applied: dict[PartitionId, int] = {}
        self.job: FlushJob | None = None
        self.term = 1
        for partition_id in GROUPS:
            group_of(self.store, partition_id)
            self.entries[partition_id] = []
            self.hard[partition_id] = (0, None)
        flush(self.store)
        self.note_durable()

    def note_durable(self) -> None:
        self.durable = {
            partition_id: list(entries) for partition_id, entries in self.entries.items()
        }
        self.durable_hard = dict(self.hard)
        self.history = {
            partition_id: [frames(self.entries[partition_id])] for partition_id in GROUPS
        }
        self.hard_history = {partition_id: [self.hard[partition_id]] for partition_id in GROUPS}

    def note_change(self, partition_id: PartitionId) -> None:
        self.history[partition_id].append(frames(self.entries[partition_id]))
        self.hard_history[partition_id].append(self.hard[partition_id])

    @rule(
        partition_id=st.sampled_from(GROUPS),
        count=st.integers(1, 4),
        size=st.integers(0, 120),
        records=RECORDS,
    )
    def append(self, partition_id: PartitionId, count: int, size: int, records: int) -> None:
        log = self.store.partition_log(partition_id)
        first = log.last_index + 1
        new = [entry(first + n, self.term, size=size, records=records) for n in range(count)]
        log.append(new)
        self.entries[partition_id] += new
        self.note_change(partition_id)

    @rule(
        partition_id=st.sampled_from(GROUPS),
        back=st.integers(0, 12),
        size=st.integers(0, 60),
        records=RECORDS,
    )
    def conflict(self, partition_id: PartitionId, back: int, size: int, records: int) -> None:
        log = self.store.partition_log(partition_id)
        if log.last_index == 0:
            return
        index = max(1, log.last_index - back)
        if index <= self.applied.get(partition_id, 0):
            return  # committed, and so never truncated
        self.term += 1
        log.truncate_from(Index(index))
        new = entry(index, self.term, size=size, records=records)
        log.append([new])
        self.entries[partition_id][index - 1 :] = [new]
        self.note_change(partition_id)

    @rule(partition_id=st.sampled_from(GROUPS), vote=st.sampled_from([None, "n1", "n2"]))
    def vote(self, partition_id: PartitionId, vote: str | None) -> None:
        self.term += 1
        self.store.partition_log(partition_id).save_hard_state(Term(self.term), vote)
        self.hard[partition_id] = (self.term, vote)
        self.note_change(partition_id)

    @precondition(lambda self: self.job is None)
    @rule(partition_id=st.sampled_from(GROUPS), keep=st.integers(0, 6))
    def snapshot_and_trim(self, partition_id: PartitionId, keep: int) -> None:
        log = self.store.partition_log(partition_id)
        index = Index(log.durable_index - keep)
        newest = max(log.first_index, self.applied.get(partition_id, 0))
        if index >= newest and not self.undurable_truncation(partition_id, index):
            log.save_snapshot(index, self.state(partition_id, index)).run()
            log.trim_to(Index(index + 1))
            self.applied[partition_id] = index

    def undurable_truncation(self, partition_id: PartitionId, index: int) -> bool:
        """Whether raft could not have applied this entry: it may still change."""
        heads = {tuple(state[:index]) for state in self.history[partition_id]}
        return len(heads) > 1

    def state(self, partition_id: PartitionId, index: int) -> bytes:
        return b"".join(frames(self.entries[partition_id][:index]))

    @rule(partition_id=st.sampled_from(GROUPS), relaxed=st.booleans())
    def relax(self, partition_id: PartitionId, relaxed: bool) -> None:
        self.store.partition_log(partition_id).relaxed = relaxed

    @precondition(lambda self: self.job is None)
    @rule(now_ms=st.integers(0, 200))
    def flush_at(self, now_ms: int) -> None:
        job = self.store.take_flush(now_ms)
        if job is None:
            return
        job.sync()
        self.store.complete_flush(job)
        job.spill()
        self.store.complete_spill(job)
        if job.synced:
            self.note_durable()

    @precondition(lambda self: self.job is None)
    @rule(partition_id=st.sampled_from(GROUPS))
    def remove_and_create(self, partition_id: PartitionId) -> None:
        """Flushed at once: a removed group and a new one cannot be told apart by content."""
        flush(self.store)
        self.store.remove_log(partition_id)
        self.store.create_log(partition_id)
        self.entries[partition_id], self.hard[partition_id] = [], (0, None)
        self.applied.pop(partition_id, None)
        flush(self.store)
        self.note_durable()

    @precondition(lambda self: self.job is None)
    @rule()
    def flush(self) -> None:
        flush(self.store)
        self.note_durable()

    @precondition(lambda self: self.job is None)
    @rule()
    def flush_without_spilling(self) -> None:
        job = self.store.take_flush()
        if job is not None:
            job.sync()
            self.store.complete_flush(job)
            self.job = job
        self.note_durable()

    @precondition(lambda self: self.job is not None)
    @rule()
    def spill_late(self) -> None:
        assert self.job is not None
        self.job.spill()
        self.store.complete_spill(self.job)
        self.job = None

    @precondition(lambda self: self.job is None)
    @rule()
    def seal(self) -> None:
        seal(self.store)

    @precondition(lambda self: self.job is None)
    @rule()
    def checkpoint(self) -> None:
        if checkpoint(self.store):
            self.note_durable()

    @rule(data=st.data())
    def checkpoint_with_changes_meanwhile(self, data: st.DataObject) -> None:
        job = self.store.take_checkpoint()
        if job is None:
            return
        partition_id = data.draw(st.sampled_from(GROUPS))
        job.run()
        self.conflict(partition_id, data.draw(st.integers(0, 6)), 10, data.draw(RECORDS))
        self.store.complete_checkpoint(job)

    @rule(seed=st.integers(0, 1 << 32), keep=st.sampled_from([0.0, 0.5, 1.0]))
    def power_cut(self, seed: int, keep: float) -> None:
        self.reopen(self.disk.crash(random.Random(seed), keep=keep))

    @rule()
    def kill(self) -> None:
        self.reopen(self.disk.clone())

    def reopen(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.store = open_store(disk, LIMITS, seed=random.Random(self.term).getrandbits(32))
        self.job = None
        for partition_id in GROUPS:
            log = self.store.partition_log(partition_id)
            assert not log.quarantined
            found = frames(everything(log))
            below = log.first_index - 1
            matching = [state for state in self.history[partition_id] if state[below:] == found]
            assert matching
            hard = (log.hard_state.term, log.hard_state.vote)
            assert hard in self.hard_history[partition_id]
            self.check_snapshot(partition_id)
            self.entries[partition_id] = list(decode_frames(b"".join(matching[-1])))
            self.hard[partition_id] = hard
        self.note_durable()

    def check_snapshot(self, partition_id: PartitionId) -> None:
        log = self.store.partition_log(partition_id)
        snapshot = log.latest_snapshot()
        assert not log.quarantined
        if log.first_index > 1:
            assert snapshot is not None
        if snapshot is not None:
            index, state = snapshot
            heads = [b"".join(known[:index]) for known in self.history[partition_id]]
            assert state in heads
            assert index >= log.first_index - 1

    @invariant()
    def what_is_read_is_what_was_appended(self) -> None:
        for partition_id in GROUPS:
            log = self.store.partition_log(partition_id)
            assert log.last_index == len(self.entries[partition_id])
            assert everything(log) == self.entries[partition_id][log.first_index - 1 :]
            assert log.durable_index <= log.last_index


LogAgainstModel.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None
)
TestLogAgainstModel = LogAgainstModel.TestCase

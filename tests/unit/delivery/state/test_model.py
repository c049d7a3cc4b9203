"""Any mix of new, repeated, skipped and fenced batches, over failovers, against a plain model."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from delivery.leader.appender import NOT_PROPOSED, Admitted, Appender, Duplicate
from delivery.state.partition import PartitionState
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import OutOfOrder
from goqueue.wire.types import Index, Offset
from log.entry import Entry
from tests.unit.delivery.batches import START_MS, batch, records

PRODUCERS = st.integers(1, 3)


class PartitionMachine(RuleBasedStateMachine):
    """A leader, its entries in flight, and a follower that restores snapshots now and then."""

    @initialize()
    def begin(self) -> None:
        self.state = PartitionState()
        self.follower = PartitionState()
        self.appender = Appender(self.state)
        self.boarding: list[tuple[RecordBatch, int, Offset]] = []
        self.flying: list[Entry] = []
        self.index = 0
        self.stored: dict[tuple[int, int], int] = {}
        """(producer, sequence) or (0, request id) of every record applied, to its offset."""
        self.pending: dict[tuple[int, int], int] = {}
        self.requests = 0

    def _next_sequence(self, producer: int) -> int:
        known = [n for p, n in (*self.stored, *self.pending) if p == producer]
        return max(known, default=-1) + 1

    def _admit(self, one: RecordBatch, request: int, key: tuple[int, int]) -> None:
        verdict = self.appender.admit(one, request)
        if key in self.stored or key in self.pending:
            assert isinstance(verdict, Duplicate)
            expected = self.stored.get(key, self.pending.get(key))
            assert verdict.base_offset == expected
            assert (verdict.pending_index is None) == (key in self.stored)
            boarding = any(offset == expected for _one, _request, offset in self.boarding)
            assert (verdict.pending_index == NOT_PROPOSED) == boarding
        else:
            assert isinstance(verdict, Admitted)
            self.boarding.append((one, request, verdict.base_offset))
            for at in range(one.count if one.producer_id else 1):
                self.pending[key[0], key[1] + at] = verdict.base_offset + at

    @rule(producer=PRODUCERS, count=st.integers(1, 4))
    def produce(self, producer: int, count: int) -> None:
        sequence = self._next_sequence(producer)
        one = batch(count, producer=producer, sequence=sequence)
        self._admit(one, 0, (producer, sequence))
        assert isinstance(self.appender.admit(one), Duplicate)

    @rule(producer=PRODUCERS, ahead=st.integers(1, 3))
    def skip(self, producer: int, ahead: int) -> None:
        sequence = self._next_sequence(producer) + ahead
        try:
            self.appender.admit(batch(producer=producer, sequence=sequence))
        except OutOfOrder as error:
            assert error.data["expected"] == self._next_sequence(producer)
        else:
            raise AssertionError("a gap was admitted")

    @rule(count=st.integers(1, 4), back=st.integers(0, 5))
    def request(self, count: int, back: int) -> None:
        number = max(1, self.requests + 1 - back)
        self.requests = max(self.requests, number)
        self._admit(batch(count), number, (0, number))

    @rule()
    def propose(self) -> None:
        if self.boarding:
            self.index += 1
            base = self.boarding[0][2]
            pairs = [(one, request) for one, request, _offset in self.boarding]
            self.flying.append(records(self.index, base, *pairs, time_ms=START_MS + self.index))
            self.boarding = []
            self.appender.proposed(Index(self.index))

    @rule()
    def commit(self) -> None:
        if self.flying:
            entry = self.flying.pop(0)
            self.state.apply(entry)
            self.follower.apply(entry)
            end = entry.base_offset + entry.record_count
            for key in [key for key, offset in self.pending.items() if offset < end]:
                self.stored[key] = self.pending.pop(key)

    @rule()
    def fail_over(self) -> None:
        """The follower leads; what was in flight is lost."""
        self.state, self.follower = self.follower, self.state
        self.appender = Appender(self.state)
        self.boarding, self.flying, self.pending = [], [], {}
        self.index = self.state.applied_index

    @rule()
    def restart_follower(self) -> None:
        state = self.follower.snapshot()
        self.follower = PartitionState()
        self.follower.restore(state)

    @invariant()
    def replicas_agree(self) -> None:
        if hasattr(self, "state"):
            assert self.state.snapshot() == self.follower.snapshot()
            assert self.appender.next_offset >= self.state.next_offset


PartitionMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None
)
TestPartition = PartitionMachine.TestCase

"""The leader's judgement of batches at append: which offset, or that it is a duplicate.

It looks at what is applied and at what is in flight. An appender belongs to one leadership: what
it counts as in flight is void when the term ends, and so is the appender.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from delivery.partition import PartitionState
from delivery.producers import (
    History,
    StoredSequence,
    check_epoch,
    check_sequence,
    find_duplicate,
    newest_first,
)
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import OutOfOrder, PayloadTooLarge
from goqueue.wire.types import Index, Offset

NOT_PROPOSED = Index(0)
"""The pending index of a duplicate whose original was admitted, but not yet proposed."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The batch is new: append it, in the order of admission, at this offset."""

    base_offset: Offset
    count: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is stored, or on its way: answer with this offset once its original has applied.

    `pending_index` is the original's entry; None where it has applied; `NOT_PROPOSED` where it
    goes into the next entry that is proposed.
    """

    base_offset: Offset
    count: int
    pending_index: Index | None


@dataclass(slots=True)
class _Flight:
    """Batches of one producer or request that are in one entry to come."""

    index: Index
    producers: list[int] = field(default_factory=list[int])
    requests: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class _Pending:
    """A batch in flight, and the flight that carries it."""

    stored: StoredSequence
    epoch: int
    flight: _Flight


class Appender:
    """Made when a leader has applied its own no-op; loop thread only.

    For each entry: `admit` its batches, propose them, then tell `proposed`, or `withdraw` where
    the proposal was refused.
    """

    def __init__(self, state: PartitionState, *, max_message_bytes: int | None = None) -> None:
        self._state = state
        self._next = state.next_offset
        self._max_message_bytes = max_message_bytes
        self._producers: dict[int, deque[_Pending]] = {}
        self._requests: dict[int, tuple[Offset, _Flight]] = {}
        self._boarding = _Flight(NOT_PROPOSED)
        self._boarded_from = self._next
        """The first offset of the entry to come."""
        self._flights: deque[_Flight] = deque()

    @property
    def next_offset(self) -> Offset:
        """The offset after everything admitted."""
        return self._next

    @property
    def in_flight(self) -> int:
        """Entries proposed and not yet applied, as of the last admission."""
        return len(self._flights)

    def admit(
        self, batch: RecordBatch, request_id: int = 0, now_ms: int = 0
    ) -> Admitted | Duplicate:
        """Judge a validated batch; what is admitted must be proposed next, in this order.

        Raises OutOfOrder, ProducerFenced, PayloadTooLarge: then nothing has changed. `now_ms`
        is not needed to judge: memory ends by log time, when entries are applied.
        """
        self._land()
        if self._max_message_bytes is not None:
            self._check_size(batch, self._max_message_bytes)
        if batch.producer_id:
            known = self._judge_sequence(batch)
        else:
            known = self._judge_request(batch, request_id) if request_id else None
        if known is not None:
            return known
        return self._board(batch, request_id)

    def proposed(self, index: Index) -> None:
        """All that was admitted since the last call is in this entry."""
        self._boarding.index = index
        self._flights.append(self._boarding)
        self._boarding = _Flight(NOT_PROPOSED)
        self._boarded_from = self._next

    def withdraw(self) -> None:
        """All that was admitted since the last `proposed` is in no entry: as if never admitted."""
        for producer_id in self._boarding.producers:
            pending = self._producers[producer_id]
            pending.pop()
            if not pending:
                del self._producers[producer_id]
        for request_id in self._boarding.requests:
            del self._requests[request_id]
        self._boarding = _Flight(NOT_PROPOSED)
        self._next = self._boarded_from

    # judging

    def _judge_sequence(self, batch: RecordBatch) -> Duplicate | None:
        producer_id, sequence = batch.producer_id, batch.base_sequence
        applied = self._state.producers.history(producer_id)
        pending = self._producers.get(producer_id)
        epoch = pending[-1].epoch if pending else (applied.epoch if applied else 0)
        check_epoch(producer_id, epoch, batch.producer_epoch)
        if batch.producer_epoch > epoch:
            check_sequence(0, sequence)
            return None
        if applied is not None and applied.epoch != epoch:
            applied = None
        expected = _expected(pending, applied)
        if sequence == expected:
            return None
        for flying in reversed(pending or ()):
            same = flying.stored.base_sequence == sequence and flying.stored.count == batch.count
            if same and flying.epoch == epoch:
                return Duplicate(flying.stored.base_offset, batch.count, flying.flight.index)
        if applied is not None:
            original = find_duplicate(newest_first(applied.batches), sequence, batch.count)
            if original is not None:
                return Duplicate(original.base_offset, batch.count, None)
        raise OutOfOrder(expected, sequence)

    def _judge_request(self, batch: RecordBatch, request_id: int) -> Duplicate | None:
        flying = self._requests.get(request_id)
        if flying is not None:
            return Duplicate(flying[0], batch.count, flying[1].index)
        base_offset = self._state.requests.offset_of(request_id)
        return None if base_offset is None else Duplicate(base_offset, batch.count, None)

    @staticmethod
    def _check_size(batch: RecordBatch, bytes_max: int) -> None:
        header = batch.header
        if header.values_plain_bytes + header.keys_bytes + header.headers_bytes <= bytes_max:
            return
        for value, key in zip(batch.value_lengths(), batch.keys(), strict=True):
            size = value + (0 if key is None else len(key))
            if size > bytes_max:
                raise PayloadTooLarge(
                    f"a message of {size} bytes: the topic takes at most {bytes_max}",
                    limit=bytes_max,
                )

    # in flight

    def _board(self, batch: RecordBatch, request_id: int) -> Admitted:
        base_offset, flight = self._next, self._boarding
        if batch.producer_id:
            stored = StoredSequence(batch.base_sequence, batch.count, base_offset)
            pending = self._producers.setdefault(batch.producer_id, deque())
            pending.append(_Pending(stored, batch.producer_epoch, flight))
            flight.producers.append(batch.producer_id)
        elif request_id:
            self._requests[request_id] = (base_offset, flight)
            flight.requests.append(request_id)
        self._next = Offset(base_offset + batch.count)
        return Admitted(base_offset, batch.count)

    def _land(self) -> None:
        """What has applied is in the state; it need not be remembered here."""
        applied = self._state.applied_index
        while self._flights and self._flights[0].index <= applied:
            flight = self._flights.popleft()
            for producer_id in flight.producers:
                pending = self._producers[producer_id]
                pending.popleft()
                if not pending:
                    del self._producers[producer_id]
            for request_id in flight.requests:
                del self._requests[request_id]


def _expected(pending: deque[_Pending] | None, applied: History | None) -> int:
    if pending:
        newest = pending[-1].stored
        return newest.base_sequence + newest.count
    return applied.next_sequence if applied is not None else 0

"""The leader's judgement of batches at append: which offset, or that it is a duplicate.

It looks at what is applied and at what is in flight. An appender belongs to one leadership: what
it counts as in flight is void when the term ends, and so is the appender.

A whole batch is known by its producer's sequence, where it has one, else by the request that it
came with: those tell that the very same batch comes again. What is not known so is looked at row by
row: a message whose id is known is left out. The producer's sequence goes on over rows that were
left out, even if nothing is left to be stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from delivery.dedup.flights import NOT_PROPOSED, Flights, Pending
from delivery.dedup.producers import (
    History,
    StoredSequence,
    check_epoch,
    check_sequence,
    find_duplicate,
)
from delivery.dedup.repeats import Repeats, Verify, find_repeats
from delivery.entries.records import AppendBatch
from delivery.state.partition import PartitionState
from goqueue.wire.batch import RecordBatch, resolve_ms
from goqueue.wire.errors import (
    DelayTooLong,
    KeyRequired,
    NullValue,
    OutOfOrder,
    PayloadTooLarge,
    TooManyDelayed,
)
from goqueue.wire.layout import HAS_DELIVER_AT, HAS_MESSAGE_IDS, HAS_NULLS
from goqueue.wire.types import Index, Offset

__all__ = ["NOT_PROPOSED", "Admitted", "Appender", "Duplicate", "Rows"]

Rows = tuple[tuple[Offset, bool], ...]
"""(offset, duplicate) of each row as it was sent."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The batch is new: append it, in the order of admission, at this offset.

    Where some of its rows are stored already, `rows` tells of all that were sent, and `kept` is
    what is left to be appended, of `count` rows: None if only its place in a sequence is new.
    """

    base_offset: Offset
    count: int
    kept: RecordBatch | None = None
    rows: Rows | None = None

    def to_append(self, sent: RecordBatch, request_id: int) -> AppendBatch:
        """What goes into the entry for the batch that was judged."""
        if self.rows is None:
            return AppendBatch.of(sent, request_id)
        return AppendBatch.of_rest(self.kept, sent, request_id)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is stored, or on its way: answer with this offset once its original has applied.

    `pending_index` is the original's entry, the last one if there are several; None where all have
    applied; `NOT_PROPOSED` where one goes into the next entry that is proposed. `rows` is None
    where the originals follow each other from `base_offset` on.
    """

    base_offset: Offset
    count: int
    pending_index: Index | None
    rows: Rows | None = None


class Appender:
    """Made when a leader has applied its own no-op; loop thread only.

    For each entry: `admit` its batches, propose them, then tell `proposed`, or `withdraw` where
    the proposal was refused. `verify` reads what is stored, to tell a message id from another one
    of the same hash; without it hashes are believed. `compacted` tells whether the topic is now.
    """

    def __init__(
        self,
        state: PartitionState,
        *,
        max_message_bytes: int | None = None,
        compacted: Callable[[], bool] = bool,
        verify: Verify | None = None,
    ) -> None:
        self._state = state
        self._next = state.next_offset
        self._max_message_bytes = max_message_bytes
        self._compacted = compacted
        self._verify = verify or _believe
        self._flights = Flights()
        self._boarded_from = self._next
        """The first offset of the entry to come."""

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

        Raises OutOfOrder, ProducerFenced, PayloadTooLarge, KeyRequired, NullValue, DelayTooLong,
        TooManyDelayed, and what
        `verify` raises: then nothing has changed. `now_ms` is log time, against which delays are
        judged; memory ends by log time as well, when entries are applied.
        """
        self._land()
        if self._max_message_bytes is not None:
            self._check_size(batch, self._max_message_bytes)
        if self._compacted():
            if not batch.has_all_keys():
                raise KeyRequired
        elif batch.header.flags & HAS_NULLS:
            raise NullValue
        if batch.producer_id:
            known = self._judge_sequence(batch)
        else:
            known = self._judge_request(batch, request_id) if request_id else None
        if not self._has_ids(batch):
            return known or self._board(batch, batch, request_id, now_ms)
        ids = batch.message_ids()
        repeats = find_repeats(ids, self._state.message_ids, self._flights, self._verify)
        if known is not None:
            return _as_at_first(known, ids, repeats)
        if repeats:
            return self._board_rest(batch, request_id, now_ms, repeats)
        return self._board(batch, batch, request_id, now_ms)

    def proposed(self, index: Index) -> None:
        """All that was admitted since the last call is in this entry."""
        self._flights.depart(index)
        self._boarded_from = self._next

    def withdraw(self) -> None:
        """All that was admitted since the last `proposed` is in no entry: as if never admitted."""
        self._flights.cancel()
        self._next = self._boarded_from

    # judging

    def _judge_sequence(self, batch: RecordBatch) -> Duplicate | None:
        producer_id, sequence = batch.producer_id, batch.base_sequence
        applied = self._state.producers.history(producer_id)
        pending = self._flights.producers.get(producer_id)
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
            original = find_duplicate(reversed(applied.batches()), sequence, batch.count)
            if original is not None:
                return Duplicate(original.base_offset, batch.count, None)
        first = applied.first_offset if applied else _first_offset(pending)
        raise OutOfOrder(expected, sequence, None if first is None else (first, self._next))

    def _judge_request(self, batch: RecordBatch, request_id: int) -> Duplicate | None:
        flying = self._flights.requests.get(request_id)
        if flying is not None:
            return Duplicate(flying[0], batch.count, flying[1].index)
        base_offset = self._state.requests.offset_of(request_id)
        return None if base_offset is None else Duplicate(base_offset, batch.count, None)

    def _has_ids(self, batch: RecordBatch) -> bool:
        return bool(batch.header.flags & HAS_MESSAGE_IDS) and self._state.message_ids.is_on

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

    def _count_delayed(self, batch: RecordBatch, now_ms: int) -> int:
        """Messages of the batch that are not due; none of them too far away, or one too many."""
        queue = self._state.queue
        config = queue.config
        times = [resolve_ms(time_ms, now_ms) for time_ms in batch.deliver_at()]
        waits = [time_ms - now_ms for time_ms in times if time_ms is not None and time_ms > now_ms]
        if not waits:
            return 0
        if max(waits) > config.delay_ms_max:
            raise DelayTooLong(
                f"a delay of {max(waits)} ms: the topic takes at most {config.delay_ms_max}",
                limit_ms=config.delay_ms_max,
            )
        waiting = len(queue.hidden) + self._flights.delayed
        if waiting + len(waits) > config.delayed_max:
            raise TooManyDelayed(
                f"{waiting} messages are delayed: the topic takes {config.delayed_max} a partition",
                limit=config.delayed_max,
                delayed=waiting,
            )
        return len(waits)

    # in flight

    def _board_rest(
        self, batch: RecordBatch, request_id: int, now_ms: int, repeats: Repeats
    ) -> Admitted | Duplicate:
        """Board the rows that are new, if there are any, and the batch's place in its sequence."""
        new = repeats.new_rows(batch.count)
        if not new and not batch.producer_id:
            rows = repeats.rows(new, self._next)
            return Duplicate(rows[0][0], batch.count, repeats.pending_index, rows)
        kept = batch.select(new, base_sequence=batch.base_sequence) if new else None
        boarded = self._board(batch, kept, request_id, now_ms)
        rows = repeats.rows(new, boarded.base_offset)
        return Admitted(boarded.base_offset, boarded.count, kept, rows)

    def _board(
        self, batch: RecordBatch, kept: RecordBatch | None, request_id: int, now_ms: int
    ) -> Admitted:
        base_offset, flights = self._next, self._flights
        if kept is not None and kept.header.flags & HAS_DELIVER_AT:
            flights.board_delayed(self._count_delayed(kept, now_ms))
        if batch.producer_id:
            stored = StoredSequence(batch.base_sequence, batch.count, base_offset)
            flights.board_producer(batch.producer_id, batch.producer_epoch, stored)
        elif request_id:
            flights.board_request(request_id, base_offset)
        if kept is None:
            return Admitted(base_offset, 0)
        if self._has_ids(kept):
            flights.board_ids(kept.message_ids(), base_offset)
        self._next = Offset(base_offset + kept.count)
        return Admitted(base_offset, kept.count)

    def _land(self) -> None:
        self._flights.land(self._state.applied_index)


def _as_at_first(known: Duplicate, ids: Sequence[str | None], repeats: Repeats) -> Duplicate:
    """A repeated batch whose first time may have left rows out: where each of them stands.

    What was left out then has an original before the batch, or earlier in it. The other rows stand
    one after the other from the batch's offset on.
    """
    following = known.base_offset
    placed: dict[str, Offset] = {}
    rows: list[tuple[Offset, bool]] = []
    for row, message_id in enumerate(ids):
        offset = repeats.originals.get(row)
        if message_id is not None and message_id in placed:
            offset = placed[message_id]
        elif offset is None or offset >= known.base_offset:
            offset = following
            following = Offset(following + 1)
        if message_id is not None:
            placed[message_id] = offset
        rows.append((offset, True))
    return Duplicate(rows[0][0], known.count, known.pending_index, tuple(rows))


def _expected(pending: Sequence[Pending] | None, applied: History | None) -> int:
    if pending:
        newest = pending[-1].stored
        return newest.base_sequence + newest.count
    return applied.next_sequence if applied is not None else 0


def _first_offset(pending: Sequence[Pending] | None) -> Offset | None:
    return pending[0].stored.base_offset if pending else None


def _believe(_offset: Offset, _message_id: str) -> bool:
    return True

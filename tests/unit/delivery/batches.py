"""Batches and entries as tests of a partition need them."""

from __future__ import annotations

from delivery.entries.records import AppendBatch, encode_records, encode_trim
from delivery.leader.appender import Admitted, Appender
from delivery.state.partition import PartitionState, PublishResult
from goqueue.wire.batch import RecordBatch, encode_columns
from goqueue.wire.types import Index, Offset
from log.entry import Entry, EntryKind, make_entry

START_MS = 1_700_000_000_000


def batch(
    count: int = 1, *, producer: int = 0, epoch: int = 0, sequence: int = 0, size: int = 1
) -> RecordBatch:
    """A batch of `count` records."""
    values = [b"v" * size for _ in range(count)]
    return RecordBatch.parse(
        encode_columns(
            values, None, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
        )
    )


def records(
    index: int,
    base_offset: int,
    *batches: tuple[RecordBatch, int],
    time_ms: int = START_MS,
) -> Entry:
    """A records entry of (batch, request id)s."""
    return make_entry(
        index=index,
        term=1,
        time_ms=time_ms,
        kind=EntryKind.RECORDS,
        base_offset=base_offset,
        record_count=sum(one.count for one, _request in batches),
        body=encode_records([AppendBatch.of(one, request) for one, request in batches]),
    )


def trim(index: int, first_index: int, first_offset: int) -> Entry:
    return make_entry(
        index=index,
        term=1,
        time_ms=START_MS,
        kind=EntryKind.TRIM,
        body=encode_trim(Index(first_index), Offset(first_offset)),
    )


class Leader:
    """A state with the appender of one leadership: entries apply when the test says so."""

    def __init__(self, state: PartitionState | None = None) -> None:
        self.state = state or PartitionState()
        self.appender = Appender(self.state)
        self.time_ms = START_MS
        self._boarding: list[tuple[RecordBatch, int, Offset]] = []
        self._flying: list[Entry] = []
        self._index = self.state.applied_index

    def admit(self, one: RecordBatch, request_id: int = 0) -> Offset:
        """Admit a batch that must be new; its offset."""
        verdict = self.appender.admit(one, request_id)
        assert isinstance(verdict, Admitted), verdict
        self._boarding.append((one, request_id, verdict.base_offset))
        return verdict.base_offset

    def propose(self) -> Index:
        """Everything admitted becomes an entry in flight."""
        self._index = Index(self._index + 1)
        entry = records(
            self._index,
            self._boarding[0][2],
            *((one, request) for one, request, _offset in self._boarding),
            time_ms=self.time_ms,
        )
        self._flying.append(entry)
        self._boarding = []
        self.appender.proposed(self._index)
        return self._index

    def apply(self) -> list[PublishResult]:
        """Everything in flight applies."""
        results = []
        for entry in self._flying:
            results += self.state.apply(entry) or []
        self._flying = []
        return results

    def store(self, one: RecordBatch, request_id: int = 0) -> Offset:
        """Admit, propose and apply one batch."""
        offset = self.admit(one, request_id)
        self.propose()
        self.apply()
        return offset

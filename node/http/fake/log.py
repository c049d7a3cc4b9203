"""A partition's messages one by one, for the fake broker's queue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from goqueue.wire.batch import Headers, RecordBatch, resolve_ms
from goqueue.wire.types import Offset
from node.api.queue import QueuedMessage
from node.http.fake.partition import FakePartition


@dataclass(frozen=True, slots=True)
class FakeRecord:
    """A message of the log with its times resolved."""

    offset: int
    time_ms: int
    value: bytes
    key: bytes | None
    headers: Headers
    lane: int
    message_id: str | None
    deliver_at_ms: int | None
    expires_at_ms: int | None
    is_null: bool = False

    def message(self, topic: str, partition: int) -> QueuedMessage:
        return QueuedMessage(
            topic,
            partition,
            Offset(self.offset),
            self.time_ms,
            self.value,
            self.key,
            self.headers,
            self.lane,
            self.message_id,
            self.deliver_at_ms,
            self.expires_at_ms,
            is_null=self.is_null,
        )


@dataclass(slots=True)
class FakeLog:
    """A partition's records one by one, and what was cancelled."""

    partition: FakePartition
    ttl_ms: Callable[[], int]
    cancelled: set[int] = field(default_factory=set[int])
    _records: dict[int, FakeRecord] = field(default_factory=dict[int, FakeRecord])
    _read: int = 0

    def record(self, offset: int) -> FakeRecord | None:
        self._catch_up()
        return self._records.get(offset) if offset >= self.partition.start else None

    def records(self, start: int = 0) -> Iterator[FakeRecord]:
        self._catch_up()
        for offset in range(max(start, self.partition.start), self.partition.next):
            yield self._records[offset]

    def visible(self, record: FakeRecord, now_ms: int) -> bool:
        """Due, and neither cancelled nor expired."""
        due = record.deliver_at_ms is None or record.deliver_at_ms <= now_ms
        return due and not self.gone(record, now_ms)

    def gone(self, record: FakeRecord, now_ms: int) -> bool:
        """Never to be delivered any more."""
        expires_at_ms, ttl_ms = record.expires_at_ms, self.ttl_ms()
        if expires_at_ms is None and ttl_ms:
            expires_at_ms = record.time_ms + ttl_ms
        expired = expires_at_ms is not None and expires_at_ms <= now_ms
        return expired or record.offset in self.cancelled

    def _catch_up(self) -> None:
        first = bisect_left(self.partition.bases, self._read)
        for stored in self.partition.batches[first:]:
            for at, r in enumerate(RecordBatch.parse(stored.batch).records()):
                offset = stored.base_offset + at
                self._records[offset] = FakeRecord(
                    offset,
                    stored.time_ms,
                    r.value or b"",
                    r.key,
                    r.headers,
                    r.lane,
                    r.message_id,
                    resolve_ms(r.deliver_at_ms, stored.time_ms),
                    resolve_ms(r.expires_at_ms, stored.time_ms),
                    r.value is None,
                )
        self._read = self.partition.next

"""What is known for certain of one partition's queue: each entry is told when it first applies."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from delivery.entries import ops
from delivery.entries.columns import stored_batch, stored_header
from delivery.entries.records import decode_records
from delivery.state.partition import PartitionState
from goqueue.wire.batch import resolve_ms
from goqueue.wire.types import Index, Term
from log.entry import Entry, EntryKind
from tests.check.queuelog import QueueLog, Row


class QueueLedger:
    """The model of a partition, and the values that it stores."""

    def __init__(
        self, broken: Callable[[str, str], None], fallen: Callable[[str, int], None]
    ) -> None:
        """`fallen(group, offset)` is called for what is trimmed before the group settled it."""
        self.log = QueueLog(broken)
        self.values: dict[int, bytes] = {}
        self._fallen = fallen
        self._last = 0
        self._seen: dict[tuple[int, int], int] = {}

    def proposed(self, term: Term, index: Index, seen: Index) -> None:
        """A leader has made a queue entry, having applied everything up to `seen`."""
        self._seen[term, index] = seen

    def applied(self, entry: Entry, state: PartitionState, result: object) -> bool:
        """A replica has applied an entry; whether it is the first one to do so."""
        if entry.index <= self._last:
            return False
        self._last = entry.index
        if entry.kind == EntryKind.RECORDS:
            self.log.records(entry.index, entry.time_ms, entry.base_offset, self._rows(entry))
        elif entry.kind == EntryKind.QUEUE:
            seen = self._seen.pop((entry.term, entry.index), entry.index)
            results = cast(list[ops.Result], result)
            self.log.apply(entry.index, entry.time_ms, seen, ops.decode_ops(entry.body), results)
        elif entry.kind in (EntryKind.TRIM, EntryKind.CARRIED):
            self.log.advance(entry.index, entry.time_ms)
            if entry.kind == EntryKind.TRIM:
                self._trimmed(state)
        return True

    def _trimmed(self, state: PartitionState) -> None:
        """The log begins later, or only what was carried is gone."""
        before = len(self.log.fallen)
        self.log.trimmed(state.log_start_offset, state.queue.reappended)
        for group, offset in self.log.fallen[before:]:
            self._fallen(group, offset)

    def _rows(self, entry: Entry) -> list[Row]:
        rows: list[Row] = []
        for stored in decode_records(entry.body, entry.base_offset):
            batch = stored_batch(stored.batch, stored_header(stored.batch))
            for row, record in enumerate(batch.records()):
                self.values[stored.base_offset + row] = record.value or b""
                due_ms = resolve_ms(record.deliver_at_ms, entry.time_ms)
                expires_ms = resolve_ms(record.expires_at_ms, entry.time_ms)
                rows.append((record.lane, record.key, due_ms, expires_ms, record.message_id))
        return rows

"""What one entry brought about: events of a few messages one by one, and of many at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from operator import itemgetter

from delivery.entries.columns import stored_batch, stored_header
from delivery.entries.records import decode_records
from delivery.offsets.bitmaps import BitMap64
from delivery.timeline.groups import Attributes
from delivery.timeline.message import published
from goqueue.wire.batch import RecordBatch, resolve_ms
from log.entry import Entry

FRAME, TIME = -2, -1
"""In place of an operation's number: a frame told it, or time alone brought it."""

Row = tuple[int, int, int, str, Attributes, bytes | None]
"""(offset, number of the operation, log time in ms, type, attributes, the message's key where it is
published)."""

_place = itemgetter(0, 1)


class Outcome:
    """Of the entry `index`, in no order until `rows` is asked for."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.named: list[Row] = []
        self._many: list[Callable[[int], Iterable[Row]]] = []

    def add_many(
        self, offsets: BitMap64 | range, number: int, time_ms: int, type_: str, what: Attributes
    ) -> None:
        """The same of all these messages."""
        if not offsets:
            return

        def rows(first: int) -> Iterator[Row]:
            chosen: Iterable[int]
            if isinstance(offsets, range):
                chosen = range(max(first, offsets.start), offsets.stop)
            else:
                chosen = offsets.iter_equal_or_larger(first)
            same = repeat
            return zip(
                chosen,
                same(number),
                same(time_ms),
                same(type_),
                same(what),
                same(None),
                strict=False,
            )

        self._many.append(rows)

    def add_published(self, entry: Entry) -> None:
        """What a records entry stores, in order of offsets."""

        def rows(first: int) -> Iterator[Row]:
            for stored in decode_records(entry.body, entry.base_offset):
                if stored.base_offset + stored.count > first:
                    batch = stored_batch(stored.batch, stored_header(stored.batch))
                    yield from _published(batch, stored.base_offset, entry.time_ms, first)

        self._many.append(rows)

    def rows(self, first: int = 0) -> Iterator[Row]:
        """From this offset on, in the order of offsets, and of what came first."""
        self.named.sort(key=_place)
        parts: list[Iterable[Row]] = [rows(first) for rows in self._many]
        if self.named:
            parts.append([row for row in self.named if row[0] >= first])
        return iter(parts[0]) if len(parts) == 1 else heapq.merge(*parts, key=_place)


def _published(batch: RecordBatch, base: int, time_ms: int, first: int) -> Iterator[Row]:
    due = [resolve_ms(cell, time_ms) or 0 for cell in batch.deliver_at()]
    rows = zip(range(base, base + batch.count), published(batch), batch.keys(), due, strict=True)
    for offset, what, key, due_ms in rows:
        if offset < first:
            continue
        yield offset, 0, time_ms, "PUBLISHED", what, key
        if due_ms > time_ms:
            yield offset, 1, time_ms, "DELAYED", {"deliver_at_ms": due_ms}, None

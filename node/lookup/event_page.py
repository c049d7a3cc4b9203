"""One answer of a partition's events in the making: rows of what entries brought, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice

import msgspec

from delivery.events.outcome import Row
from delivery.timeline.groups import Attributes
from goqueue.wire.events import EventColumns
from log.entry import Entry
from node.lookup.event_cursors import EventCursor
from node.runtime.gil_yield import GilYield

BYTES_MAX = 8 << 20
"""About so much is in one answer."""
ROW_BYTES = 100
"""What an event takes in it, about, beside keys and what else producers chose."""
ROWS_A_TURN = 256

_encoder = msgspec.msgpack.Encoder()
_OWN = ("group", "consumer", "lane", "attempt", "reason", "message_id")
"""What has a column of its own, in their order,"""
_TOLD = ("member", "key")
"""and what those or others tell, too."""


class EventPage:
    """After the entry `after`, and after the offset in the next one where that is not None, up to
    the entry `until`. It ends with the last event of a message, a few beyond the limit at most."""

    def __init__(
        self, cursor: EventCursor, after: int, offset: int | None, until: int, limit: int
    ) -> None:
        self.cursor = cursor
        self.until = until
        self.columns = EventColumns()
        self.is_exact = True
        self._after, self._offset = after, offset
        self._limit = limit
        self._bytes = self._encoded = 0
        self._rows: list[Row] = []
        self._indexes: list[int] = []
        """Of the rows, which are no columns yet."""

    @property
    def count(self) -> int:
        return self._encoded + len(self.columns.index) + len(self._rows)

    @property
    def is_full(self) -> bool:
        return self.count >= self._limit or self._bytes >= BYTES_MAX

    @property
    def is_over(self) -> bool:
        cursor = self.cursor
        return self.is_full or (cursor.rest is None and cursor.index >= self.until)

    @property
    def next(self) -> tuple[int, int | None]:
        """Where reading goes on."""
        cursor = self.cursor
        if cursor.index == self._after and cursor.rest is None:
            return self._after, self._offset
        return cursor.index, cursor.offset

    def take(self, entries: Sequence[Entry]) -> None:
        """Tell what is left of an entry, then these, as long as there is room. On any thread."""
        cursor, gil_yield = self.cursor, GilYield()
        if cursor.rest is not None:
            self._tell(cursor.rest, gil_yield)
        for entry in entries:
            if self.is_full:
                return
            lost = cursor.feed.messages.lost
            outcome = cursor.feed.take(entry, gil_yield.end)
            if entry.index <= self._after:
                cursor.end()
            else:
                self.is_exact = self.is_exact and lost == cursor.feed.messages.lost
                is_rest = entry.index == self._after + 1 and self._offset is not None
                first = (self._offset or 0) + 1 if is_rest else 0
                self._tell(outcome.rows(first), gil_yield)
            gil_yield.end()

    def encode(self) -> bytes:
        """The columns in MessagePack, once all is told: they go, which takes its time, too."""
        self._flush()
        found = _encoder.encode(self.columns)
        self._encoded, self.columns = self.count, EventColumns()
        return found

    def _tell(self, rows: Iterator[Row], gil_yield: GilYield) -> None:
        """As many as there is room for, and the rest of the last one's message."""
        cursor = self.cursor
        index = cursor.feed.index
        first: list[Row] = []
        while not self.is_full:
            room = min(ROWS_A_TURN, self._limit - self.count)
            some = [*first, *islice(rows, room)]
            if not some:
                break
            first, last = [], some[-1][0]
            for row in rows:
                if row[0] != last:
                    first = [row]
                    break
                some.append(row)
            self._rows += some
            self._indexes += [index] * len(some)
            if len(self._rows) >= ROWS_A_TURN:
                self._flush()
            cursor.offset = last
            gil_yield.end()
        first = first or [*islice(rows, 1)]
        if first:
            cursor.rest = chain(first, rows)
        else:
            cursor.end()

    def _flush(self) -> None:
        """Rows, of whole messages, become columns."""
        rows, indexes = self._rows, self._indexes
        if not rows:
            return
        self._rows, self._indexes = [], []
        columns, is_exact = self.columns, self.cursor.feed.messages.is_exact
        offsets, _numbers, times_ms, types, whats, keys = zip(*rows, strict=True)
        own = [(*map(what.get, _OWN), _rest(what)) for what in whats]
        groups, consumers, lanes, attempts, reasons, message_ids, attributes = zip(
            *own, strict=True
        )
        columns.index += indexes
        columns.offset += offsets
        columns.seq += _numbered(indexes, offsets)
        columns.timestamp_ms += times_ms
        columns.event_type += types
        columns.group += groups
        columns.consumer += consumers
        columns.lane += lanes
        columns.attempt += attempts
        columns.reason += reasons
        columns.message_id += message_ids
        columns.key += keys
        columns.attributes += attributes
        self.is_exact = self.is_exact and all(map(is_exact, offsets))
        texts = filter(None, (*keys, *message_ids, *reasons))
        self._bytes += ROW_BYTES * len(rows) + sum(map(len, texts))


def _numbered(indexes: Sequence[int], offsets: Sequence[int]) -> list[int]:
    """Of each event, how many of the same entry and message come before it."""
    if len(set(offsets)) == len(offsets):
        return [0] * len(offsets)
    places = zip(indexes, offsets, strict=True)
    return [number for _, same in groupby(places) for number, _ in enumerate(same)]


def _rest(what: Attributes) -> dict[str, str] | None:
    """What has no column of its own, as texts."""
    rest = {
        name: value if isinstance(value, str) else _text(value)
        for name, value in what.items()
        if name not in _OWN and name not in _TOLD
    }
    return rest or None


def _text(value: int | list[str]) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)

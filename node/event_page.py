"""One answer of a partition's events in the making: rows of what entries brought, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec

from delivery.event_outcome import Row
from delivery.timeline_groups import Attributes
from goqueue.wire.events import EventColumns
from log.entry import Entry
from node.event_cursors import EventCursor
from node.turns import Turns

BYTES_MAX = 8 << 20
"""About so much is in one answer."""
ROW_BYTES = 100
"""What an event takes in it, about, beside keys and what else producers chose."""
ROWS_A_TURN = 256

_encoder = msgspec.msgpack.Encoder()
_OWN = frozenset(("group", "consumer", "member", "lane", "attempt", "reason", "message_id", "key"))


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
        self._bytes = 0

    @property
    def count(self) -> int:
        return len(self.columns.index)

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
        cursor, turns = self.cursor, Turns()
        if cursor.rest is not None:
            self._tell(cursor.rest, turns)
        for entry in entries:
            if self.is_full:
                return
            lost = cursor.feed.lost
            outcome = cursor.feed.take(entry, turns.end)
            if entry.index <= self._after:
                cursor.end()
            else:
                self.is_exact = self.is_exact and lost == cursor.feed.lost
                is_rest = entry.index == self._after + 1 and self._offset is not None
                first = (self._offset or 0) + 1 if is_rest else 0
                self._tell(outcome.rows(first), turns)
            turns.end()

    def encode(self) -> bytes:
        """The columns in MessagePack."""
        return _encoder.encode(self.columns)

    def _tell(self, rows: Iterator[Row], turns: Turns) -> None:
        cursor, columns = self.cursor, self.columns
        index = cursor.feed.index
        last = -1 if cursor.offset is None else cursor.offset
        seq = 0
        own: _Own = _NOTHING
        told: Attributes | None = None
        for row in rows:
            offset, _number, time_ms, type_, what, key = row
            if offset != last:
                if self.is_full:
                    cursor.rest, cursor.offset = chain((row,), rows), last
                    return
                last, seq = offset, 0
                if not cursor.feed.is_exact(offset):
                    self.is_exact = False
            if what is not told:
                own, told = _split(what), what
            group, consumer, lane, attempt, reason, message_id, attributes, size = own
            columns.index.append(index)
            columns.offset.append(offset)
            columns.seq.append(seq)
            columns.timestamp_ms.append(time_ms)
            columns.event_type.append(type_)
            columns.group.append(group)
            columns.consumer.append(consumer)
            columns.lane.append(lane)
            columns.attempt.append(attempt)
            columns.reason.append(reason)
            columns.message_id.append(message_id)
            columns.key.append(key)
            columns.attributes.append(attributes)
            seq += 1
            self._bytes += size + (len(key) if key else 0)
            if not len(columns.index) % ROWS_A_TURN:
                turns.end()
        cursor.end()


_Own = tuple[
    str | None,
    str | None,
    str | None,
    int | None,
    str | None,
    str | None,
    dict[str, str] | None,
    int,
]
_NOTHING: _Own = (None, None, None, None, None, None, None, 0)


def _split(what: Attributes) -> _Own:
    """What has a column of its own, all else as text, and about how many bytes both take."""
    rest = {name: _text(value) for name, value in what.items() if name not in _OWN}
    size = ROW_BYTES + sum(map(len, rest.values()))
    get: dict[str, object] = dict(what)
    found = (
        get.get(name) for name in ("group", "consumer", "lane", "attempt", "reason", "message_id")
    )
    return (*found, rest or None, size)  # type: ignore[return-value]


def _text(value: str | int | list[str]) -> str:
    return ",".join(value) if isinstance(value, list) else str(value)

"""Rows on their way into one partition: columns of equal length, as the wire takes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from struct import Struct
from typing import TypeVar

from goqueue.wire.batch import LANE_NORMAL, RecordBatch
from goqueue.wire.encoding import encode_columns
from goqueue.wire.errors import (
    DelayTooLong,
    GoQueueError,
    KeyRequired,
    NullValue,
    PayloadTooLarge,
    TooManyDelayed,
)
from goqueue.wire.records import Headers
from pipeline.sink.identity import Identity

T = TypeVar("T")

_PRINT = Struct("<qqqqBq")
ROW_BYTES = 16
"""Reckoned for a row beside its value, key and headers."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns; one that is None has nothing but its default. `numbers` are the rows' places within
    their Spark partition, from 0: what errors name them by."""

    numbers: Sequence[int]
    values: list[bytes | None]
    keys: list[bytes | None] | None = None
    headers: list[Headers] | None = None
    lanes: list[int] | None = None
    deliver_at: list[int | None] | None = None
    message_ids: list[str | None] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def size_bytes(self) -> int:
        """Values and keys, and something for the rest."""
        size = ROW_BYTES * len(self.values) + sum(map(len, filter(None, self.values)))
        size += sum(map(len, filter(None, self.keys or ())))
        for headers in self.headers or ():
            size += sum(len(name) + len(value) + 6 for name, value in headers)
        return size

    def take(self, rows: Sequence[int]) -> Rows:
        """These rows, in this order."""
        return Rows(
            [self.numbers[row] for row in rows],
            [self.values[row] for row in rows],
            _take(self.keys, rows),
            _take(self.headers, rows),
            _take(self.lanes, rows),
            _take(self.deliver_at, rows),
            _take(self.message_ids, rows),
        )

    def slice(self, start: int, end: int) -> Rows:
        """The rows from `start` to before `end`."""
        cut = slice(start, end)
        return Rows(
            self.numbers[cut],
            self.values[cut],
            self.keys[cut] if self.keys else None,
            self.headers[cut] if self.headers else None,
            self.lanes[cut] if self.lanes else None,
            self.deliver_at[cut] if self.deliver_at else None,
            self.message_ids[cut] if self.message_ids else None,
        )

    def encode(self, identity: Identity, sequence: int, now_ms: int, codec: str) -> bytes:
        """One record batch. Raises BatchError and PayloadTooLarge as `encode_columns`."""
        return encode_columns(
            self.values,
            self.keys,
            timestamps_ms=now_ms,
            lanes=LANE_NORMAL if self.lanes is None else self.lanes,
            headers=self.headers,
            deliver_at_ms=self.deliver_at,
            message_ids=self.message_ids,
            codec=codec,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=sequence,
        )

    def blamed(self, error: GoQueueError) -> str:
        """The row that the servers refuse, as far as they tell: `row 17`, `rows 0 to 99`."""
        row = self._blamed_row(error)
        if row is not None:
            return f"row {self.numbers[row]}"
        return f"rows {self.numbers[0]} to {self.numbers[-1]}"

    def _blamed_row(self, error: GoQueueError) -> int | None:
        if isinstance(error, NullValue):
            return self.values.index(None) if None in self.values else None
        if isinstance(error, KeyRequired):
            return self.keys.index(None) if self.keys and None in self.keys else 0
        if isinstance(error, PayloadTooLarge):
            return _longest(self.values)
        if isinstance(error, DelayTooLong | TooManyDelayed) and self.deliver_at:
            due = [time_ms or 0 for time_ms in self.deliver_at]
            return due.index(max(due))
        return 0 if len(self) == 1 else None


def join(parts: Sequence[Rows]) -> Rows:
    """All rows, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    return Rows(
        [number for part in parts for number in part.numbers],
        [value for part in parts for value in part.values],
        _join(parts, lambda part: part.keys, None),
        _join(parts, lambda part: part.headers, ()),
        _join(parts, lambda part: part.lanes, LANE_NORMAL),
        _join(parts, lambda part: part.deliver_at, None),
        _join(parts, lambda part: part.message_ids, None),
    )


def fingerprints(batch: RecordBatch) -> list[bytes]:
    """What tells rows apart: 16 bytes of each one's value, key, headers, lane, time and id. Equal
    for a row as it was sent and as it is stored."""
    count = batch.count
    headers = batch.header_blobs() or [b""] * count
    ids = batch.message_id_blobs() or [b""] * count
    columns = (batch.values_or_nulls(), batch.keys(), headers, ids, batch.lanes())
    return [
        blake2b(
            _PRINT.pack(_length(value), _length(key), len(head), len(id_), lane, due or 0)
            + (value or b"") + (key or b"") + head + id_,
            digest_size=16,
        ).digest()
        for value, key, head, id_, lane, due in zip(*columns, batch.deliver_at(), strict=True)
    ]  # fmt: skip


def _length(blob: bytes | None) -> int:
    return -1 if blob is None else len(blob)


def _take(column: list[T] | None, rows: Sequence[int]) -> list[T] | None:
    return None if column is None else [column[row] for row in rows]


def _join(
    parts: Sequence[Rows], column: Callable[[Rows], list[T] | None], default: T
) -> list[T] | None:
    found = [column(part) for part in parts]
    if all(one is None for one in found):
        return None
    joined: list[T] = []
    for part, one in zip(parts, found, strict=True):
        joined += [default] * len(part) if one is None else one
    return joined


def _longest(values: Sequence[bytes | None]) -> int:
    lengths = list(map(_length, values))
    return lengths.index(max(lengths))

"""The columns that the sink takes, and Arrow batches of them taken apart.

Names are those of Spark's Kafka sink and of our source; columns with other names are left alone, so
that what was read from a topic can be written into one as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from goqueue.errors import BadRequest
from goqueue.models.times import duration_ms
from goqueue.wire.layout import LANE_NORMAL, LANES, RELATIVE_BELOW
from goqueue.wire.records import Headers
from pipeline.sink.errors import SinkError
from pipeline.sink.rows import Rows

_TEXT = (StringType, BinaryType)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_TEXT, "binary or string"),
    "key": (_TEXT, "binary or string"),
    "headers": ((ArrayType,), "array<struct<key: string, value: binary>>"),
    "topic": ((StringType,), "string"),
    "partition": (_WHOLE, "a whole number"),
    "lane": ((StringType, *_WHOLE), "a lane's name or number"),
    "delay": ((StringType, DayTimeIntervalType, *_WHOLE), "text, an interval or milliseconds"),
    "deliver_at": ((TimestampType,), "timestamp"),
    "message_id": ((StringType,), "string"),
}


@dataclass(frozen=True, slots=True)
class Taken:
    """An Arrow batch taken apart: its rows, and the topic and the partition that each asks for."""

    rows: Rows
    topics: list[str | None] | None
    partitions: list[int | None] | None


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each column that the sink takes stands in the DataFrame."""

    places: dict[str, int]

    @classmethod
    def of(cls, schema: StructType) -> Columns:
        """Raises SinkError where the value is missing, or a column is of a type that won't do."""
        places: dict[str, int] = {}
        for place, field in enumerate(schema.fields):
            name = field.name.lower()
            if name not in _TYPES:
                continue
            if name in places:
                raise SinkError(f"column {name}: there are two of it")
            types, wanted = _TYPES[name]
            if not isinstance(field.dataType, types) or not _fits(name, field.dataType):
                told = field.dataType.simpleString()
                raise SinkError(f"column {name}: it is {told}, and must be {wanted}")
            places[name] = place
        if "value" not in places:
            raise SinkError(f"column value: there is none among {', '.join(schema.names)}")
        return cls(places)

    def __contains__(self, name: str) -> bool:
        return name in self.places

    def take(self, batch: Any, first: int) -> Taken:
        """A pyarrow RecordBatch whose first row is row `first` of its Spark partition. Raises
        SinkError, naming the row and the column."""

        def column(name: str, read: Callable[[Any, int], Any]) -> Any:
            place = self.places.get(name)
            found = None if place is None else batch.column(place)
            if found is None or found.null_count == len(found):
                return None
            return read(found, first)

        rows = Rows(
            range(first, first + batch.num_rows),
            _blobs(batch.column(self.places["value"])),
            column("key", lambda found, _first: _blobs(found)),
            column("headers", _headers),
            column("lane", _lanes),
            _due(column("delay", _delays), column("deliver_at", _moments), first),
            column("message_id", _message_ids),
        )
        topics = column("topic", lambda found, _first: found.to_pylist())
        return Taken(rows, topics, column("partition", lambda found, _first: found.to_pylist()))


def _fits(name: str, type_: DataType) -> bool:
    if name != "headers":
        return True
    pair = getattr(type_, "elementType", None)
    if not isinstance(pair, StructType) or [field.name for field in pair] != ["key", "value"]:
        return False
    return isinstance(pair[0].dataType, StringType) and isinstance(pair[1].dataType, _TEXT)


def _blobs(column: Any) -> list[bytes | None]:
    """Texts or bytes as bytes, cut from one piece."""
    large = column.cast(pa.large_binary())
    offsets = large.buffers()[1]
    count = len(large)
    if not count:
        return []
    ends = memoryview(offsets).cast("q")[large.offset : large.offset + count + 1].tolist()
    data = large.buffers()[2]
    piece = data.slice(ends[0], ends[-1] - ends[0]).to_pybytes() if data is not None else b""
    base = ends[0]
    blobs: list[bytes | None] = [piece[at - base : end - base] for at, end in pairwise(ends)]
    if large.null_count:
        for row in _where(large.is_null()):
            blobs[row] = None
    return blobs


def _headers(column: Any, first: int) -> list[Headers]:
    found: list[Headers] = []
    for row, cell in enumerate(column.to_pylist(), first):
        pairs: list[tuple[str, bytes]] = []
        for pair in cell or ():
            if pair is None or not pair["key"]:
                raise SinkError(f"row {row}, column headers: a header has no key")
            value = pair["value"] or b""
            pairs.append((pair["key"], value.encode() if isinstance(value, str) else value))
        found.append(tuple(pairs))
    return found


def _lanes(column: Any, first: int) -> list[int]:
    cells = column.to_pylist()
    numbers: dict[Any, int] = {None: LANE_NORMAL}
    for cell in set(cells) - {None}:
        number = LANES.index(cell) if cell in LANES else cell
        if not isinstance(number, int) or not 0 <= number < len(LANES):
            wanted = f"want one of {', '.join(LANES)}, or 0 to {len(LANES) - 1}"
            raise SinkError(f"row {first + cells.index(cell)}, column lane: {cell!r}: {wanted}")
        numbers[cell] = number
    return [numbers[cell] for cell in cells]


def _delays(column: Any, first: int) -> list[int | None]:
    """Milliseconds from when a message is stored; 0 for none."""
    if pa.types.is_duration(column.type):
        micros = column.cast(pa.duration("us")).cast(pa.int64()).to_pylist()
        cells: Sequence[Any] = [cell if cell is None else -(-cell // 1000) for cell in micros]
    else:
        cells = column.to_pylist()
    found: list[int | None] = []
    for row, cell in enumerate(cells, first):
        try:
            seconds = cell / 1000 if isinstance(cell, int) else cell
            found.append(None if cell is None else duration_ms(seconds, "delay"))
        except BadRequest as error:
            raise SinkError(f"row {row}, column {error.message}") from None
    return found


def _moments(column: Any, first: int) -> list[int | None]:
    """Unix milliseconds."""
    millis = pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000).to_pylist()
    for row, cell in enumerate(millis, first):
        if cell is not None and cell < RELATIVE_BELOW:
            raise SinkError(f"row {row}, column deliver_at: it lies before 1979")
    found: list[int | None] = millis
    return found


def _due(
    delays: list[int | None] | None, moments: list[int | None] | None, first: int
) -> list[int | None] | None:
    if delays is None or moments is None:
        return moments if delays is None else delays
    for row, (delay, moment) in enumerate(zip(delays, moments, strict=True), first):
        if delay is not None and moment is not None:
            raise SinkError(f"row {row}: delay and deliver_at exclude each other")
    pairs = zip(delays, moments, strict=True)
    return [moment if delay is None else delay for delay, moment in pairs]


def _message_ids(column: Any, first: int) -> list[str | None]:
    found: list[str | None] = column.to_pylist()
    if "" in found:
        raise SinkError(f"row {first + found.index('')}, column message_id: it is empty")
    return found


def _where(mask: Any) -> list[int]:
    rows: list[int] = pc.indices_nonzero(mask).to_pylist()
    return rows

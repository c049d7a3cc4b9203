"""Arrow batches taken apart for the sink, and what it refuses before a row is written."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

from pipeline.options import OptionError  # noqa: E402
from pipeline.sink.columns import Columns, Taken  # noqa: E402
from pipeline.sink.errors import SinkError  # noqa: E402
from pipeline.sink.options import SinkOptions  # noqa: E402
from pipeline.sink.writer import batch_writer, stream_writer  # noqa: E402

UTC = datetime.UTC
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


PAIR = types.StructType().add("key", types.StringType()).add("value", types.BinaryType())
TYPES = {
    "binary": types.BinaryType(),
    "string": types.StringType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "interval": types.DayTimeIntervalType(),
    "pairs": types.ArrayType(PAIR),
    "map": types.MapType(types.StringType(), types.StringType()),
}


def schema(text: str) -> Any:
    """`name type, name type`, without a session that could parse more."""
    found = types.StructType()
    for column in text.split(", "):
        name, _, kind = column.partition(" ")
        found.add(name, TYPES[kind])
    return found


def take(ddl: str, first: int = 0, **columns: Any) -> Taken:
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    return Columns.of(schema(ddl)).take(batch, first)


def test_values_and_keys_are_cut_from_their_buffers() -> None:
    values = pa.array([b"drop", b"", b"abc", None, b"z", b"drop"], pa.binary())[1:5]
    keys = pa.array(["k", None, "ü", ""])

    taken = take("value binary, key string", value=values, key=keys)

    assert taken.rows.values == [b"", b"abc", None, b"z"]
    assert taken.rows.keys == [b"k", None, "ü".encode(), b""]
    assert (taken.topics, taken.partitions) == (None, None)
    assert list(taken.rows.numbers) == [0, 1, 2, 3]


def test_every_column_reaches_the_wire() -> None:
    moment = datetime.datetime(2030, 1, 1, tzinfo=UTC)

    rows = take(
        "value string, headers pairs, lane string, "
        "deliver_at timestamp, message_id string, partition int, topic string, offset bigint",
        value=pa.array(["a", "b"]),
        headers=pa.array([[{"key": "h", "value": b"1"}, {"key": "i", "value": None}], None], PAIRS),
        lane=pa.array(["low", None]),
        deliver_at=pa.array([moment, None], pa.timestamp("us", "UTC")),
        message_id=pa.array([None, "m"]),
        partition=pa.array([1, None], pa.int32()),
        topic=pa.array(["t", "u"]),
        offset=pa.array([5, 6]),
    )

    assert rows.rows.headers == [(("h", b"1"), ("i", b"")), ()]
    assert rows.rows.lanes == [3, 2]
    assert rows.rows.deliver_at == [int(moment.timestamp() * 1000), None]
    assert rows.rows.message_ids == [None, "m"]
    assert (rows.partitions, rows.topics) == ([1, None], ["t", "u"])


@pytest.mark.parametrize(
    ("ddl", "cells"),
    [
        ("delay string", pa.array(["1m30s", None])),
        ("delay bigint", pa.array([90_000, None])),
        ("delay interval", pa.array([90_000_000, None], pa.duration("us"))),
    ],
)
def test_delays_count_from_when_a_row_is_stored(ddl: str, cells: Any) -> None:
    rows = take(f"value string, {ddl}", value=pa.array(["a", "b"]), delay=cells).rows

    assert rows.deliver_at == [90_000, None]


@pytest.mark.parametrize(
    ("ddl", "column", "cells", "told"),
    [
        ("lane string", "lane", pa.array([None, "fast"]), "row 8, column lane: 'fast': want one"),
        ("delay string", "delay", pa.array(["1s", "soon"]), "row 8, column delay: 'soon' is not"),
        ("message_id string", "message_id", pa.array(["a", ""]), "row 8, column message_id"),
    ],
)
def test_a_cell_that_will_not_do_is_named(ddl: str, column: str, cells: Any, told: str) -> None:
    with pytest.raises(SinkError, match=told):
        take(f"value string, {ddl}", 7, value=pa.array(["a", "b"]), **{column: cells})


@pytest.mark.parametrize(
    ("ddl", "told"),
    [
        ("key string", "column value: there is none among key"),
        ("value int", "column value: it is int, and must be binary or string"),
        ("value string, partition string", "column partition: it is string"),
        ("value string, headers map", "column headers: it is map<string,string>"),
        ("value string, deliver_at string", "column deliver_at: it is string, .* timestamp"),
    ],
)
def test_a_schema_that_will_not_do_is_refused_when_planned(ddl: str, told: str) -> None:
    with pytest.raises(SinkError, match=told):
        batch_writer({"topic": "t"}, schema(ddl), False)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"topics": "t"}, "topics: there is no such option; is topic meant"),
        ({"topic": "t", "batchRows": "0"}, "batchRows: 0 is not within 1 and 100000"),
        ({"topic": "t", "compression": "rar"}, "compression: 'rar' is none of none"),
        ({"topic": "t", "writeEpoch": "1"}, "writeEpoch: it numbers the runs of a writeId"),
        ({"topic": "t", "deliveryTimeout": "0s"}, "deliveryTimeout: 0 leaves no time"),
    ],
)
def test_an_option_that_will_not_do_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        SinkOptions.of(options, streaming=False)


def test_a_write_needs_a_topic_and_only_appends() -> None:
    with pytest.raises(SinkError, match="topic: name it by the option topic, or by a column"):
        batch_writer({}, schema("value string"), False)
    with pytest.raises(SinkError, match="mode overwrite"):
        batch_writer({"topic": "t"}, schema("value string"), True)
    with pytest.raises(SinkError, match="output mode complete"):
        stream_writer({"topic": "t"}, schema("value string"), True)

"""Stored batches become Arrow columns that say just what the library's own records say."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.archive.layout import Kind
from goqueue.archive.schema import MESSAGE_COLUMNS, arrow_schema
from goqueue.errors import BatchError
from goqueue.wire.batch import RecordBatch, encode_batch, resolve_ms
from goqueue.wire.layout import LANES
from goqueue.wire.records import Record
from goqueue.wire.stream import BatchFrame
from goqueue.wire.types import Offset
from pipeline.source import arrow
from pipeline.source.arrow import Place, record_batches
from pipeline.source.columns import DEFAULT, EXTRA

PLACE = Place("orders", 3)
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()
SCHEMA = arrow_schema(Kind.MESSAGES)

blobs = st.one_of(st.none(), st.binary(max_size=6), st.just(b"x" * 2000))
names = st.text(min_size=1, max_size=4)
headers = st.lists(
    st.one_of(
        st.tuples(names, st.binary(max_size=5)),
        st.sampled_from(
            [("traceparent", TRACEPARENT), ("traceparent", b"00-x"), ("tracestate", b"")]
        ),
    ),
    max_size=3,
).map(tuple)
moments = st.one_of(
    st.none(), st.integers(1, 10**6), st.just(2_000_000_000_000), st.just(2**63 - 1)
)
records = st.builds(
    Record,
    value=blobs,
    key=blobs,
    headers=headers,
    timestamp_ms=st.integers(1_700_000_000_000, 1_700_000_100_000),
    lane=st.integers(0, 4),
    deliver_at_ms=moments,
    expires_at_ms=moments,
    message_id=st.one_of(st.none(), names),
)
batches = st.tuples(
    st.lists(records, min_size=1, max_size=8),
    st.sampled_from(["none", "zstd", "lz4", "gzip"]),
    st.integers(0, 3),
)


def framed(stored: list[tuple[list[Record], str, int]]) -> list[BatchFrame]:
    """Batches at rising offsets, some missing before each, as in a compacted topic."""
    found, at, time_ms = [], 5, 1_700_000_200_000
    for rows, codec, gap in stored:
        at, time_ms = at + gap, time_ms + gap
        found.append(BatchFrame(Offset(at), time_ms, memoryview(encode_batch(rows, codec=codec))))
        at += len(rows)
    return found


def expected(frame: BatchFrame) -> list[dict[str, object]]:
    rows = []
    for row, record in enumerate(RecordBatch.parse(frame.batch).records()):
        deliver_at = resolve_ms(record.deliver_at_ms, frame.time_ms)
        sound = [v for n, v in record.headers if n == "traceparent" and v == TRACEPARENT]
        rows.append(
            {
                "key": record.key,
                "value": record.value,
                "topic": "orders",
                "partition": 3,
                "offset": frame.base_offset + row,
                "timestamp": frame.time_ms * 1000,
                "timestampType": 1,
                "headers": [{"key": n, "value": v} for n, v in record.headers],
                "message_id": record.message_id,
                "lane": LANES[record.lane],
                "deliver_at": None
                if deliver_at is None
                else min(deliver_at, arrow.TIMESTAMP_MS_MAX) * 1000,
                "trace_id": TRACE if sound else None,
                "attempts": None,
                "log_time_ms": frame.time_ms,
                "published_ms": record.timestamp_ms,
                "deliver_at_ms": deliver_at,
                "expires_at_ms": resolve_ms(record.expires_at_ms, frame.time_ms),
            }
        )
    return rows


def told(frames: list[BatchFrame], first: int, end: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for batch in record_batches(frames, PLACE, SCHEMA, first, end):
        batch.validate(full=True)
        assert batch.schema.equals(SCHEMA)
        plain = pa.schema(
            [f.with_type(pa.int64()) if pa.types.is_timestamp(f.type) else f for f in SCHEMA]
        )
        rows += pa.Table.from_batches([batch]).cast(plain).to_pylist()
    return rows


@settings(max_examples=80, deadline=None)
@given(st.lists(batches, min_size=1, max_size=5), st.integers(0, 30), st.integers(0, 50))
def test_columns_say_what_records_say(
    stored: list[tuple[list[Record], str, int]], first: int, end: int
) -> None:
    frames = framed(stored)
    wanted = [row for frame in frames for row in expected(frame)]

    found = told(frames, first, end)

    assert found == [row for row in wanted if first <= int(str(row["offset"])) < end]


def test_the_archive_asks_for_all_columns_that_there_are() -> None:
    assert {**DEFAULT, **EXTRA} == MESSAGE_COLUMNS


def test_large_pages_become_several_arrow_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "ROWS", 10)
    frames = framed([([Record(b"v")] * 6, "none", 0)] * 5)

    sizes = [b.num_rows for b in record_batches(frames, PLACE, SCHEMA, 0, 100)]

    assert sizes == [12, 12, 6]


def test_a_schema_of_fewer_columns_makes_no_others() -> None:
    schema = pa.schema([SCHEMA.field("offset"), SCHEMA.field("value")])
    frames = framed([([Record(b"v", b"k")], "none", 0)])

    (batch,) = record_batches(frames, PLACE, schema, 0, 100)

    assert batch.to_pylist() == [{"offset": 5, "value": b"v"}]


@pytest.mark.parametrize("at", [0, 5, 30, 70, 80, -1])
def test_a_flipped_bit_is_found_before_anything_is_told(at: int) -> None:
    (frame,) = framed([([Record(b"value", b"key")], "none", 0)])
    damaged = bytearray(frame.batch)
    damaged[at] ^= 1

    with pytest.raises(BatchError):
        told([BatchFrame(frame.base_offset, frame.time_ms, bytes(damaged))], 0, 100)

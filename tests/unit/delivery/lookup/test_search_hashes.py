"""Hashes of what messages are looked up by: every message is found, at no more than it costs."""

from __future__ import annotations

import pytest

from delivery.entries.reappended import ReappendedBatch, encode_reappended
from delivery.entries.records import AppendBatch, encode_records
from delivery.lookup import search_hashes
from delivery.lookup.search_hashes import (
    HEADER,
    HEADERS_MAX,
    MESSAGE_ID,
    TRACE_ID,
    SearchHashes,
    header_hash,
    message_id_hash,
    trace_id_hash,
    trace_id_of,
)
from delivery.offsets.bitmaps import BitMap64
from delivery.offsets.keys import CHUNK, KeyHashes, key_hash
from goqueue.wire.batch import Codec, Record, RecordBatch, encode_batch
from log.entry import Entry, EntryKind, make_entry

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01".encode()


def entry(*records: Record, base: int = 0, batch_rows: int = 1000) -> Entry:
    parts = [records[at : at + batch_rows] for at in range(0, len(records), batch_rows)]
    batches = [AppendBatch(encode_batch(part), len(part), 0) for part in parts]
    return make_entry(
        index=1,
        term=1,
        time_ms=1,
        kind=EntryKind.RECORDS,
        body=encode_records(batches),
        base_offset=base,
        record_count=len(records),
    )


def hashes(*entries: Entry) -> SearchHashes:
    found = SearchHashes()
    found.add(entries)
    return found


@pytest.mark.parametrize("batch_rows", [1, 3, 1000])
def test_each_message_is_found_by_each_thing_it_carries(batch_rows: int) -> None:
    records = [
        Record(b"v", message_id=f"id-{n}" if n % 3 else None, headers=(("n", b"%d" % n),))
        for n in range(20)
    ]

    found = hashes(entry(*records, base=100, batch_rows=batch_rows))

    for n in range(20):
        assert found.find(MESSAGE_ID, message_id_hash(f"id-{n}")) == ([100 + n] if n % 3 else [])
        assert found.find(HEADER, header_hash("n", b"%d" % n)) == [100 + n]
    assert not found.partial


def test_messages_that_have_one_thing_in_common_come_newest_first() -> None:
    records = [Record(b"v", headers=(("traceparent", PARENT), ("a", b"b")))] * 3

    found = hashes(entry(*records), entry(*records, base=3))

    assert found.find(TRACE_ID, trace_id_hash(TRACE)) == [5, 4, 3, 2, 1, 0]
    assert found.find(HEADER, header_hash("a", b"b")) == [5, 4, 3, 2, 1, 0]


def test_what_carries_nothing_costs_nothing() -> None:
    found = hashes(entry(*[Record(b"v", b"k")] * 100))

    assert (len(found), found.size_bytes) == (0, 0)


@pytest.mark.parametrize(
    "value",
    [b"", b"00-x", PARENT[:-1], PARENT + b"0", PARENT.upper(), PARENT.replace(b"-", b"_")],
)
def test_a_traceparent_that_is_none_carries_no_trace_id(value: bytes) -> None:
    found = hashes(entry(Record(b"v", headers=(("traceparent", value), ("x", PARENT)))))

    assert found.find(TRACE_ID, trace_id_hash(TRACE)) == []
    assert trace_id_of([("traceparent", value), ("x", PARENT)]) is None
    assert trace_id_of([("traceparent", PARENT)]) == TRACE


def test_messages_that_outlived_their_log_are_found_where_they_stand() -> None:
    batch = encode_batch([Record(b"v", message_id="a"), Record(b"v", message_id="b")])
    body = encode_reappended([ReappendedBatch(1, [3, 1 << 40], batch)])
    carried = make_entry(index=1, term=1, time_ms=1, kind=EntryKind.CARRIED, body=body)

    found = hashes(carried)

    assert found.find(MESSAGE_ID, message_id_hash("a")) == [3]
    assert found.find(MESSAGE_ID, message_id_hash("b")) == [1 << 40]


def test_headers_beyond_the_bound_are_left_out_and_that_is_said() -> None:
    many = tuple((f"h{n}", b"x") for n in range(HEADERS_MAX + 1))

    found = hashes(entry(Record(b"v", headers=many, message_id="a")))

    assert found.find(HEADER, header_hash(f"h{HEADERS_MAX - 1}", b"x")) == [0]
    assert found.find(HEADER, header_hash(f"h{HEADERS_MAX}", b"x")) == []
    assert found.partial == 1 << HEADER | 1 << TRACE_ID


def test_a_run_that_is_full_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_hashes, "ITEMS_MAX", 5)

    found = hashes(entry(*[Record(b"v", message_id="a")] * 6, batch_rows=1))

    assert found.find(MESSAGE_ID, message_id_hash("a")) == [4, 3, 2, 1, 0]
    assert found.partial == 1 << MESSAGE_ID


def test_a_key_is_found_by_its_hash_newest_first_also_where_only_some_are_kept() -> None:
    keys = KeyHashes()
    for chunk in range(3):
        column: list[bytes | None] = [None] * CHUNK
        column[1] = column[CHUNK - 1] = b"k"
        keys.stored(chunk * CHUNK, column)
    wanted = key_hash(b"k")
    everywhere = [at for chunk in range(3) for at in (chunk * CHUNK + 1, (chunk + 1) * CHUNK - 1)]

    def found(below: int) -> list[int]:
        return [at for stretch in keys.stretches(wanted, below) for at in stretch]

    assert found(3 * CHUNK) == everywhere[::-1]
    assert found(CHUNK + 1) == [CHUNK - 1, 1]
    keys.forget_below(CHUNK, BitMap64({1}))
    assert found(3 * CHUNK) == [*everywhere[:1:-1], 1]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_one_record_is_read_as_all_of_them_are(codec: Codec) -> None:
    records = [
        Record(b"x" * 500, None, (("a", b"b"),), 5, 1, 7, None, None),
        Record(b"", b"", (), 6, 2, None, 9, "id"),
        Record(None, b"key", (("c", b""), ("d", b"e")), 7, 4, None, None, "other"),
    ] * 4

    batch = RecordBatch.parse(encode_batch(records, codec=codec))

    assert [batch.record(row) for row in range(batch.count)] == batch.records()
    without = [batch.record(row, with_value=False) for row in range(batch.count)]
    assert [(r.key, r.headers, r.message_id, r.timestamp_ms) for r in without] == [
        (r.key, r.headers, r.message_id, r.timestamp_ms) for r in batch.records()
    ]

"""Record batches: what goes in comes out, and nothing unsound gets through."""

from __future__ import annotations

import io
import struct
import tracemalloc
import zlib
from typing import Any

import crc32c
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from goqueue.wire.batch import (
    Limits,
    Record,
    RecordBatch,
    batch_length,
    encode_batch,
    encode_columns,
    split_batches,
)
from goqueue.wire.compression import COMPRESSION_BYTES_MIN, Codec, decompress
from goqueue.wire.errors import BadRequest, BatchError, GoQueueError, PayloadTooLarge
from goqueue.wire.layout import HEADER
from goqueue.wire.records import decode_headers

NOW_MS = 1_700_000_000_000
CODECS = [codec.name.lower() for codec in Codec]

header_lists = st.lists(st.tuples(st.text(min_size=1, max_size=8), st.binary(max_size=20)))
times = st.none() | st.integers(1, 2**63 - 1)
records = st.builds(
    Record,
    value=st.binary(max_size=300),
    key=st.none() | st.binary(max_size=40),
    headers=header_lists.map(tuple),
    timestamp_ms=st.integers(NOW_MS, NOW_MS + 2**32 - 1),
    lane=st.integers(0, 4),
    deliver_at_ms=times,
    expires_at_ms=times,
    message_id=st.none() | st.text(min_size=1, max_size=20),
)


def resealed(batch: bytes, at: int = 0, replacement: bytes = b"") -> bytes:
    """The batch with some bytes replaced and the checksum made right again: a faulty producer."""
    changed = batch[:at] + replacement + batch[at + len(replacement) :]
    return changed[:4] + struct.pack("<I", crc32c.crc32c(changed[8:])) + changed[8:]


def refused(batch: bytes, limits: Limits | None = None) -> GoQueueError:
    with pytest.raises((BatchError, PayloadTooLarge)) as caught:
        RecordBatch.parse(batch, limits or Limits()).validate()
    return caught.value


# what goes in comes out


@settings(max_examples=150, deadline=None)
@given(
    st.lists(records, min_size=1, max_size=30), st.sampled_from(CODECS), st.integers(0, 2**64 - 1)
)
def test_any_records_come_back_as_they_were(
    written: list[Record], codec: str, producer_id: int
) -> None:
    sequence = 7 if producer_id else 0
    encoded = encode_batch(written, codec=codec, producer_id=producer_id, base_sequence=sequence)

    batch = RecordBatch.parse(encoded)

    batch.validate()
    assert batch.records() == written
    assert (batch.producer_id, batch.base_sequence) == (producer_id, sequence)
    assert batch.base_timestamp_ms == min(record.timestamp_ms for record in written)


@settings(max_examples=60, deadline=None)
@given(st.lists(records, min_size=1, max_size=12), st.data(), st.sampled_from(CODECS))
def test_a_selection_holds_exactly_the_chosen_rows(
    written: list[Record], data: st.DataObject, codec: str
) -> None:
    batch = RecordBatch.parse(encode_batch(written, codec=codec))
    rows = data.draw(st.lists(st.integers(0, len(written) - 1), min_size=1, max_size=12))

    assert batch.select(rows).records() == [written[row] for row in rows]


@settings(max_examples=60, deadline=None)
@given(st.lists(records, min_size=1, max_size=12), st.data(), st.sampled_from(CODECS))
def test_some_rows_are_those_of_the_columns(
    written: list[Record], data: st.DataObject, codec: str
) -> None:
    batch = RecordBatch.parse(encode_batch(written, codec=codec))
    first = data.draw(st.integers(0, batch.count))
    last = data.draw(st.integers(first, batch.count))

    rows = batch.rows(first, last, batch.plain_values())

    assert rows.values == batch.values()[first:last]
    assert rows.keys == batch.keys()[first:last]
    assert [decode_headers(blob) for blob in rows.headers] == batch.headers()[first:last]
    assert [blob.decode() or None for blob in rows.message_ids] == batch.message_ids()[first:last]


def test_a_selection_of_a_producers_run_starts_at_that_sequence() -> None:
    batch = RecordBatch.parse(
        encode_columns([b"a", b"b", b"c"], producer_id=9, producer_epoch=2, base_sequence=100)
    )

    tail = batch.select([1, 2])

    assert (tail.producer_id, tail.producer_epoch, tail.base_sequence) == (9, 2, 101)


@settings(max_examples=60, deadline=None)
@given(st.lists(records, min_size=1, max_size=10), st.sampled_from(CODECS))
def test_encoding_decoded_records_gives_the_same_bytes(written: list[Record], codec: str) -> None:
    encoded = encode_batch(written, codec=codec)

    assert encode_batch(RecordBatch.parse(encoded).records(), codec=codec) == encoded


def test_a_null_key_differs_from_an_empty_key() -> None:
    batch = RecordBatch.parse(encode_columns([b"1", b"2", b"3"], [None, b"", b"k"]))

    assert batch.keys() == [None, b"", b"k"]


def test_columns_that_are_not_used_take_no_space() -> None:
    bare = encode_columns([b"v"] * 10)
    empty_columns = encode_columns(
        [b"v"] * 10,
        [None] * 10,
        headers=[()] * 10,
        deliver_at_ms=[None] * 10,
        expires_at_ms=[None] * 10,
        message_ids=[None] * 10,
    )

    assert len(bare) == 72 + 10 * 13 + 10
    assert empty_columns == bare


def test_a_memoryview_parses_like_bytes_and_does_not_pin_its_buffer() -> None:
    encoded = encode_columns([b"value"])
    arena = bytearray(b"before" + encoded + b"after")

    with memoryview(arena) as view:
        batch = RecordBatch.parse(view[6 : 6 + len(encoded)])
    arena.clear()

    assert batch.values() == [b"value"]


# compression


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip"])
def test_repetitive_values_are_compressed(codec: str) -> None:
    encoded = encode_columns([b"the same again "] * 100, codec=codec)

    assert RecordBatch.parse(encoded).codec.name.lower() == codec
    assert len(encoded) < len(encode_columns([b"the same again "] * 100)) - 1000


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip"])
def test_values_are_stored_plain_where_compressing_gains_nothing(codec: str) -> None:
    small = encode_columns([b"a" * (COMPRESSION_BYTES_MIN - 1)], codec=codec)
    random = bytes(range(256)) * 2 + zlib.compress(bytes(range(256)) * 50, 9)
    noise = b"".join(struct.pack("<I", crc32c.crc32c(random[:i])) for i in range(len(random)))
    incompressible = encode_columns([noise], codec=codec)

    assert RecordBatch.parse(small).codec is Codec.NONE
    assert RecordBatch.parse(incompressible).codec is Codec.NONE


@pytest.mark.parametrize("codec", ["zstd", "lz4", "gzip"])
def test_the_level_reaches_the_codec(codec: str) -> None:
    values = [f"line {i * i} of {i}".encode() for i in range(2000)]

    fast, slow = (encode_columns(values, codec=codec, level=level) for level in (1, 9))

    assert len(fast) != len(slow)
    assert RecordBatch.parse(fast).values() == RecordBatch.parse(slow).values() == values


@pytest.mark.parametrize(("codec", "level"), [("zstd", 23), ("zstd", 0), ("lz4", 13), ("gzip", 10)])
def test_a_level_the_codec_does_not_have_is_refused(codec: str, level: int) -> None:
    with pytest.raises(BadRequest, match="level"):
        encode_columns([b"a" * 2000], codec=codec, level=level)


def test_an_unknown_codec_is_refused_by_name() -> None:
    with pytest.raises(BadRequest, match="none, zstd, lz4, gzip"):
        encode_columns([b"a"], codec="snappy")


def zstd_without_size(plain: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(plain)


def gzip_of(plain: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    return compressor.compress(plain) + compressor.flush()


def bomb(codec: Codec, megabytes: int) -> bytes:
    plain = bytes(megabytes << 20)
    if codec is Codec.ZSTD:
        return zstd_without_size(plain)
    encoded = encode_columns(
        [plain], codec=codec, limits=Limits(value_bytes_max=1 << 30, values_plain_bytes_max=1 << 30)
    )
    header = RecordBatch.parse(encoded, Limits(values_plain_bytes_max=1 << 30)).header
    return encoded[-header.values_bytes :]


def memory_to_refuse(block: bytes, codec: Codec) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(BatchError):
            decompress(block, codec, 100_000)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4, Codec.GZIP])
def test_a_decompression_bomb_is_refused_with_bounded_memory(codec: Codec) -> None:
    block = bomb(codec, 64)

    assert memory_to_refuse(block, codec) < 1_000_000


def test_a_zstd_frame_that_names_a_huge_size_allocates_nothing() -> None:
    block = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    assert zstandard.frame_content_size(block) == 64 << 20

    assert memory_to_refuse(block, Codec.ZSTD) < 1_000_000


def test_values_that_claim_more_than_the_limit_are_refused_before_decompressing() -> None:
    encoded = encode_columns([bytes(100_000)], codec="zstd")

    error = refused(encoded, Limits(values_plain_bytes_max=99_999))

    assert isinstance(error, PayloadTooLarge)


@pytest.mark.parametrize(
    "block",
    [
        zstandard.ZstdCompressor().compress(b"x" * 2000) + b"more",
        zstandard.ZstdCompressor().compress(b"x" * 1999),
        zstandard.ZstdCompressor().compress(b"x" * 2000)[:-1],
        zstd_without_size(b"x" * 1999),
        zstd_without_size(b"x" * 2001),
        b"",
        b"not zstd",
    ],
)
def test_a_zstd_block_must_be_one_whole_frame_of_the_size_told(block: bytes) -> None:
    with pytest.raises(BatchError):
        decompress(block, Codec.ZSTD, 2000)


def test_a_zstd_frame_without_its_size_is_accepted() -> None:
    stream = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(stream, closefd=False) as writer:
        writer.write(b"x" * 2000)

    assert decompress(stream.getvalue(), Codec.ZSTD, 2000) == b"x" * 2000


@pytest.mark.parametrize(
    "block",
    [
        gzip_of(b"x" * 2000) + gzip_of(b"y"),
        gzip_of(b"x" * 1999),
        gzip_of(b"x" * 2001),
        gzip_of(b"x" * 2000)[:-1],
        b"",
    ],
)
def test_a_gzip_block_must_be_one_whole_stream_of_the_size_told(block: bytes) -> None:
    with pytest.raises(BatchError):
        decompress(block, Codec.GZIP, 2000)


# damage

SMALL = encode_batch(
    [
        Record(b"value", b"key", (("h", b"1"),), NOW_MS, 1, NOW_MS + 5, NOW_MS + 9, "id-1"),
        Record(b"", None, (), NOW_MS + 1),
    ],
    producer_id=5,
    base_sequence=3,
)


def test_every_single_bit_flip_is_detected() -> None:
    undetected = []
    for bit in range(len(SMALL) * 8):
        flipped = bytearray(SMALL)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        try:
            RecordBatch.parse(flipped)
        except (BatchError, PayloadTooLarge):
            continue
        undetected.append(bit)

    assert undetected == []


def test_every_truncation_and_every_addition_is_detected() -> None:
    for length in range(len(SMALL)):
        refused(SMALL[:length])
    refused(SMALL + b"\0")
    refused(resealed(SMALL + b"\0"))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused_as_a_bad_batch(noise: bytes) -> None:
    refused(noise)
    refused(b"GQB\x01" + noise)


@settings(max_examples=500, deadline=None)
@given(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=8))
def test_a_wrong_batch_with_a_right_checksum_never_breaks_a_reader(
    at: int, replacement: bytes
) -> None:
    """Whatever a faulty producer seals: parse and validate either refuse, or all of it reads."""
    wrong = resealed(SMALL, at, replacement[: len(SMALL) - at])
    try:
        batch = RecordBatch.parse(wrong)
        batch.validate()
    except (BatchError, PayloadTooLarge):
        return
    assert len(batch.records()) == batch.count
    encode_batch(batch.records())


@pytest.mark.parametrize(
    ("column", "at"), [("key", 112), ("value", 120), ("headers", 128), ("message id", 136)]
)
def test_lengths_that_leave_bytes_over_are_refused(column: str, at: int) -> None:
    length: int = struct.unpack_from("<I", SMALL, at)[0]
    assert length > 0, column

    refused(resealed(SMALL, at, struct.pack("<I", 0)))


@pytest.mark.parametrize(
    "blob",
    [
        b"\1",
        struct.pack("<HI", 1, 0),
        struct.pack("<HI", 1, 1) + b"n",
        struct.pack("<HI", 0, 1) + b"v",
        struct.pack("<HI", 1, 2**32 - 1) + b"nv",
        struct.pack("<HI", 1, 0) + b"\xff",
        struct.pack("<HI", 1, 0) + b"n" + b"\0",
    ],
)
def test_headers_that_are_cut_nameless_or_not_utf_8_are_refused(blob: bytes) -> None:
    with pytest.raises(BatchError):
        decode_headers(blob)


def sealed_header(value_length: int = 5, **changes: int) -> bytes:
    """A batch of the key k and the value "value" with a wrong header and a right checksum."""
    names = (
        "count", "producer_id", "base_timestamp_ms", "producer_epoch", "flags", "codec",
        "base_sequence", "keys", "headers", "ids", "values", "plain", "reserved",
    )  # fmt: skip
    batch = encode_columns([b"value"], [b"k"], timestamps_ms=NOW_MS)
    magic, version, _, length, *fields = HEADER.unpack_from(batch)
    merged = {**dict(zip(names, fields, strict=True)), **changes}
    lengths = batch[72:80] + struct.pack("<I", value_length)
    return resealed(HEADER.pack(magic, version, 0, length, *merged.values()) + lengths + batch[84:])


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 0},
        {"count": 2},
        {"count": 2**32 - 1},
        {"flags": 1},
        {"flags": 32},
        {"flags": 0x8000},
        {"codec": 1},
        {"codec": 9},
        {"base_timestamp_ms": -1},
        {"base_timestamp_ms": -(2**63)},
        {"producer_epoch": 1},
        {"base_sequence": 1},
        {"keys": 0},
        {"keys": 2, "values": 4},
        {"values": 4},
        {"plain": 4},
        {"plain": 2**32 - 1},
        {"headers": 1, "values": 4, "plain": 4, "value_length": 4},
        {"ids": 1, "values": 4, "plain": 4, "value_length": 4},
        {"plain": 4, "value_length": 4},
        {"reserved": 1},
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_is_refused(changes: dict[str, int]) -> None:
    RecordBatch.parse(sealed_header()).validate()

    refused(sealed_header(**changes))


def test_a_newer_format_is_refused_by_number() -> None:
    with pytest.raises(BatchError, match="format 2"):
        RecordBatch.parse(SMALL[:3] + b"\x02" + SMALL[4:])


def test_a_timestamp_beyond_64_bits_is_refused_by_validate() -> None:
    latest = encode_columns([b"v"], timestamps_ms=2**63 - 1)
    RecordBatch.parse(latest).validate()

    refused(resealed(latest, 72, struct.pack("<I", 1)))


def test_an_unknown_lane_is_refused_by_validate() -> None:
    encoded = encode_columns([b"v"])

    refused(resealed(encoded, 72 + 12, b"\x05"))


@pytest.mark.parametrize(
    ("limit", "column"),
    [
        ({"value_bytes_max": 9}, {"values": [b"x" * 10]}),
        ({"key_bytes_max": 9}, {"values": [b""], "keys": [b"x" * 10]}),
        ({"headers_bytes_max": 9}, {"values": [b""], "headers": [(("name", b"x" * 10),)]}),
        ({"message_id_bytes_max": 9}, {"values": [b""], "message_ids": ["x" * 10]}),
        ({"records_max": 1}, {"values": [b"", b""]}),
        ({"values_plain_bytes_max": 9}, {"values": [b"12345", b"67890"]}),
        ({"batch_bytes_max": 90}, {"values": [b"x" * 10]}),
    ],
    ids=lambda value: next(iter(value)),
)
def test_each_limit_holds_on_both_sides(limit: dict[str, int], column: dict[str, Any]) -> None:
    limits = Limits(**limit)
    column = dict(column)
    values = column.pop("values")

    with pytest.raises(PayloadTooLarge):
        encode_columns(values, limits=limits, **column)
    assert isinstance(refused(encode_columns(values, **column), limits), PayloadTooLarge)


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": []},
        {"values": [b""], "keys": [None, None]},
        {"values": [b""], "lanes": [5]},
        {"values": [b""], "lanes": -1},
        {"values": [b""], "timestamps_ms": -1},
        {"values": [b""], "timestamps_ms": 2**63},
        {"values": [b"", b""], "timestamps_ms": [0, 2**32]},
        {"values": [b""], "headers": [(("", b""),)]},
        {"values": [b""], "message_ids": [""]},
        {"values": [b""], "deliver_at_ms": [-1]},
        {"values": [b""], "base_sequence": 1},
        {"values": [b""], "producer_id": 2**64},
    ],
    ids=str,
)
def test_columns_that_make_no_batch_are_refused_by_the_encoder(
    arguments: dict[str, Any],
) -> None:
    with pytest.raises(BatchError):
        encode_columns(**arguments)


# walking


def test_concatenated_batches_are_walked_without_reading_them() -> None:
    batches = [encode_columns([b"x" * n]) for n in (1, 200, 30)]
    body = b"".join(batches)

    assert [bytes(part) for part in split_batches(body)] == batches
    assert batch_length(body, len(batches[0])) == len(batches[1])
    assert list(split_batches(b"")) == []


@pytest.mark.parametrize("cut", [1, 71, 72, 85])
def test_a_walk_stops_at_a_batch_that_is_cut_short(cut: int) -> None:
    body = encode_columns([b"x"]) + encode_columns([b"longer than that"])[:cut]

    with pytest.raises(BatchError):
        list(split_batches(body))

"""The body of a records entry keeps batches, request ids and offsets apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.records import (
    AppendBatch,
    ProducerStamp,
    decode_records,
    decode_trim,
    encode_records,
    encode_trim,
)
from goqueue.wire.types import Index, Offset
from tests.unit.delivery.entries import batch


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 2**64 - 1)), max_size=6),
    st.integers(0, 2**40),
)
def test_decoding_gives_back_batches_with_dense_offsets(
    wanted: list[tuple[int, int]], base: int
) -> None:
    parts = [AppendBatch.of(batch(count), request) for count, request in wanted]

    body = b"".join(encode_records(parts))
    found = list(decode_records(body, Offset(base)))

    assert [(one.count, one.request_id) for one in found] == wanted
    assert [bytes(one.batch) for one in found] == [part.batch for part in parts]
    offset = base
    for one in found:
        assert one.base_offset == offset
        offset += one.count


def test_a_batch_is_not_copied_into_the_body() -> None:
    one = batch(3)

    parts = encode_records([AppendBatch.of(one, 7)])

    assert parts[1] is one.buffer


def test_a_producer_is_found_in_the_batch_and_needs_no_request_id() -> None:
    one = batch(2, producer=9, epoch=3, sequence=40)

    (found,) = decode_records(b"".join(encode_records([AppendBatch.of(one, 77)])))

    assert found.stamp() == ProducerStamp(9, 3, 40)
    assert found.request_id == 0


def test_a_batch_without_producer_has_no_stamp() -> None:
    (found,) = decode_records(b"".join(encode_records([AppendBatch.of(batch(), 77)])))

    assert found.stamp() is None
    assert found.request_id == 77


def test_every_cut_of_a_body_is_noticed() -> None:
    body = b"".join(encode_records([AppendBatch.of(batch(), 1)]))

    for length in range(1, len(body)):
        with pytest.raises(ValueError, match="cut short"):
            list(decode_records(body[:length]))


def test_a_trim_names_index_and_offset() -> None:
    trim = decode_trim(encode_trim(Index(12), Offset(345)))

    assert (trim.index, trim.offset) == (12, 345)

"""The body of a records entry keeps batches, request ids and offsets apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery.entries.records import (
    AppendBatch,
    ProducerStamp,
    decode_appended,
    decode_records,
    decode_trim,
    encode_records,
    encode_trim,
)
from goqueue.wire.types import Index, Offset
from tests.unit.delivery.batches import batch


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

    assert found.stamp() == ProducerStamp(9, 3, 40, 2)
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


def test_a_batch_with_rows_left_out_still_covers_its_sequence() -> None:
    sent = batch(5, producer=9, sequence=40)
    rest = sent.select([1, 4], base_sequence=40)
    parts = [AppendBatch.of_rest(rest, sent, 77), AppendBatch.of(batch(1), 78)]

    some, other = decode_records(b"".join(encode_records(parts)), Offset(7))

    assert (some.count, some.request_id, some.stamp()) == (2, 0, ProducerStamp(9, 0, 40, 5))
    assert (other.base_offset, other.request_id) == (9, 78)


def test_a_batch_of_which_nothing_is_left_is_there_for_its_sequence_alone() -> None:
    sent = batch(3, producer=9, epoch=1, sequence=40)
    body = b"".join(
        encode_records([AppendBatch.of_rest(None, sent, 0), AppendBatch.of(batch(2), 78)])
    )

    nothing, stored = decode_appended(body, Offset(7))

    assert (nothing.base_offset, nothing.count) == (7, 0)
    assert (nothing.stamp(), nothing.message_ids()) == (ProducerStamp(9, 1, 40, 3), None)
    assert [found.base_offset for found in decode_records(body, Offset(7))] == [7]
    assert stored.count == 2

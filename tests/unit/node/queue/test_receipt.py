"""Receipts say which lease is meant, and nothing else passes for one."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.wire.errors import BadReceipt
from goqueue.wire.types import Index, Offset, PartitionId, TopicId
from node.queue.receipt import (
    MAC_BYTES,
    Receipt,
    decode_receipt,
    encode_receipts,
    place_of,
    signed,
    vouched_of,
)

PARTITION = PartitionId(TopicId(7, 9), 3)
u64 = st.integers(0, (1 << 64) - 1)


def with_code(group: int, delivery: int, key: int, mac: bytes, run: list[int]) -> list[str]:
    vouched = vouched_of(place_of(PARTITION.pack(), group, delivery), run)
    return signed(vouched, key, mac, run)


@given(u64, u64, u64)
def test_a_receipt_names_its_lease(group: int, delivery: int, offset: int) -> None:
    text = encode_receipts(PARTITION.pack(), group, delivery, [offset])[0]

    assert decode_receipt(text) == Receipt(PARTITION, group, Index(delivery), Offset(offset))
    assert text.replace("-", "").replace("_", "").isalnum()


@given(
    u64,
    u64,
    st.integers(0, (1 << 64) - 2),
    st.integers(0, (1 << 32) - 1),
    st.binary(min_size=MAC_BYTES),
)
def test_one_with_a_code_has_it_before_the_messages_own_part(
    group: int, delivery: int, offset: int, key: int, mac: bytes
) -> None:
    mac = mac[:MAC_BYTES]
    one, other = with_code(group, delivery, key, mac, [offset, offset + 1])

    lease = PARTITION, group, Index(delivery)
    assert decode_receipt(one) == Receipt(*lease, Offset(offset), key=key, mac=mac)
    assert decode_receipt(one).head == decode_receipt(other).head
    assert one[:88] == other[:88] and len(one) == 104


@given(st.booleans(), st.integers(0, 103), st.sampled_from("AQZaz09-_!+/=é"))
def test_a_receipt_with_any_other_character_is_refused(
    has_code: bool, at: int, character: str
) -> None:
    text = encode_receipts(PARTITION.pack(), 1, 2, [3])[0]
    if has_code:
        text = with_code(1, 2, 5, b"c" * MAC_BYTES, [3])[0]
    changed = text[:at] + character + text[at + 1 :]

    if changed != text:
        with pytest.raises(BadReceipt) as refusal:
            decode_receipt(changed)
        assert (refusal.value.http_status, refusal.value.code) == (400, "invalid_receipt")


@given(st.text())
def test_any_text_is_refused_without_fault(text: str) -> None:
    with pytest.raises(BadReceipt):
        decode_receipt(text)


@pytest.mark.parametrize(
    "first, count, offset, is_read",
    [
        (5, 0, 5, False),
        (5, 1, 4, False),
        (5, 1, 6, False),
        (0, (1 << 32) - 1, (1 << 32) - 1, False),
        ((1 << 64) - 1, (1 << 32) - 1, (1 << 64) - 1, True),
        ((1 << 64) - 1, (1 << 32) - 1, 0, False),
    ],
)
def test_a_run_of_any_length_is_read_at_once_and_holds_its_own_offsets_only(
    first: int, count: int, offset: int, is_read: bool
) -> None:
    """It is a claim: whether the cluster made it is asked of the code, later."""
    vouched = place_of(PARTITION.pack(), 1, 2) + struct.pack("<QI", first, count)
    (text,) = signed(vouched, 5, b"c" * MAC_BYTES, [offset])

    if is_read:
        assert decode_receipt(text).offset == offset
    else:
        with pytest.raises(BadReceipt):
            decode_receipt(text)

"""Receipts say which lease is meant, and nothing else passes for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.wire.errors import BadReceipt
from goqueue.wire.types import GroupId, Index, Offset, TopicId
from node.receipt import Receipt, decode_receipt, encode_receipts

PARTITION = GroupId(TopicId(7, 9), 3)
u64 = st.integers(0, (1 << 64) - 1)


@given(u64, u64, u64)
def test_a_receipt_names_its_lease(group: int, delivery: int, offset: int) -> None:
    text = encode_receipts(PARTITION.pack(), group, delivery, [offset])[0]

    assert decode_receipt(text) == Receipt(PARTITION, group, Index(delivery), Offset(offset))
    assert text.replace("-", "").replace("_", "").isalnum()


@given(st.integers(0, 69), st.sampled_from("AQZaz09-_!+/=é"))
def test_a_receipt_with_any_other_character_is_refused(at: int, character: str) -> None:
    text = encode_receipts(PARTITION.pack(), 1, 2, [3])[0]
    changed = text[:at] + character + text[at + 1 :]

    if changed != text:
        with pytest.raises(BadReceipt) as refusal:
            decode_receipt(changed)
        assert (refusal.value.http_status, refusal.value.code) == (400, "invalid_receipt")


@given(st.text())
def test_any_text_is_refused_without_fault(text: str) -> None:
    with pytest.raises(BadReceipt):
        decode_receipt(text)

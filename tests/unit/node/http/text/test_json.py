"""Depth is judged the same as by counting, whatever stands in strings."""

from __future__ import annotations

import asyncio
import json
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goqueue.wire.errors import BadRequest
from node.http.text.json import DEPTH_MAX, SLICE_BYTES, decode, decode_long, depth_exceeds

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('[]{}"\\a'),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('[{"\\'), inner, max_size=3)
    ),
    max_leaves=30,
)


def depth_of(value):
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(DOCUMENTS, st.integers(1, 8))
def test_depth_is_measured_outside_strings(value, bound):
    text = json.dumps(value).encode()

    assert depth_exceeds(text, bound) == (depth_of(value) > bound)


def test_wide_documents_are_not_deep():
    assert not depth_exceeds(b"[" + b"[{}]," * 100_000 + b"[]]", 3)
    assert depth_exceeds(b"[" * 65 + b"]" * 65, 64)
    assert not depth_exceeds(b"[" * 64 + b"]" * 64, 64)


@given(DOCUMENTS, st.integers(1, 8), st.integers(2, 16))
def test_slices_may_end_anywhere(value, bound, slice_bytes):
    text = json.dumps(value).encode()

    with mock.patch("node.http.text.json.SLICE_BYTES", slice_bytes):
        assert depth_exceeds(text, bound) == (depth_of(value) > bound)


@given(st.text('[]{}"\\a'), st.integers(2, 16))
def test_what_is_no_json_is_judged_too(text, slice_bytes):
    with mock.patch("node.http.text.json.SLICE_BYTES", slice_bytes):
        assert depth_exceeds(text.encode(), 1) in (True, False)


@pytest.mark.parametrize("part", [b"a", b'\\"', b'"', b"\\", b'"a', b'\\a"', b'"\\"', b"[", b"]"])
@pytest.mark.parametrize("size", [64, 2**20])
def test_a_string_without_an_end_is_looked_at_once(part, size):
    """Tried in every way there is, 64 bytes alone would take longer than anybody waits."""
    text = b"{" + b"[" * DEPTH_MAX + b'"' + part * (size // len(part))

    with pytest.raises(BadRequest):
        decode(text, msgspec.json.Decoder(object))


async def test_others_run_while_a_long_document_is_judged():
    text = b'["' + b'\\"[' * 2**18 + b'"' + b",[]" * DEPTH_MAX + b"]"
    turns, is_done = 0, False

    async def others():
        nonlocal turns
        while not is_done:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    found = await decode_long(text, msgspec.json.Decoder(list[object]))
    is_done = True
    await other

    assert len(found) == 1 + DEPTH_MAX
    assert turns >= len(text) // SLICE_BYTES


async def test_a_long_document_that_is_too_deep_is_refused():
    text = b'["' + b"a" * 2 * SLICE_BYTES + b'",' + b"[" * DEPTH_MAX + b"]" * DEPTH_MAX + b"]"

    with pytest.raises(BadRequest, match="nested deeper"):
        await decode_long(text, msgspec.json.Decoder(list[object]))

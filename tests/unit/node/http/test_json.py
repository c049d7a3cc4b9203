"""Depth is judged the same as by counting, whatever stands in strings."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from node.http.json import depth_exceeds

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

"""The headers of many messages at once: first every message's first header, then every second.

So the number of steps is that of the most headers that a message has, not that of messages. The
encoding is that of `goqueue.wire.records`: name length (u16), value length (u32), name, value.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from goqueue.errors import BatchError

Numbers: TypeAlias = Any
"""An array of numpy, of which the checker knows nothing."""

LENGTHS_BYTES: Final = 6
TRACEPARENT: Final = np.frombuffer(b"traceparent", np.uint8)
TRACEPARENT_BYTES: Final = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
DASHES: Final = (2, 35, 52)
TRACE_ID: Final = slice(3, 35)
_HEX: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789abcdef", np.uint8))


class StoredHeaders:
    """The encoded headers of some rows: their lengths in bytes, 0 for none, and the bytes."""

    def __init__(self, lengths: Numbers, blob: bytes) -> None:
        self._rows = len(lengths)
        self._blob = np.frombuffer(blob, np.uint8)
        self._ends = np.cumsum(lengths)
        self._begins = self._ends - lengths

    def column(self, type_: pa.DataType) -> pa.Array:
        """A list of (key, value) a row, empty for none."""
        row, name_at, name_bytes, value_at, value_bytes = self._found
        ends = np.zeros(self._rows + 1, np.int32)
        np.cumsum(np.bincount(row, minlength=self._rows), out=ends[1:])
        pair = type_.value_type
        names = self._gathered(name_at, name_bytes, pair.field(0).type)
        values = self._gathered(value_at, value_bytes, pair.field(1).type)
        pairs = pa.StructArray.from_arrays([names, values], fields=list(pair))
        return pa.Array.from_buffers(
            type_, self._rows, [None, pa.py_buffer(ends)], children=[pairs]
        )

    def trace_ids(self) -> tuple[Numbers, Numbers]:
        """A matrix of bytes, 32 hex digits a row, and which rows have none: that of the first
        `traceparent` header that is sound, as the service finds messages by it."""
        row, name_at, name_bytes, value_at, value_bytes = self._found
        is_long = (name_bytes == len(TRACEPARENT)) & (value_bytes == TRACEPARENT_BYTES)
        row, name_at, value_at = row[is_long], name_at[is_long], value_at[is_long]
        named = self._blob[name_at[:, None] + np.arange(len(TRACEPARENT))] == TRACEPARENT
        values = self._blob[value_at[:, None] + np.arange(TRACEPARENT_BYTES)]
        sound = named.all(axis=1)
        expected = _HEX[values]
        expected[:, DASHES] = values[:, DASHES] == ord("-")
        sound &= expected.all(axis=1)
        rows, first = np.unique(row[sound], return_index=True)
        ids = np.zeros((self._rows, TRACE_ID.stop - TRACE_ID.start), np.uint8)
        ids[rows] = values[sound][first, TRACE_ID]
        missing = np.ones(self._rows, bool)
        missing[rows] = False
        return ids, missing

    @cached_property
    def _found(self) -> tuple[Numbers, Numbers, Numbers, Numbers, Numbers]:
        """All headers in the order of rows: row, and where name and value lie in the blob. Raises
        BatchError where one is cut short or has no name."""
        row = np.flatnonzero(self._ends > self._begins)
        at = self._begins[row]
        steps: list[tuple[Numbers, ...]] = []
        while len(row):
            if (self._ends[row] - at < LENGTHS_BYTES).any():
                raise BatchError("a header is cut short")
            cells = self._blob[at[:, None] + np.arange(LENGTHS_BYTES)].astype(np.int64)
            name_bytes = cells[:, 0] | cells[:, 1] << 8
            value_bytes = cells[:, 2] | cells[:, 3] << 8 | cells[:, 4] << 16 | cells[:, 5] << 24
            name_at = at + LENGTHS_BYTES
            value_at = name_at + name_bytes
            at = value_at + value_bytes
            if (at > self._ends[row]).any() or (name_bytes == 0).any():
                raise BatchError("a header is cut short, or has no name")
            steps.append((row, name_at, name_bytes, value_at, value_bytes))
            goes_on = at < self._ends[row]
            row, at = row[goes_on], at[goes_on]
        if not steps:
            none = np.zeros(0, np.int64)
            return none, none, none, none, none
        joined = [np.concatenate(parts) for parts in zip(*steps, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        first, second, third, fourth, fifth = (part[order] for part in joined)
        return first, second, third, fourth, fifth

    def _gathered(self, at: Numbers, lengths: Numbers, type_: pa.DataType) -> pa.Array:
        """Cells from anywhere in the blob, one behind the other."""
        ends = np.zeros(len(at) + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        taken = np.repeat(at - ends[:-1], lengths) + np.arange(ends[-1])
        blob = self._blob[taken].tobytes()
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(blob)]
        return pa.Array.from_buffers(type_, len(at), buffers)

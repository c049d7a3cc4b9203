"""Long values are copied out of their batch some at a time, and are the same ones."""

from __future__ import annotations

import pytest

from goqueue.wire.batch import RecordBatch, Rows
from goqueue.wire.encoding import encode_columns
from goqueue.wire.types import Offset
from node.api.records import StoredBatch
from node.http.budget.slices import SLICE_BYTES
from node.http.messages import render as render_module
from node.http.messages.render import CUT_BYTES, Cut, Room, render
from node.http.text import pieces as pieces_module
from node.http.text.pieces import LongText, encoded_bytes

LONG = CUT_BYTES - 1000
VALUES = [bytes([row]) * size for row, size in enumerate([LONG, 10, 900, LONG, 3 * LONG, 0, 5])]


@pytest.mark.parametrize(("first", "last"), [(0, 7), (2, 5), (4, 5)])
async def test_values_of_several_mib_are_copied_one_mib_or_one_value_at_once(
    first: int, last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied, pauses = list[list[bytes]](), list[int]()
    real = RecordBatch.rows

    def rows(batch: RecordBatch, first: int, last: int, plain: bytes) -> Rows:
        found = real(batch, first, last, plain)
        copied.append(found.values)
        return found

    async def pause() -> float:
        pauses.append(len(copied))
        return 0.0

    monkeypatch.setattr(RecordBatch, "rows", rows)
    monkeypatch.setattr(render_module, "pause", pause)
    keys = [b"k%d" % row if row % 2 else None for row in range(len(VALUES))]
    ids = [f"id{row}" for row in range(len(VALUES))]
    batch = RecordBatch.parse(encode_columns(VALUES, keys, message_ids=ids, codec="zstd"))

    stored = StoredBatch(Offset(100), 0, batch.buffer)
    chunks = await render(Cut(stored, batch, first, last), Room(1 << 30))

    assert [value for some in copied for value in some] == VALUES[first:last]
    assert all(len(some) == 1 or sum(map(len, some)) <= CUT_BYTES for some in copied)
    assert set(range(1, len(copied))) <= set(pauses), "others run between two of them"
    views = [view for chunk in chunks for view in chunk.rows]
    assert [view.offset for view in views] == list(range(100 + first, 100 + last))
    shown = [view.value.blob if isinstance(view.value, LongText) else view.value for view in views]
    assert [one if isinstance(one, bytes) else one.encode() for one in shown] == VALUES[first:last]
    told = [None if key is None else key.decode() for key in keys]
    assert [view.key for view in views] == told[first:last]
    assert [view.message_id for view in views] == ids[first:last]


async def test_long_values_are_measured_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = list[int]()
    real = encoded_bytes

    def counted(blob: bytes) -> int:
        looked_at.append(len(blob))
        return real(blob)

    monkeypatch.setattr(render_module, "encoded_bytes", counted)
    monkeypatch.setattr(pieces_module, "encoded_bytes", counted)
    size, room = CUT_BYTES, Room(16 * CUT_BYTES)
    batch = RecordBatch.parse(encode_columns([bytes(size)] * 5, codec="zstd"))

    chunks = await render(Cut(StoredBatch(Offset(0), 0, batch.buffer), batch, 0, 5), room)

    assert sum(len(chunk.rows) for chunk in chunks) == 2, "of six times their size there are two"
    assert sum(looked_at) >= 3 * size
    assert max(looked_at) <= SLICE_BYTES

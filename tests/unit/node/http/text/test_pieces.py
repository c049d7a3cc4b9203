"""JSON in slices: it is what msgspec makes at once, and no slice is larger than its bound."""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node.http.text import pieces
from node.http.text.pieces import (
    SLICE_BYTES,
    Chunk,
    Chunks,
    LongText,
    Pieces,
    chunked,
    encoded_bytes,
    weigh,
)


class Row(msgspec.Struct, omit_defaults=True):
    id: int
    value: str | None
    key: str | None = None
    value_encoding: str | None = None
    tags: dict[str, str] = {}


class Page(msgspec.Struct):
    name: str
    rows: list[Row]
    following: int | msgspec.UnsetType = msgspec.UNSET
    more: dict[str, list[int]] | None = None


class Spy:
    """Encodes, and remembers the largest value that it was given."""

    def __init__(self) -> None:
        self.largest = 0

    def encode(self, value: Any) -> bytes:
        self.largest = max(self.largest, weigh(value, 1 << 40))
        return msgspec.json.encode(value)


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    spy = Spy()
    monkeypatch.setattr(pieces, "_encoder", spy)
    return spy


async def encoded(value: Any) -> bytes:
    made = Pieces()
    await made.add(value)
    parts = made.finish()
    text = b"".join(
        b"".join(part.slices()) if isinstance(part, LongText) else part for part in parts
    )
    assert len(text) == made.size
    return text


PAGES = {
    "one small row": Page("p", [Row(1, "a")]),
    "many rows": Page("p", [Row(n, f'"{n}"' * 20, "k") for n in range(3000)], 7),
    "a long text": Page("p", [Row(1, "é\x00\n" * 100_000), Row(2, None)], 7),
    "many fields": Page("p", [Row(1, "v", tags={f"t{n}": "x" * 900 for n in range(200)})]),
    "many numbers": Page("p", [], more={"a": list(range(50_000)), "b": []}),
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
async def test_slices_come_to_what_is_encoded_at_once(page: Page, spy: Spy) -> None:
    assert await encoded(page) == msgspec.json.encode(page)

    assert spy.largest <= SLICE_BYTES + 1000


async def test_a_long_value_is_shown_as_text(spy: Spy) -> None:
    blob = ("\x00" * SLICE_BYTES + "é€😀" * SLICE_BYTES).encode()
    page = Page("p", [Row(1, cast("str", LongText(blob)), "k")])

    assert msgspec.json.decode(await encoded(page))["rows"] == [
        {"id": 1, "value": blob.decode(), "key": "k"}
    ]
    assert spy.largest <= 4 * SLICE_BYTES


async def test_a_long_value_that_is_no_text_is_shown_as_base64() -> None:
    blob = b"a" * (2 * SLICE_BYTES) + b"\xff"
    page = Page("p", [Row(1, cast("str", LongText(blob)))])

    (row,) = msgspec.json.decode(await encoded(page))["rows"]

    assert base64.b64decode(row["value"]) == blob
    assert row["value_encoding"] == "base64"


async def test_what_was_weighed_beforehand_is_an_array_like_any_other(spy: Spy) -> None:
    rows = [Row(n, "v" * 900) for n in range(200)]
    chunks = [Chunk(rows[at : at + 50], 50_000) for at in range(0, 200, 50)]
    long = cast(
        "list[Row]", Chunks([Chunk([], 0), *chunks, Chunk([Row(200, "w" * 100_000)], 10**5)])
    )
    none = cast("list[Row]", Chunks([]))

    assert await encoded(Page("p", long, 7)) == msgspec.json.encode(
        Page("p", [*rows, Row(200, "w" * 100_000)], 7)
    )
    assert await encoded(Page("p", none)) == msgspec.json.encode(Page("p", []))
    assert spy.largest <= SLICE_BYTES


@given(st.lists(st.integers(0, SLICE_BYTES + 9), max_size=40))
@settings(max_examples=300, deadline=None)
def test_rows_that_were_weighed_are_cut_into_slices(weights: list[int]) -> None:
    rows = list(range(len(weights)))

    found = chunked(rows, weights)

    if sum(weights) <= SLICE_BYTES:
        assert found is rows
        return
    chunks = cast("Chunks", found).chunks
    assert [row for chunk in chunks for row in chunk.rows] == rows
    assert sum(chunk.weight for chunk in chunks) == sum(weights)
    for chunk in chunks:
        assert chunk.weight <= SLICE_BYTES or len(chunk.rows) == 1
    for one, another in pairwise(chunks):
        assert one.weight + weights[another.rows[0]] > SLICE_BYTES


def test_only_what_is_told_weighs_something() -> None:
    row = Row(1, "value")
    assert weigh(row, 999) == weigh([1, "value", {}], 999)
    assert weigh(msgspec.UNSET, 999) == weigh([], 999) == weigh({}, 999)
    assert weigh([msgspec.UNSET, None, row], 999) == weigh([row], 999)
    assert weigh(["x" * 2000, "y"], 999) > 999


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_sizes_are_told_as_they_will_be_encoded(text: str) -> None:
    assert encoded_bytes(text.encode()) == len(msgspec.json.encode(text)) - 2

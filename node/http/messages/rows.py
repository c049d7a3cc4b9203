"""Reads the messages of a publish in slices: counted and charged before more are decoded."""

from __future__ import annotations

from collections.abc import Iterator

from goqueue.wire.errors import BadRequest, GoQueueError, OverBudget, PayloadTooLarge
from node.http.budget.memory import Held, Reserved
from node.http.budget.slices import SLICE_BYTES, pause
from node.http.messages.columns import (
    Rows,
    decode_rows,
    decode_single,
    decode_some,
    decode_wide,
    identify_rows,
)
from node.http.text import json
from node.http.text.elements import Elements, reach_of
from node.http.text.errors import decoded_too_large

ROW_BYTES = 256
"""What the objects of one message come to beside its bytes; likewise of one header."""
ERROR_BYTES = 1024
"""What is told of a message that is unusable."""
COPIES = 2
"""Of the bytes: the columns, and the batches that are made of them."""

COUNTED_BYTES = 1 << 18
"""Text in which names are counted at once: less than a millisecond."""
SEARCHED_BYTES = 1 << 14
"""Of it in one search: in longer text `bytes.count` searches another way, up to fifteen times
slower where the text is full of what the name begins or ends with."""
FREED_ROWS = 1024
"""What was told of unusable messages and is freed at once: less than a millisecond."""
VALUE, HEADERS = b'"value"', b'"headers"'


async def read_rows(
    body: bytes, base64_values: bool, messages_max: int, held: Held | Reserved
) -> Rows:
    """As `decode_rows`, without keeping the loop for longer than a slice.

    Raises BadRequest, PayloadTooLarge, and OverBudget where there is no room for the messages.
    """
    try:
        if len(body) <= SLICE_BYTES and len(body) <= reach_of(body):
            rows = decode_rows(body, base64_values, messages_max)
            held.grow(weight_of(rows, len(body)))
            return rows
        rows = Rows([])
        await pause()
        try:
            for _ in _decode(body, base64_values, messages_max, held, rows):
                await pause()
        except GoQueueError:
            while rows.errors:
                _free_some(rows)
                await pause()
            raise
        return rows
    except OverBudget as error:
        raise decoded_too_large(error) from None


def _free_some(rows: Rows) -> None:
    """Of a refused body: a hundred thousand errors are freed in twenty milliseconds."""
    for _ in range(min(FREED_ROWS, len(rows.errors))):
        rows.errors.popitem()


async def rows_bytes(body: bytes, messages_max: int) -> int:
    """What its messages will take in memory, by the names in the text: about right of usual ones,
    and no more than a first charge of others."""
    rows = _named_within(body, 0)
    for start in range(COUNTED_BYTES, len(body), COUNTED_BYTES):
        if rows >= messages_max:
            break
        await pause()
        rows += _named_within(body, start)
    return COPIES * len(body) + ROW_BYTES * min(max(rows, 1), messages_max)


def _named_within(body: bytes, start: int) -> int:
    values = headers = 0
    for at in range(start, min(start + COUNTED_BYTES, len(body)), SEARCHED_BYTES):
        values += body.count(VALUE, at, at + SEARCHED_BYTES + len(VALUE) - 1)
        headers += body.count(HEADERS, at, at + SEARCHED_BYTES + len(HEADERS) - 1)
    return values + 2 * headers


def weight_of(rows: Rows, text_bytes: int) -> int:
    """What they take in memory, about."""
    headers = sum(map(len, rows.headers)) if rows.headers else 0
    objects = ROW_BYTES * (len(rows) + headers) + ERROR_BYTES * len(rows.errors)
    return COPIES * text_bytes + objects


def _decode(
    body: bytes, base64_values: bool, messages_max: int, held: Held | Reserved, rows: Rows
) -> Iterator[None]:
    """Into `rows`; yields after each slice."""
    elements = Elements(body, b"messages")
    for piece in elements.walk():
        if piece is not None:
            text = body[piece.start : piece.end]
            if len(text) <= SLICE_BYTES:
                steps = decode_some(b"[%s]" % text, base64_values)
            else:
                yield from _require_utf8(text)
                steps = iter([decode_wide(text, base64_values)])
            held.grow(COPIES * len(text))
            for some in steps:
                if len(rows) + len(some) > messages_max:
                    raise PayloadTooLarge(f"more than {messages_max} messages", limit=messages_max)
                held.grow(weight_of(some, 0))
                rows.extend(some)
                yield
        yield
    if elements.found:
        identify_rows(rows, elements.rest)
    else:
        yield from _require_utf8(body)
        held.grow(COPIES * len(body))
        single = decode_single(body, base64_values)
        rows.extend(single)
        rows.single, rows.sequence = True, single.sequence
        rows.producer_id, rows.producer_epoch = single.producer_id, single.producer_epoch
    if not len(rows):
        raise BadRequest("messages must not be empty")


def _require_utf8(text: bytes) -> Iterator[None]:
    """Raises BadRequest."""
    if text.isascii():
        return
    start = 0
    while start < len(text):
        end = start + SLICE_BYTES
        while end < len(text) and text[end] & 0xC0 == 0x80 and end < start + SLICE_BYTES + 4:
            end += 1  # within a character
        json.require_utf8(text[start:end])
        start = end
        yield

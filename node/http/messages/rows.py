"""Reads the messages of a publish in slices: counted and charged before more are decoded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from goqueue.wire.errors import BadRequest, GoQueueError, OverBudget, PayloadTooLarge
from node.http.budget.memory import Held, Reserved
from node.http.budget.slices import SLICE_BYTES, pause
from node.http.messages.columns import (
    Rows,
    columns_of,
    decode_rows,
    decode_single,
    decode_some,
    decode_typed,
    decode_wide,
    identify_rows,
)
from node.http.messages.fields import Message
from node.http.text import json
from node.http.text.elements import COMMAS, Elements, reach_of
from node.http.text.errors import decoded_too_large

ROW_BYTES = 256
"""What the objects of one message come to beside its bytes; likewise of one header."""
ERROR_BYTES = 1024
"""What is told of a message that is unusable."""
COPIES = 2
"""Of the bytes: the columns, and the batches that are made of them."""

SAMPLES, SAMPLE_BYTES = 8, 1024
"""Text in which names are counted; a shorter one is counted whole."""
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
        if len(body) <= SLICE_BYTES and len(body) <= reach_of(body, signs=COMMAS):
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


def rows_bytes(body: bytes, messages_max: int) -> int:
    """What its messages will take in memory, by the names in some of the text: about right of usual
    ones, and no more than a first charge of others."""
    size, named, looked = len(body), 0, 0
    for start in range(0, size, max(SAMPLE_BYTES, size // SAMPLES)):
        end = min(start + SAMPLE_BYTES, size)
        named += body.count(VALUE, start, end + len(VALUE) - 1)
        named += 2 * body.count(HEADERS, start, end + len(HEADERS) - 1)
        looked += end - start
    rows = named * size // max(looked, 1)
    return COPIES * size + ROW_BYTES * min(max(rows, 1), messages_max)


def weight_of(rows: Rows, text_bytes: int) -> int:
    """What they take in memory, about."""
    headers = sum(map(len, rows.headers)) if rows.headers else 0
    objects = ROW_BYTES * (len(rows) + headers) + ERROR_BYTES * len(rows.errors)
    return COPIES * text_bytes + objects


def _decode(
    body: bytes, base64_values: bool, messages_max: int, held: Held | Reserved, rows: Rows
) -> Iterator[None]:
    """Into `rows`; yields after each slice."""
    decode = partial(decode_typed, base64_values=base64_values)
    elements = Elements[Rows | list[Message]](body, b"messages", decode)
    for piece in elements.walk():
        if piece is None:
            yield
            continue
        size = piece.end - piece.start
        if piece.decoded is not None:
            steps = columns_of(piece.decoded, base64_values)
        elif size <= SLICE_BYTES:
            steps = decode_some(b"[%s]" % body[piece.start : piece.end], base64_values)
        else:
            text = body[piece.start : piece.end]
            yield from _require_utf8(text)
            steps = iter([decode_wide(text, base64_values)])
        held.grow(COPIES * size)
        for some in steps:
            if len(rows) + len(some) > messages_max:
                raise PayloadTooLarge(f"more than {messages_max} messages", limit=messages_max)
            held.grow(weight_of(some, 0))
            rows.extend(some)
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

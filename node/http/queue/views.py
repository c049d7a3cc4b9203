"""Messages of the queue as answers show them: received, peeked, delayed or dead."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from goqueue.wire.batch import LANES
from node.api.queue import QueuedMessage
from node.api.times import format_time
from node.http.budget.memory import Reserved
from node.http.messages.render import ROW_BYTES, measured, text_or_base64

REDRIVES_HEADER = "goqueue-redrives"
"""Shown on messages that were redriven: consumers may tell a loop by it. It is never stored."""


class QueuedView(msgspec.Struct, omit_defaults=True, gc=False):
    """One message of the queue. `receipt` (also as `receipt_handle`) settles it; `attempt` counts
    deliveries from 1, `last_reason` says why the one before failed."""

    id: str
    topic: str
    partition: int
    offset: int
    timestamp: str
    value: str | None
    priority: str
    key: str | None = None
    headers: dict[str, str] | None = None
    message_id: str | None = None
    value_encoding: str | None = None
    key_encoding: str | None = None
    header_encodings: dict[str, str] | None = None
    receipt: str | None = None
    receipt_handle: str | None = None
    attempt: int | None = None
    last_reason: str | None = None
    redrives: int | None = None
    visible_until: str | None = None
    deliver_at: str | None = None
    expires_at: str | None = None


class Texts(msgspec.Struct):
    """A message's bytes as text, or as base64 with an encoding that says so."""

    value: str | None
    value_encoding: str | None
    key: str | None
    key_encoding: str | None
    headers: dict[str, str] | None
    header_encodings: dict[str, str] | None


def texts_of(message: QueuedMessage) -> Texts:
    value, value_encoding = text_or_base64(message.value)
    texts = Texts(None if message.is_null else value, value_encoding, None, None, None, None)
    if message.key is not None:
        texts.key, texts.key_encoding = text_or_base64(message.key)
    if message.headers or message.redrives:
        shown = {name: text_or_base64(blob) for name, blob in message.headers}
        texts.headers = {name: text for name, (text, _) in shown.items()}
        if message.redrives:
            texts.headers[REDRIVES_HEADER] = str(message.redrives)
        encoded = {name: encoding for name, (_, encoding) in shown.items() if encoding}
        texts.header_encodings = encoded or None
    return texts


async def fitting(messages: Sequence[QueuedMessage], weights: Sequence[int], bytes_max: int) -> int:
    """How many of them, from the first on, fit into an answer of so many bytes as they will be
    encoded; at least one."""
    if 6 * sum(weights) <= bytes_max:
        return len(messages)
    left = bytes_max
    for count, (message, weight) in enumerate(zip(messages, weights, strict=True)):
        left -= 6 * (weight - len(message.value)) + await measured(message.value)
        if left < 0 and count:
            return count
    return len(messages)


async def fitting_into(room: Reserved, messages: Sequence[QueuedMessage], bytes_max: int) -> int:
    """As `fitting`, of messages that are charged to this room. Raises OverBudget."""
    weights = weights_of(messages)
    room.grow(sum(weights))
    return await fitting(messages, weights, bytes_max)


def bytes_of(message: QueuedMessage) -> int:
    """Of its key, value and headers: what a stream's credit counts."""
    size = len(message.value) + len(message.key or b"")
    if message.headers:
        size += sum(len(name) + len(value) for name, value in message.headers)
    return size


def weights_of(messages: Iterable[QueuedMessage]) -> list[int]:
    """What each takes in memory, about."""
    return [ROW_BYTES + bytes_of(message) for message in messages]


def held_bytes(messages: Iterable[QueuedMessage]) -> int:
    """Likewise, of all of them."""
    return sum(weights_of(messages))


def queued_views(messages: Iterable[QueuedMessage]) -> list[QueuedView]:
    """In order; equal times are written once."""
    times: dict[int, str] = {}
    return [_view(message, times) for message in messages]


def _view(message: QueuedMessage, times: dict[int, str]) -> QueuedView:
    texts = texts_of(message)
    topic, partition, offset = message.topic, message.partition, message.offset
    view = QueuedView(
        f"{topic}:{partition}:{offset}",
        topic,
        partition,
        offset,
        _time(message.time_ms, times),
        texts.value,
        LANES[message.lane],
        texts.key,
        texts.headers,
        message.message_id,
        texts.value_encoding,
        texts.key_encoding,
        texts.header_encodings,
    )
    if message.receipt:
        view.receipt = view.receipt_handle = message.receipt
        view.attempt = message.attempt
        view.visible_until = _time(message.deadline_ms, times) if message.deadline_ms else None
    elif message.attempt:
        view.attempt = message.attempt
    view.last_reason = message.reason or None
    view.redrives = message.redrives or None
    if message.deliver_at_ms is not None:
        view.deliver_at = _time(message.deliver_at_ms, times)
    if message.expires_at_ms is not None:
        view.expires_at = _time(message.expires_at_ms, times)
    return view


def _time(time_ms: int, times: dict[int, str]) -> str:
    text = times.get(time_ms)
    if text is None:
        text = times[time_ms] = format_time(time_ms)
    return text

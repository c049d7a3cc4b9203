"""A message of the library as answers and pipes show it."""

from __future__ import annotations

import base64

from cli.output.formats import time_of
from cli.run.session import Json
from goqueue.models.messages import Message
from goqueue.models.queued import Leased

TIME_MS_MAX = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z, the last moment that such a text can tell."""


def message_row(message: Leased) -> Json:
    """A message of a group, with the fields of an answer over HTTP, so that `produce` takes it
    back."""
    held: Json = {
        "receipt": message.receipt,
        "attempt": message.attempt,
        "last_reason": message.last_reason or None,
        "redrives": message.redrives or None,
        "visible_until": time_of(message.visible_until_ms) if message.visible_until_ms else None,
    }
    found = {name: field for name, field in held.items() if field is not None}
    return {"id": message.id, **stored_row(message), **found}


def stored_row(message: Message) -> Json:
    """A message of a topic, as reading it over HTTP answers it."""
    value, value_encoding = _text(message.value)
    row: Json = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": time_of(message.timestamp_ms),
        "value": value,
        "priority": message.priority,
        "key": None,
        "headers": None,
        "message_id": message.message_id,
        "deliver_at": _time(message.deliver_at_ms),
        "expires_at": _time(message.expires_at_ms),
        "value_encoding": value_encoding,
    }
    if message.key is not None:
        row["key"], row["key_encoding"] = _text(message.key)
    if message.headers:
        headers = {name: _text(blob) for name, blob in message.headers}
        row["headers"] = {name: text for name, (text, _) in headers.items()}
        encodings = {name: encoding for name, (_, encoding) in headers.items() if encoding}
        row["header_encodings"] = encodings or None
    found = {name: field for name, field in row.items() if field is not None}
    return found if not message.is_null else {**found, "value": None}


def _text(blob: bytes) -> tuple[str, str | None]:
    try:
        return blob.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(blob).decode("ascii"), "base64"


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else time_of(min(time_ms, TIME_MS_MAX))

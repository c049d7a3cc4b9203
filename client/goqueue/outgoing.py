"""Messages on their way out: as columns for a batch, or as the JSON that a server also takes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from goqueue.errors import BadRequest
from goqueue.models import OutgoingMessage
from goqueue.wire.encoding import encode_columns
from goqueue.wire.layout import LANE_NORMAL, LANES
from goqueue.wire.records import Headers

Text = bytes | str


def to_bytes(value: Text) -> bytes:
    """Text as UTF-8, bytes as they are. Raises BadRequest on anything else."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise BadRequest(f"a value or key is bytes or str, not {type(value).__name__}")


def to_headers(headers: Mapping[str, Text] | None) -> Headers:
    return tuple((name, to_bytes(value)) for name, value in headers.items()) if headers else ()


def to_lane(lane: int | str) -> int:
    """A lane's number, from its number or name. Raises BadRequest."""
    if isinstance(lane, str):
        if lane not in LANES:
            raise BadRequest(f"unknown lane {lane!r}: want one of {', '.join(LANES)}")
        return LANES.index(lane)
    if not 0 <= lane < len(LANES):
        raise BadRequest(f"a lane is a number from 0 to {len(LANES) - 1}, or a name")
    return lane


def encode_messages(
    messages: Sequence[OutgoingMessage], now_ms: int, codec: str, level: int
) -> bytes:
    """One record batch of these messages, without identity."""
    return encode_columns(
        [to_bytes(message.value) for message in messages],
        [None if message.key is None else to_bytes(message.key) for message in messages],
        timestamps_ms=now_ms,
        lanes=[message.lane for message in messages],
        headers=[to_headers(message.headers) for message in messages],
        message_ids=[message.message_id for message in messages],
        codec=codec,
        level=level,
    )


def json_message(message: OutgoingMessage) -> dict[str, Any]:
    """The message as a server takes it in JSON.

    Raises BadRequest where JSON can't say it: an empty key, or a header that is not UTF-8.
    """
    body: dict[str, Any] = {}
    _put(body, "value", to_bytes(message.value))
    if message.key is not None:
        if not message.key:
            raise BadRequest("an empty key can't be told in JSON")
        _put(body, "key", to_bytes(message.key))
    if message.headers:
        try:
            body["headers"] = {
                name: to_bytes(value).decode() for name, value in message.headers.items()
            }
        except UnicodeDecodeError:
            raise BadRequest("a header that is not UTF-8 can't be told in JSON") from None
    if message.lane != LANE_NORMAL:
        body["priority"] = LANES[message.lane]
    if message.partition is not None:
        body["partition"] = message.partition
    if message.message_id is not None:
        body["message_id"] = message.message_id
    return body


def _put(body: dict[str, Any], name: str, value: bytes) -> None:
    try:
        body[name] = value.decode()
    except UnicodeDecodeError:
        body[name] = base64.b64encode(value).decode("ascii")
        body[f"{name}_encoding"] = "base64"

"""Messages on their way out: as columns for a batch, or as the JSON that a server also takes."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from goqueue.models.messages import OutgoingMessage
from goqueue.models.options import did_you_mean
from goqueue.models.times import Duration, Time, duration_ms, moment_ms
from goqueue.wire.encoding import encode_columns
from goqueue.wire.errors import BadRequest
from goqueue.wire.layout import LANE_NORMAL, LANES, RELATIVE_BELOW
from goqueue.wire.records import Headers

Text = bytes | str


def to_bytes(value: Text) -> bytes:
    """Text as UTF-8, bytes as they are. Raises BadRequest on anything else."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise BadRequest(f"a value or key is bytes or str, not {type(value).__name__}")


def to_value(value: Text | None) -> bytes | None:
    """As `to_bytes`; None, a null value, stays one."""
    return None if value is None else to_bytes(value)


def to_headers(headers: Mapping[str, Text] | None) -> Headers:
    return tuple((name, to_bytes(value)) for name, value in headers.items()) if headers else ()


def to_lane(lane: int | str) -> int:
    """A lane's number, from its number or name. Raises BadRequest."""
    if isinstance(lane, str):
        if lane not in LANES:
            wanted = did_you_mean(lane, LANES) or f": want one of {', '.join(LANES)}"
            raise BadRequest(f"unknown priority {lane!r}{wanted}")
        return LANES.index(lane)
    if not 0 <= lane < len(LANES):
        raise BadRequest(f"a priority is a number from 0 to {len(LANES) - 1}, or a name")
    return lane


def to_deliver_at(delay: Duration | None, deliver_at: Time | None) -> int | None:
    """The cell of a batch's deliver-at column: a delay stays relative, so that it counts from the
    moment the message is stored, whatever this machine's clock says. Raises BadRequest."""
    if deliver_at is None:
        return None if delay is None else duration_ms(delay, "delay") or None
    if delay is not None:
        raise BadRequest("delay and deliver_at exclude each other")
    return moment_ms(deliver_at, "deliver_at")


def to_expiry(ttl: Duration | None, due: int | None) -> int | None:
    """The cell of a batch's expires-at column, relative as well, beside the deliver-at cell `due`.
    Raises BadRequest."""
    if ttl is None:
        return None
    expiry = duration_ms(ttl, "ttl")
    if expiry == 0:
        raise BadRequest("a ttl of nothing: the message would never be received")
    if due is not None and expiry <= due < RELATIVE_BELOW:
        raise BadRequest("ttl: over before the delay is: the message would never be received")
    return expiry


def encode_messages(
    messages: Sequence[OutgoingMessage],
    published_ms: Sequence[int] | int,
    codec: str,
    level: int,
) -> bytes:
    """One record batch of these messages, without identity."""
    due = [to_deliver_at(message.delay, message.deliver_at) for message in messages]
    return encode_columns(
        [to_value(message.value) for message in messages],
        [None if message.key is None else to_bytes(message.key) for message in messages],
        timestamps_ms=published_ms,
        lanes=[to_lane(message.priority) for message in messages],
        headers=[to_headers(message.headers) for message in messages],
        deliver_at_ms=due,
        expires_at_ms=[
            to_expiry(message.ttl, at) for message, at in zip(messages, due, strict=True)
        ],
        message_ids=[message.message_id for message in messages],
        codec=codec,
        level=level,
    )


def json_message(message: OutgoingMessage) -> dict[str, Any]:
    """The message as a server takes it in JSON.

    Raises BadRequest where JSON can't say it: an empty key, or a header that is not UTF-8.
    """
    body: dict[str, Any] = {}
    if message.value is None:
        body["value"] = None
    else:
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
    lane = to_lane(message.priority)
    if lane != LANE_NORMAL:
        body["priority"] = LANES[lane]
    if message.partition is not None:
        body["partition"] = message.partition
    if message.message_id is not None:
        body["message_id"] = message.message_id
    due = to_deliver_at(message.delay, message.deliver_at)
    if due is not None:
        body.update({"delay": f"{due}ms"} if due < RELATIVE_BELOW else {"deliver_at": due})
    if (expiry := to_expiry(message.ttl, due)) is not None:
        body["ttl"] = f"{expiry}ms"
    return body


def _put(body: dict[str, Any], name: str, value: bytes) -> None:
    try:
        body[name] = value.decode()
    except UnicodeDecodeError:
        body[name] = base64.b64encode(value).decode("ascii")
        body[f"{name}_encoding"] = "base64"

"""The fields of one message as publishers write them, each checked and turned into what is stored.

Every function raises `BadMessage` (or a `BadRequest` of the field's own) for its message alone.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec import UNSET, Raw, UnsetType

from goqueue.wire.batch import DEFAULT, LANE_NORMAL, LANES, Headers
from goqueue.wire.layout import RELATIVE_BELOW
from node.api.times import parse_duration_ms, parse_time_ms
from node.http.text import json
from node.http.text.errors import BadMessage
from node.http.text.known_fields import Body

NUMBER_BYTES_MAX = 1024
_LANE_OF = {name: lane for lane, name in enumerate(LANES)}
_TEXT = msgspec.json.Decoder(str)


class Message(Body, gc=False):
    """One message of a publish. Fields that are null or missing are not given."""

    value: Raw | UnsetType = UNSET
    payload: Raw | UnsetType = UNSET
    value_encoding: str | None = None
    key: str | None = None
    key_encoding: str | None = None
    partition: int | None = None
    headers: dict[str, str] | None = None
    priority: str | int | None = None
    message_id: str | None = None
    sequence: int | None = None
    delay: str | int | float | None = None
    deliverAt: str | int | None = None
    deliver_at: str | int | None = None
    ttl: str | int | float | None = None


def is_null(message: Message) -> bool:
    """Whether the value is said to be null, which is not the same as saying nothing of it."""
    return message.value is not UNSET and bytes(message.value) == b"null"


def value_of(message: Message, base64_values: bool, *, is_shallow: bool = False) -> bytes:
    """`is_shallow`: somebody has looked how deep it is nested."""
    given = message.payload if message.value is UNSET else message.value
    raw = b"" if given is UNSET else bytes(given)
    encoding = (message.value_encoding or ("base64" if base64_values else "")).lower()
    if encoding not in ("", "base64", "utf-8", "utf8", "text", "json"):
        raise BadMessage(f"unknown value_encoding {encoding[:40]!r}: want utf-8 or base64")
    if not raw or raw == b"null":
        raise BadMessage("value is required")
    if raw[:1] == b'"':
        text = json.decode_text(raw, _TEXT)
        return _from_base64(text, "value") if encoding == "base64" else text.encode()
    if encoding == "base64" and message.value_encoding:
        raise BadMessage("a base64 value must be a string")
    if raw[:1] in b"{[" and not is_shallow and json.depth_exceeds(raw, json.DEPTH_MAX):
        raise BadMessage(f"value nested deeper than {json.DEPTH_MAX}")
    if raw[:1] in b"-0123456789" and len(raw) > NUMBER_BYTES_MAX:
        raise BadMessage(f"a number of {len(raw)} digits: at most {NUMBER_BYTES_MAX}")
    return raw


def key_of(message: Message) -> bytes | None:
    if not message.key:
        return None
    if message.key_encoding in (None, "", "utf-8", "utf8"):
        return message.key.encode()
    if message.key_encoding != "base64":
        raise BadMessage(f"unknown key_encoding {message.key_encoding[:40]!r}")
    return _from_base64(message.key, "key") or None


def _from_base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadMessage(f"{what} is not base64: {error}") from None


def headers_of(message: Message) -> Headers:
    if not message.headers:
        return ()
    if "" in message.headers:
        raise BadMessage("a header without a name")
    return tuple((name, text.encode()) for name, text in message.headers.items())


def lane_of(priority: str | int | None) -> int | None:
    if priority is None or priority == "":
        return None
    if isinstance(priority, int):
        lane = priority if 0 <= priority < len(LANES) else None
    else:
        lane = _LANE_OF.get(priority.lower())
    if lane is None:
        raise BadMessage(f"unknown priority {str(priority)[:40]!r}: want one of {', '.join(LANES)}")
    return lane


def id_of(message: Message) -> str | None:
    if message.message_id is not None:
        check_id(message.message_id)
    return message.message_id


def check_id(message_id: str) -> None:
    try:
        size = len(message_id.encode())
    except UnicodeEncodeError:
        raise BadMessage("message_id is not UTF-8") from None
    if not 0 < size <= DEFAULT.message_id_bytes_max:
        raise BadMessage(f"message_id of {size} bytes: 1 to {DEFAULT.message_id_bytes_max}")


def deliver_at_of(message: Message) -> int | None:
    """The deliver-at cell: a delay as it is, to be counted from log time; or a moment.

    None for at once. A moment so long past that its number would read as a delay is at once too.
    """
    delay = _given(message.delay)
    moments = [m for m in (_given(message.deliverAt), _given(message.deliver_at)) if m is not None]
    if delay is not None:
        if moments:
            raise BadMessage("delay and deliverAt exclude each other")
        return parse_duration_ms(delay, "delay") or None
    if not moments:
        return None
    times_ms = {parse_time_ms(moment, "deliverAt") for moment in moments}
    if len(times_ms) > 1:
        raise BadMessage("deliverAt and deliver_at differ")
    time_ms = times_ms.pop()
    return time_ms if time_ms >= RELATIVE_BELOW else None


def expires_at_of(message: Message) -> int | None:
    """The expires-at cell: the time to live, to be counted from log time; None for no end."""
    ttl = _given(message.ttl)
    return None if ttl is None else parse_duration_ms(ttl, "ttl") or None


def _given(cell: str | float | None) -> str | None:
    """A field's text; GoQueue's clients also send null or nothing at all for what they leave."""
    return None if cell is None or cell == "" else str(cell)


def lane_name(lane: int | None) -> str:
    return LANES[LANE_NORMAL if lane is None else lane]

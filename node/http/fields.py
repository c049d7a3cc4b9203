"""The fields of one message as publishers write them, each checked and turned into what is stored.

Every function raises `BadMessage` (or a `BadRequest` of the field's own) for its message alone.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goqueue.wire.batch import DEFAULT, LANE_NORMAL, LANES, Headers
from node.http import json
from node.http.errors import BadMessage, NotSupported
from node.http.times import parse_duration_ms, parse_time_ms

NUMBER_BYTES_MAX = 1024
_LANE_OF = {name: lane for lane, name in enumerate(LANES)}
_TEXT = msgspec.json.Decoder(str)


class Message(Struct, gc=False):
    """One message of a publish. Fields that are null or missing are not given; others ignored."""

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


def value_of(message: Message, base64_values: bool) -> bytes:
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
    if raw[:1] in b"{[" and json.depth_exceeds(raw, json.DEPTH_MAX):
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


def check_id(message: Message) -> None:
    if message.message_id is None:
        return
    size = len(message.message_id.encode())
    if not 0 < size <= DEFAULT.message_id_bytes_max:
        raise BadMessage(f"message_id of {size} bytes: 1 to {DEFAULT.message_id_bytes_max}")


def refuse_unsupported(message: Message) -> None:
    """Delays and expiry would be silently lost if they were taken; the form is checked first."""
    for name, text in (("delay", message.delay), ("ttl", message.ttl)):
        if text not in (None, "", 0, "0", "0s") and parse_duration_ms(str(text), name) >= 0:
            raise NotSupported(f"{name} is not supported by this version")
    for moment in (message.deliverAt, message.deliver_at):
        if moment not in (None, "") and parse_time_ms(str(moment), "deliverAt") >= 0:
            raise NotSupported("deliverAt is not supported by this version")


def lane_name(lane: int | None) -> str:
    return LANES[LANE_NORMAL if lane is None else lane]

"""Messages as publishers write them in JSON, turned into columns.

Most bodies hold nothing but values, keys and partitions: those decode straight into `_Plain`.
Anything else is decoded with every field known, and if a message has a field of the wrong type,
each message by itself, so that one bad message costs its neighbours nothing.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goqueue.wire.batch import DEFAULT, LANE_NORMAL, LANES, Headers
from goqueue.wire.errors import BadRequest, GoQueueError, PayloadTooLarge
from node.http import json
from node.http.errors import BadMessage, NotSupported
from node.http.times import parse_duration_ms, parse_time_ms

NUMBER_BYTES_MAX = 1024

T = TypeVar("T")

_HEADER_FRAME_BYTES = 6
_LANE_OF = {name: lane for lane, name in enumerate(LANES)}


class _Plain(Struct, forbid_unknown_fields=True, gc=False):
    value: str
    key: str | None = None
    partition: int | None = None


class _PlainBody(Struct, forbid_unknown_fields=True):
    messages: list[_Plain]


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


class PublishBody(Message):
    """Either `messages`, or one message's own fields; the producer's identity beside them."""

    messages: list[Message] | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    epoch: int | None = None


class _LooseBody(Struct):
    messages: list[Raw]
    producer_id: int | None = None
    producer_epoch: int | None = None
    epoch: int | None = None
    sequence: int | None = None


_PLAIN = msgspec.json.Decoder(_PlainBody)
_FULL = msgspec.json.Decoder(PublishBody)
_LOOSE = msgspec.json.Decoder(_LooseBody)
_ONE = msgspec.json.Decoder(Message)
_TEXT = msgspec.json.Decoder(str)


@dataclass(slots=True)
class Rows:
    """A publish as columns; an optional column that no message uses is None.

    A row with an error keeps its place in every column. `sequence` is the request's own, `single`
    says that the body was one message by itself.
    """

    values: list[bytes]
    keys: list[bytes | None] | None = None
    partitions: list[int | None] | None = None
    headers: list[Headers] | None = None
    lanes: list[int | None] | None = None
    message_ids: list[str | None] | None = None
    sequences: list[int | None] | None = None
    errors: dict[int, GoQueueError] = field(default_factory=dict[int, GoQueueError])
    producer_id: int = 0
    producer_epoch: int = 0
    sequence: int | None = None
    single: bool = False

    def __len__(self) -> int:
        return len(self.values)


def decode_rows(body: bytes, base64_values: bool, messages_max: int) -> Rows:
    """The messages of a publish body, unusable ones with their error. Raises BadRequest."""
    json.require_utf8(body)
    rows = (None if base64_values else _decode_plain(body)) or _decode_full(body, base64_values)
    if not len(rows):
        raise BadRequest("messages must not be empty")
    if len(rows) > messages_max:
        raise PayloadTooLarge(f"more than {messages_max} messages", limit=messages_max)
    return rows


def check_sizes(rows: Rows, message_bytes_max: int) -> None:
    """Give an error to each row that is over the topic's bound or the format's."""
    limits = DEFAULT
    values, keys, headers = rows.values, rows.keys, rows.headers
    bound = min(message_bytes_max, limits.value_bytes_max)
    key_max = max((len(key) for key in keys if key), default=0) if keys else 0
    largest = max(map(len, values)) + key_max
    if headers is None and key_max <= limits.key_bytes_max and largest <= bound:
        return
    for row, value in enumerate(values):
        key = (keys[row] if keys else None) or b""
        framed = sum(
            _HEADER_FRAME_BYTES + len(name.encode()) + len(text)
            for name, text in (headers[row] if headers else ())
        )
        size = len(value) + len(key) + framed
        if size > bound:
            error = PayloadTooLarge(f"message of {size} bytes: at most {bound}", limit=bound)
        elif len(key) > limits.key_bytes_max:
            error = PayloadTooLarge(f"key over {limits.key_bytes_max} bytes")
        elif framed > limits.headers_bytes_max:
            error = PayloadTooLarge(f"headers over {limits.headers_bytes_max} bytes")
        else:
            continue
        rows.errors.setdefault(row, error)


def _decode_plain(body: bytes) -> Rows | None:
    try:
        messages = _PLAIN.decode(body).messages
    except (msgspec.DecodeError, RecursionError):
        return None
    rows = Rows([message.value.encode() for message in messages])
    keys = [message.key for message in messages]
    if any(keys):
        rows.keys = [key.encode() if key else None for key in keys]
    partitions = [message.partition for message in messages]
    if partitions.count(None) != len(partitions):
        rows.partitions = partitions
    return rows


def _decode_full(body: bytes, base64_values: bool) -> Rows:
    given: Sequence[Message | GoQueueError]
    single = False
    envelope: PublishBody | _LooseBody
    try:
        envelope = json.decode_text(body, _FULL)
        single = envelope.messages is None
        given = [envelope] if envelope.messages is None else envelope.messages
    except BadRequest as whole:
        try:
            envelope = json.decode_text(body, _LOOSE)
        except BadRequest:
            raise whole from None
        given = [_decode_one(raw) for raw in envelope.messages]
    rows = _columns(given, base64_values)
    rows.single = single
    rows.sequence = envelope.sequence
    _identify(rows, envelope)
    return rows


def _decode_one(raw: Raw) -> Message | GoQueueError:
    try:
        return json.decode_text(raw, _ONE)
    except BadRequest as error:
        return BadMessage(error.message)


def _identify(rows: Rows, envelope: PublishBody | _LooseBody) -> None:
    producer, epoch = envelope.producer_id, envelope.producer_epoch
    epoch = envelope.epoch if epoch is None else epoch
    if producer is None:
        if epoch is not None:
            raise BadRequest("epoch without producer_id")
        return
    if not 0 < producer < 2**63 or not 0 <= (epoch or 0) < 2**32:
        raise BadRequest("producer_id or epoch out of range")
    rows.producer_id, rows.producer_epoch = producer, epoch or 0


def _columns(given: Sequence[Message | GoQueueError], base64_values: bool) -> Rows:
    rows = Rows([])
    keys: list[bytes | None] = []
    headers: list[Headers] = []
    messages: list[Message] = []
    lanes: list[int | None] = []
    nothing = Message()
    for row, message in enumerate(given):
        value, key, lane = b"", None, None
        header: Headers = ()
        if isinstance(message, Message):
            try:
                _refuse_unsupported(message)
                value = _value(message, base64_values)
                key = _key(message)
                header = _headers(message)
                lane = _lane(message.priority)
                _check_id(message)
            except GoQueueError as error:
                rows.errors[row] = error
            messages.append(message)
        else:
            rows.errors[row] = message
            messages.append(nothing)
        rows.values.append(value)
        keys.append(key)
        headers.append(header)
        lanes.append(lane)
    rows.keys = keys if any(keys) else None
    rows.headers = headers if any(headers) else None
    rows.lanes = lanes if lanes.count(None) != len(lanes) else None
    rows.partitions = _column([message.partition for message in messages])
    rows.message_ids = _column([message.message_id for message in messages])
    rows.sequences = _column([message.sequence for message in messages])
    return rows


def _column(cells: list[T | None]) -> list[T | None] | None:
    return None if cells.count(None) == len(cells) else cells


def _value(message: Message, base64_values: bool) -> bytes:
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


def _key(message: Message) -> bytes | None:
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


def _headers(message: Message) -> Headers:
    if not message.headers:
        return ()
    if "" in message.headers:
        raise BadMessage("a header without a name")
    return tuple((name, text.encode()) for name, text in message.headers.items())


def _lane(priority: str | int | None) -> int | None:
    if priority is None or priority == "":
        return None
    if isinstance(priority, int):
        lane = priority if 0 <= priority < len(LANES) else None
    else:
        lane = _LANE_OF.get(priority.lower())
    if lane is None:
        raise BadMessage(f"unknown priority {str(priority)[:40]!r}: want one of {', '.join(LANES)}")
    return lane


def _check_id(message: Message) -> None:
    if message.message_id is None:
        return
    size = len(message.message_id.encode())
    if not 0 < size <= DEFAULT.message_id_bytes_max:
        raise BadMessage(f"message_id of {size} bytes: 1 to {DEFAULT.message_id_bytes_max}")


def _refuse_unsupported(message: Message) -> None:
    """Delays and expiry would be silently lost if they were taken; the form is checked first."""
    for name, text in (("delay", message.delay), ("ttl", message.ttl)):
        if text not in (None, "", 0, "0", "0s") and parse_duration_ms(str(text), name) >= 0:
            raise NotSupported(f"{name} is not supported by this version")
    for moment in (message.deliverAt, message.deliver_at):
        if moment not in (None, "") and parse_time_ms(str(moment), "deliverAt") >= 0:
            raise NotSupported("deliverAt is not supported by this version")


def lane_name(lane: int | None) -> str:
    return LANES[LANE_NORMAL if lane is None else lane]

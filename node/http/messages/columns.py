"""Messages as publishers write them in JSON, turned into columns.

Most bodies hold nothing but values, keys and partitions: those decode straight into `_Plain`.
Anything else is decoded with every field known, and if a message has a field of the wrong type,
each message by itself, so that one bad message costs its neighbours nothing. A field that no
message has is a fault of the program that sends it: the request is refused as a whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goqueue.wire.batch import DEFAULT, Headers
from goqueue.wire.errors import (
    BadRequest,
    DelayTooLong,
    GoQueueError,
    KeyRequired,
    PayloadTooLarge,
)
from goqueue.wire.layout import RELATIVE_BELOW
from goqueue.wire.unreadable import UNREADABLE
from node.http.messages import fields
from node.http.messages.fields import Message
from node.http.text import json
from node.http.text.errors import BadMessage
from node.http.text.known_fields import Body, UnknownField

T = TypeVar("T")

NULL_REFUSED = "value is required: null deletes a key, in compacted topics only"
_HEADER_FRAME_BYTES = 6


HEADERS_TEXT_MAX = 6 * DEFAULT.headers_bytes_max
"""Of headers as they are written: longer ones are too large even if every byte is escaped."""


class _Plain(Struct, forbid_unknown_fields=True, gc=False):
    value: str
    key: str | None = None
    partition: int | None = None


class _PlainBody(Struct, forbid_unknown_fields=True):
    messages: list[_Plain]


class PublishBody(Message):
    """Either `messages`, or one message's own fields; the producer's identity beside them."""

    messages: list[Message] | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    epoch: int | None = None


class _LooseBody(Body):
    messages: list[Raw]
    producer_id: int | None = None
    producer_epoch: int | None = None
    epoch: int | None = None
    sequence: int | None = None


class _Wide(Message):
    """A message of a long text, whose headers may be a million."""

    headers: Raw | UnsetType = UNSET  # type: ignore[assignment]


class _WideBody(PublishBody):
    """One message by itself, likewise."""

    headers: Raw | UnsetType = UNSET  # type: ignore[assignment]
    messages: Raw | UnsetType = UNSET  # type: ignore[assignment]


STEP_ROWS = 128
"""Messages that are looked at one by one before others run: 64 KiB may be 20,000 unusable ones, a
third of a second."""

_PLAIN = msgspec.json.Decoder(_PlainBody)
_FULL = msgspec.json.Decoder(PublishBody)
_LOOSE = msgspec.json.Decoder(_LooseBody)
_ONE = msgspec.json.Decoder(Message)
_PLAINS = msgspec.json.Decoder(list[_Plain])
_FULLS = msgspec.json.Decoder(list[Message])
_RAWS = msgspec.json.Decoder(list[Raw])
_RAW = msgspec.json.Decoder(Raw)
_WIDE = msgspec.json.Decoder(_Wide)
_WIDE_BODY = msgspec.json.Decoder(_WideBody)
_HEADERS = msgspec.json.Decoder(dict[str, str] | None)
_OF_ONE = tuple(name for name in Message.__struct_fields__ if name != "sequence")
"""What only a message has: `sequence` beside `messages` is of the first of them."""


@dataclass(slots=True)
class Rows:
    """A publish as columns; an optional column that no message uses is None.

    A row with an error keeps its place in every column. `nulls` are the rows whose value is null;
    they are empty in `values`. `sequence` is the request's own, `single`
    says that the body was one message by itself.
    """

    values: list[bytes]
    keys: list[bytes | None] | None = None
    partitions: list[int | None] | None = None
    headers: list[Headers] | None = None
    lanes: list[int | None] | None = None
    message_ids: list[str | None] | None = None
    deliver_at: list[int | None] | None = None
    expires_at: list[int | None] | None = None
    sequences: list[int | None] | None = None
    nulls: list[int] = field(default_factory=list[int])
    errors: dict[int, GoQueueError] = field(default_factory=dict[int, GoQueueError])
    producer_id: int = 0
    producer_epoch: int = 0
    sequence: int | None = None
    single: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def extend(self, more: Rows) -> None:
        """Messages that come behind these."""
        mine, others = len(self), len(more)
        self.keys = _joined(self.keys, mine, more.keys, others, None)
        self.partitions = _joined(self.partitions, mine, more.partitions, others, None)
        self.headers = _joined(self.headers, mine, more.headers, others, ())
        self.lanes = _joined(self.lanes, mine, more.lanes, others, None)
        self.message_ids = _joined(self.message_ids, mine, more.message_ids, others, None)
        self.deliver_at = _joined(self.deliver_at, mine, more.deliver_at, others, None)
        self.expires_at = _joined(self.expires_at, mine, more.expires_at, others, None)
        self.sequences = _joined(self.sequences, mine, more.sequences, others, None)
        self.nulls += [mine + row for row in more.nulls]
        self.errors.update({mine + row: error for row, error in more.errors.items()})
        self.values += more.values


def decode_rows(body: bytes, base64_values: bool, messages_max: int) -> Rows:
    """The messages of a publish body, unusable ones with their error. Raises BadRequest."""
    json.require_utf8(body)
    rows = (None if base64_values else _decode_plain(body)) or _decode_full(body, base64_values)
    if not len(rows):
        raise BadRequest("messages must not be empty")
    if len(rows) > messages_max:
        raise PayloadTooLarge(f"more than {messages_max} messages", limit=messages_max)
    return rows


def decode_some(text: bytes, base64_values: bool) -> Iterator[Rows]:
    """The messages of an array, as `decode_rows`, for `Rows.extend`. Raises BadRequest."""
    json.require_utf8(text)
    found: Rows | Sequence[Message | Raw]
    try:
        found = decode_typed(text, base64_values)
    except UnknownField:
        raise
    except BadRequest:
        found = json.decode_text(text, _RAWS)
    return columns_of(found, base64_values)


def decode_typed(text: bytes, base64_values: bool) -> Rows | list[Message]:
    """The messages of an array whose fields are all known and of the right types. Raises
    BadRequest."""
    if not base64_values:
        with contextlib.suppress(*UNREADABLE):
            return _plain_rows(_PLAINS.decode(text))
    return json.decode_text(text, _FULLS)


def columns_of(found: Rows | Sequence[Message | Raw], base64_values: bool) -> Iterator[Rows]:
    """What must be looked at one by one comes `STEP_ROWS` at once."""
    if isinstance(found, Rows):
        yield found
        return
    for at in range(0, len(found), STEP_ROWS):
        some = found[at : at + STEP_ROWS]
        whole = [one if isinstance(one, Message) else _decode_one(one) for one in some]
        yield _columns(whole, base64_values)


def decode_wide(text: bytes, base64_values: bool) -> Rows:
    """One message of a long text that is nested within bounds, as an element of an array."""
    try:
        return _columns([_narrowed(json.decode_text(text, _WIDE))], base64_values, is_shallow=True)
    except UnknownField:
        raise
    except BadRequest as error:
        json.decode_text(text, _RAW)
        return _columns([BadMessage(error.message)], base64_values)


def decode_single(text: bytes, base64_values: bool) -> Rows:
    """Likewise, of a body that is one message. Raises BadRequest."""
    body = json.decode_text(text, _WIDE_BODY)
    if body.messages is not UNSET and bytes(body.messages) != b"null":
        raise BadRequest("messages: write its name without escapes")
    rows = _columns([_narrowed(body)], base64_values, is_shallow=True)
    rows.single, rows.sequence = True, body.sequence
    _identify(rows, body)
    return rows


def identify_rows(rows: Rows, rest: bytes) -> None:
    """What the body says beside its messages, which are decoded. Raises BadRequest."""
    json.require_utf8(rest)
    envelope = json.decode_text(rest, _FULL)
    if envelope.messages:
        raise BadRequest("messages is given more than once")
    _refuse_beside(envelope)
    rows.sequence = envelope.sequence
    _identify(rows, envelope)


def identify_single(rows: Rows, message_id: str) -> None:
    """Take the request's `Idempotency-Key` as the id of its only message. Raises BadRequest."""
    if len(rows) > 1:
        raise BadRequest("Idempotency-Key is for a single message: give each message a message_id")
    own = rows.message_ids[0] if rows.message_ids else None
    if own is not None and own != message_id:
        raise BadRequest("Idempotency-Key and message_id differ")
    fields.check_id(message_id)
    rows.message_ids = [message_id]


def check_delays(rows: Rows, delay_ms_max: int, now_ms: int) -> None:
    """Give an error to each row whose delay is beyond the topic's horizon, or its own life."""
    for row, cell in enumerate(rows.deliver_at or ()):
        if cell is None:
            continue
        delay_ms = cell if cell < RELATIVE_BELOW else cell - now_ms
        ttl_ms = rows.expires_at[row] if rows.expires_at else None
        if delay_ms > delay_ms_max:
            error: GoQueueError = DelayTooLong(
                f"a delay of {delay_ms} ms: the topic takes at most {delay_ms_max}",
                limit_ms=delay_ms_max,
            )
        elif ttl_ms is not None and ttl_ms <= delay_ms:
            error = BadMessage("the message would expire before it is due: ttl ends first")
        else:
            continue
        rows.errors.setdefault(row, error)


def check_keys(rows: Rows, *, compacted: bool) -> None:
    """Give an error to each row without a key where the topic is compacted, and to each null where
    it is not."""
    if compacted:
        for row in range(len(rows)):
            if rows.keys is None or rows.keys[row] is None:
                rows.errors.setdefault(row, KeyRequired())
    for row in () if compacted else rows.nulls:
        rows.errors.setdefault(row, BadMessage(NULL_REFUSED))


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
        return _plain_rows(_PLAIN.decode(body).messages)
    except UNREADABLE:
        return None


def _plain_rows(messages: list[_Plain]) -> Rows:
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
        if not single:
            _refuse_beside(envelope)
    except UnknownField:
        raise
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


def _refuse_beside(envelope: PublishBody) -> None:
    """Refuse a message's own fields beside `messages`: they would be of none. Raises UnknownField.

    GoQueue's clients send null for what they leave out.
    """
    for name in _OF_ONE:
        if getattr(envelope, name) not in (None, UNSET):
            raise UnknownField(name, (), "beside messages, not in one of them")


def _decode_one(raw: Raw) -> Message | GoQueueError:
    try:
        return json.decode_text(raw, _ONE)
    except UnknownField:
        raise
    except BadRequest as error:
        return BadMessage(error.message)


def _narrowed(message: _Wide | _WideBody) -> Message | GoQueueError:
    """With its headers decoded, if they are not too long for any message."""
    text = b"null" if message.headers is UNSET else bytes(message.headers)
    if len(text) > HEADERS_TEXT_MAX:
        return PayloadTooLarge(f"headers over {DEFAULT.headers_bytes_max} bytes")
    message.headers = json.decode_text(text, _HEADERS)
    return message


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


def _without_frames(error: GoQueueError) -> GoQueueError:
    """Its frames hold the rows, which hold the error: nobody would free them, nor the body, before
    the next collection of garbage."""
    error.__traceback__ = error.__context__ = None
    return error


def _columns(
    given: Sequence[Message | GoQueueError], base64_values: bool, *, is_shallow: bool = False
) -> Rows:
    rows = Rows([])
    keys: list[bytes | None] = []
    headers: list[Headers] = []
    messages: list[Message] = []
    lanes: list[int | None] = []
    deliver_at: list[int | None] = []
    expires_at: list[int | None] = []
    nothing = Message()
    for row, message in enumerate(given):
        value, key, lane, due, end = b"", None, None, None, None
        header: Headers = ()
        if isinstance(message, Message):
            try:
                if fields.is_null(message):
                    rows.nulls.append(row)
                else:
                    value = fields.value_of(message, base64_values, is_shallow=is_shallow)
                key = fields.key_of(message)
                header = fields.headers_of(message)
                lane = fields.lane_of(message.priority)
                fields.id_of(message)
                due, end = fields.deliver_at_of(message), fields.expires_at_of(message)
            except GoQueueError as error:
                rows.errors[row] = _without_frames(error)
            messages.append(message)
        else:
            rows.errors[row] = message
            messages.append(nothing)
        rows.values.append(value)
        keys.append(key)
        headers.append(header)
        lanes.append(lane)
        deliver_at.append(due)
        expires_at.append(end)
    rows.keys = keys if any(keys) else None
    rows.headers = headers if any(headers) else None
    rows.lanes = _column(lanes)
    rows.deliver_at, rows.expires_at = _column(deliver_at), _column(expires_at)
    rows.partitions = _column([message.partition for message in messages])
    rows.message_ids = _column([message.message_id for message in messages])
    rows.sequences = _column([message.sequence for message in messages])
    return rows


def _joined(
    mine: list[T] | None, mine_rows: int, more: list[T] | None, more_rows: int, nothing: T
) -> list[T] | None:
    if mine is None and more is None:
        return None
    cells = [nothing] * mine_rows if mine is None else mine
    cells.extend([nothing] * more_rows if more is None else more)
    return cells


def _column(cells: list[T | None]) -> list[T | None] | None:
    return None if cells.count(None) == len(cells) else cells

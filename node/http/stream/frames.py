"""What is said on a stream: one JSON object a frame, told apart by its `type`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from goqueue.wire.errors import BadRequest, GoQueueError
from node.api.times import Duration
from node.http.groups.assignments import Partition, Place
from node.http.groups.consumer_identity import Generation, Member
from node.http.groups.members import PLACES_MAX, SUBSCRIPTIONS_MAX, HeartbeatAnswer
from node.http.queue.settle import SettleItem, SettleResult
from node.http.queue.views import QueuedView
from node.http.text import json
from node.http.text.errors import encode_error
from node.http.text.known_fields import SHOWN_MAX, Body, nearest
from node.http.text.pieces import encode

CREDIT_MESSAGES_MAX = 10_000
CREDIT_BYTES_MAX = 1 << 30
SETTLES_MAX = 1_000
"""Of one frame."""
ID_MAX = 2**53 - 1


class CreditTotals(Body):
    """The most that is delivered and not settled; with 0 messages nothing comes."""

    messages: Annotated[int, Meta(ge=0, le=CREDIT_MESSAGES_MAX)] = 100
    bytes: Annotated[int, Meta(ge=1, le=CREDIT_BYTES_MAX)] = 4 << 20


_Names = Annotated[list[str], Meta(max_length=SUBSCRIPTIONS_MAX)]
_Places = Annotated[list[Place], Meta(max_length=PLACES_MAX)]


class Subscribe(Body, tag_field="type", tag="subscribe"):
    """The first frame, once: topics by name or pattern, or a member, whose assignment it is, or
    those of it that `assignment` names."""

    topics: _Names | None = None
    patterns: _Names | None = None
    partitions: Annotated[list[Partition], Meta(max_length=PLACES_MAX)] | None = None
    member_id: Member | None = None
    generation: Generation | None = None
    assignment: _Places | None = None
    credit: CreditTotals = msgspec.field(default_factory=CreditTotals)
    visibility_timeout_ms: Duration | None = None
    lowest_priority: str | int | None = None
    format: Literal["json", "batches"] = "json"


class Credit(Body, tag_field="type", tag="credit"):
    """New totals; and of which lanes, and of which of a member's partitions from now on, where that
    is told."""

    messages: Annotated[int, Meta(ge=0, le=CREDIT_MESSAGES_MAX)]
    bytes: Annotated[int, Meta(ge=1, le=CREDIT_BYTES_MAX)]
    lowest_priority: str | int | None = None
    assignment: _Places | None = None


class Settle(Body, tag_field="type", tag="settle"):
    """Receipts and what is to become of each; the answer has the same `id`."""

    id: Annotated[int, Meta(ge=0, le=ID_MAX)]
    settles: Annotated[list[SettleItem], Meta(min_length=1, max_length=SETTLES_MAX)]


class Heartbeat(Body, tag_field="type", tag="heartbeat"):
    """Of a member: what it works on no longer."""

    let_go: _Places | None = None


Said = Subscribe | Credit | Settle | Heartbeat
"""By a client."""
KINDS: dict[str, type[Said]] = {
    "subscribe": Subscribe,
    "credit": Credit,
    "settle": Settle,
    "heartbeat": Heartbeat,
}


class Subscribed(Struct, tag_field="type", tag="subscribed"):
    """The stream has begun. While it has messages, or is a member's, it is pinged after
    `keepalive_ms` of silence and lost after `silence_ms`; else after four times as long."""

    stream: str
    node: str
    credit: CreditTotals
    keepalive_ms: int
    silence_ms: int
    frame_bytes_max: int


class Messages(Struct, tag_field="type", tag="messages"):
    messages: list[QueuedView]


class Settled(Struct, tag_field="type", tag="settled"):
    """`settled` counts the successes."""

    id: int
    results: list[SettleResult]
    settled: int


class Moved(Struct, tag_field="type", tag="moved"):
    """This node stops; `nodes` are addresses of others."""

    nodes: list[str]


class UnknownType(BadRequest):
    """`nearest` is the type that may be meant, or null."""

    code, text = "unknown_type", "no frame has this type"

    def __init__(self, told: str) -> None:
        near = nearest(told, KINDS)
        hint = f"; did you mean `{near}`?" if near else f": want one of {', '.join(KINDS)}"
        super().__init__(f"unknown type `{told[:SHOWN_MAX]}`{hint}", nearest=near)


class _AnyFrame(Struct):
    type: Any = None
    id: Any = None


_SAID: msgspec.json.Decoder[Said] = msgspec.json.Decoder(Said)
_BY_KIND = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}
_ANY = msgspec.json.Decoder(_AnyFrame)


def said(text: bytes) -> Said:
    """A client's frame. Raises BadRequest: `unknown_type` and `unknown_field` name the nearest one
    that there is."""
    try:
        return _SAID.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        pass  # to be told why, it is read once more
    frame = json.decode(text, _ANY)
    if not isinstance(frame.type, str):
        raise BadRequest("type is required")
    if frame.type not in KINDS:
        raise UnknownType(frame.type)
    return json.decode(text, _BY_KIND[frame.type])


def id_of(text: bytes) -> int | None:
    """The id of a frame that is not understood, if it has one."""
    try:
        found = _ANY.decode(text).id
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        return None
    return found if type(found) is int and 0 <= found <= ID_MAX else None


def error_frame(error: GoQueueError, id: int | None = None) -> bytes:
    """As HTTP has it in a body."""
    named = {} if id is None else {"id": id}
    return encode_error({"type": "error", **named, **error.to_body()})


def assignment_frame(told: HeartbeatAnswer) -> bytes:
    """As HTTP answers a heartbeat."""
    return b'{"type":"assignment",' + encode(told)[1:]

"""What goes over a stream, as JSON: one object a text, and its `type` says what it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from goqueue.models.groups import MemberAnswer, TopicPartition
from goqueue.models.queued import MessageBody
from goqueue.wire.errors import GoQueueError, ServerError
from goqueue.wire.unreadable import UNREADABLE

MESSAGES_MAX = 10_000
BYTES_MAX = 1 << 30
"""The most that servers take as credit. What a consumer has is bounded by messages."""


class Credit(msgspec.Struct, frozen=True):
    """The most that is delivered and not settled."""

    messages: int
    bytes: int


class Subscribe(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="subscribe"):
    """The first text. Messages come from those partitions of `assignment` that are the member's.
    Without a visibility timeout leases last for as long as the stream."""

    member_id: str
    assignment: Sequence[TopicPartition]
    credit: Credit
    generation: int | None = None
    lowest_priority: int | None = None
    visibility_timeout_ms: int | None = None


class Grant(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="credit"):
    """New totals, and of which lanes and partitions messages come from now on: as before where it
    does not say so."""

    messages: int
    bytes: int
    lowest_priority: int | None = None
    assignment: Sequence[TopicPartition] | None = None


class SettleFrame(msgspec.Struct, frozen=True, tag_field="type", tag="settle"):
    """Settles as a request has them; the answer names the `id`."""

    id: int
    settles: Sequence[dict[str, object]]


class Beat(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="heartbeat"):
    """The member works on these no longer; the answer is what it has."""

    let_go: Sequence[TopicPartition] = ()


class Subscribed(msgspec.Struct, frozen=True, tag_field="type", tag="subscribed"):
    """Messages come from now on. The server takes no text of more than `frame_bytes_max` bytes."""

    frame_bytes_max: int = 256 * 1024


class Messages(msgspec.Struct, frozen=True, tag_field="type", tag="messages"):
    """As a receive's answer has them."""

    messages: list[MessageBody]


class SettledFrame(msgspec.Struct, frozen=True, tag_field="type", tag="settled"):
    """What became of each of the settles of one text, in their order."""

    id: int
    results: list[dict[str, Any]]


class Assigned(MemberAnswer, frozen=True, tag_field="type", tag="assignment"):
    """What the member has, as a heartbeat's answer tells it."""


class Moved(msgspec.Struct, frozen=True, tag_field="type", tag="moved"):
    """The server stops: others go on."""


class Failed(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """`error` says why nothing comes, or what was wrong with the settles of `id`."""

    error: GoQueueError
    id: int | None = None


Frame = Subscribed | Messages | SettledFrame | Assigned | Moved | Failed


class _Kind(msgspec.Struct):
    type: str


_Told = Subscribed | Messages | SettledFrame | Assigned | Moved
_FRAME: msgspec.json.Decoder[_Told] = msgspec.json.Decoder(_Told)
_KINDS = ("subscribed", "messages", "settled", "assignment", "moved")


def decode_frame(text: str) -> Frame | None:
    """None for what this version does not know, and may leave unread. Raises ServerError on what
    is no frame."""
    try:
        return _FRAME.decode(text)
    except UNREADABLE as error:
        kind = _kind(text)
        if kind == "error":
            return _failed(text)
        if kind in _KINDS:
            raise ServerError(f"a frame that is not understood: {error}") from None
        return None


def _kind(text: str) -> str:
    try:
        return msgspec.json.decode(text, type=_Kind).type
    except UNREADABLE as error:
        raise ServerError(f"a frame that is not understood: {error}") from None


def _failed(text: str) -> Failed:
    body = msgspec.json.decode(text, type=dict[str, Any])
    id = body.pop("id", None)
    del body["type"]
    return Failed(GoQueueError.from_body(body), id if isinstance(id, int) else None)

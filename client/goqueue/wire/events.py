"""Events of a partition's messages as they travel: in columns, a row for each event."""

from __future__ import annotations

import msgspec

EVENTS_MEDIA_TYPE = "application/vnd.goqueue.events+msgpack"
"""The answer in MessagePack, for readers that want speed; else it is JSON, with keys in base64."""


class EventColumns(msgspec.Struct):
    """Rows in the order of (index, offset, seq), which names an event for good.

    `index` is the log entry that brought the event, `seq` counts what it brought for one message.
    `lane`, `key` and `message_id`, the producer's own, are told by PUBLISHED; other events join
    with it by offset. `attempt` counts from 1. What is None does not apply. `attributes` is all
    else that the message's timeline tells, as text; None where that is nothing.
    """

    index: list[int] = msgspec.field(default_factory=list[int])
    offset: list[int] = msgspec.field(default_factory=list[int])
    seq: list[int] = msgspec.field(default_factory=list[int])
    timestamp_ms: list[int] = msgspec.field(default_factory=list[int])
    event_type: list[str] = msgspec.field(default_factory=list[str])
    group: list[str | None] = msgspec.field(default_factory=list["str | None"])
    consumer: list[str | None] = msgspec.field(default_factory=list["str | None"])
    lane: list[str | None] = msgspec.field(default_factory=list["str | None"])
    attempt: list[int | None] = msgspec.field(default_factory=list["int | None"])
    reason: list[str | None] = msgspec.field(default_factory=list["str | None"])
    message_id: list[str | None] = msgspec.field(default_factory=list["str | None"])
    key: list[bytes | None] = msgspec.field(default_factory=list["bytes | None"])
    attributes: list[dict[str, str] | None] = msgspec.field(
        default_factory=list["dict[str, str] | None"]
    )


class EventsPage(msgspec.Struct):
    """Events of one partition, and where reading goes on: `after=next`, and where `next_offset` is
    given `after_offset=next_offset` too, as the entry after `next` is told up to that offset only.

    There are events of the entries from `first`, where the log begins, up to `end`, the newest one
    that is applied. `exact` is false where what the log does not have any more would have told
    more, or otherwise, of messages that these events, or others of these entries, are about.
    """

    topic: str
    topic_id: str
    partition: int
    first: int
    end: int
    next: int
    next_offset: int | None
    exact: bool
    events: EventColumns

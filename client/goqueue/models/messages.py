"""Messages as they are read and published: immutable structs, with times in Unix milliseconds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from goqueue.models.options import Priority
from goqueue.models.times import Duration, Time
from goqueue.wire.layout import LANE_NORMAL, LANES
from goqueue.wire.records import Headers


class Message(msgspec.Struct, frozen=True, gc=False):
    """One stored message.

    `timestamp_ms` is the log's time, which never goes back within a partition; `published_ms` is
    what the producer's clock said, 0 if it did not say. Groups receive a message from
    `deliver_at_ms` on, and no longer once `expires_at_ms` has passed.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    lane: int = LANE_NORMAL
    published_ms: int = 0
    message_id: str | None = None
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    is_null: bool = False
    """The value is null, and empty here: in a compacted topic, it deletes the key."""

    @property
    def id(self) -> str:
        """`topic:partition:offset`, which finds this message for as long as it is kept."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def text(self) -> str:
        """The value as UTF-8. Raises UnicodeDecodeError where it is not."""
        return self.value.decode()

    @property
    def key_text(self) -> str | None:
        """The key as UTF-8, or None. Raises UnicodeDecodeError where it is not."""
        return None if self.key is None else self.key.decode()

    @property
    def time(self) -> datetime:
        """`timestamp_ms` as a datetime in UTC."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def priority(self) -> str:
        """The lane's name, `critical` to `background`."""
        return LANES[self.lane]

    def json(self) -> Any:
        """The value decoded as JSON. Raises msgspec.DecodeError where it is not."""
        return msgspec.json.decode(self.value)


class Page(msgspec.Struct, frozen=True):
    """Messages of one partition in offset order; iterate over it, or over `messages`.

    Reading goes on at `next_offset`. `log_start` is the first offset still kept and `end_offset`
    the one after the last, both as of this answer; `topic_id` is that of the topic that was read.

    The end is known where `next_offset` has reached it, or it was asked for (`current`), unless
    the page is `stale`: then no leader has confirmed it, and messages that were acknowledged may
    be missing behind `next_offset`. Ask again. Before that there is more, and `end_offset` is only
    how far the replica that answered has come.
    """

    topic: str
    partition: int
    messages: list[Message]
    next_offset: int
    log_start: int
    end_offset: int
    topic_id: str = ""
    stale: bool = False

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Published(msgspec.Struct, frozen=True, gc=False):
    """Where a message stands, and how durable it is there.

    `duplicate`: it had been stored before, here, by an earlier attempt or under the same message
    id. `deliver_at_ms`: groups receive it from then on; None for at once, and
    for a duplicate, whose first one's time counts. `durability` is what it had when it was
    acknowledged: `majority` (fsynced by a majority) or `relaxed` (written by a majority); empty
    where the server does not say.
    """

    topic: str
    partition: int
    offset: int
    duplicate: bool = False
    deliver_at_ms: int | None = None
    durability: str = ""

    @property
    def id(self) -> str:
        """`topic:partition:offset`"""
        return f"{self.topic}:{self.partition}:{self.offset}"


class OutgoingMessage(msgspec.Struct, frozen=True):
    """One message for `publish_many`. Text is stored as UTF-8; None is a null value, which deletes
    the key in a compacted topic.

    Without a `partition`, a key decides it; without a key, the message id; else messages go round.
    `priority` is a lane's name or number. Groups receive the message after `delay`, or from
    `deliver_at` on, and no longer once `ttl` has passed since it was stored.
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: dict[str, bytes | str] | None = None
    priority: Priority | int = LANE_NORMAL
    partition: int | None = None
    message_id: str | None = None
    delay: Duration | None = None
    deliver_at: Time | None = None
    ttl: Duration | None = None


class ProducerIdentity(msgspec.Struct, frozen=True):
    """An identity given by the cluster: what makes a publish safe to repeat."""

    producer_id: int
    epoch: int

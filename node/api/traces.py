"""What the HTTP front asks of the node about what happened to messages: `Traces`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from delivery.lookup.verdict import Verdict
from goqueue.wire.types import Offset
from node.api.rules.rule import scoped, topic


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One event in a message's life: PUBLISHED, REPLICATED, RETAINED, ..."""

    time_ms: int
    type: str
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class GroupTrace:
    """Where a message stands in one group: delayed, ready, in_flight, retrying, acked, dead,
    cancelled or expired; the times are 0, and texts empty, for what there is none of."""

    group: str
    state: str
    attempts: int
    consumer: str = ""
    visible_until_ms: int = 0
    retry_at_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """The timeline of one message, oldest event first."""

    topic: str
    partition: int
    offset: Offset
    message_id: str | None
    events: tuple[TraceEvent, ...]
    delivery_attempts: int = 0
    status: str = "in_progress"
    """in_progress, completed, failed, retrying, delayed, cancelled or expired."""
    groups: tuple[GroupTrace, ...] = ()
    exact: bool = True
    """False where the log does not tell all of its past any more."""
    stale: bool = False
    """No leader answered in time: it is what this node's replica knows, and more may have happened
    since."""


class GroupWhy(msgspec.Struct, array_like=True, frozen=True):
    """What holds for one group."""

    group: str
    verdict: Verdict


class WhyView(msgspec.Struct, array_like=True):
    """Why a message is not delivered, or not settled, as of the log time `time_ms`.

    `message` is what holds whatever the group; `groups` those that have the topic, or the one that
    was asked about, and `more` how many are left out. `leader` has answered; where it is empty,
    nobody leads: then a replica tells what it has applied, if there is one here.
    """

    time_ms: int
    message_id: str | None
    message: Verdict
    groups: list[GroupWhy]
    leader: str = ""
    more: int = 0


class EventsWanted(msgspec.Struct, array_like=True, frozen=True):
    """Events of one partition: of the entries after `after`, of the first of them only what comes
    after the offset `offset` where that is not None, up to the entry `until`.

    About `limit` of them. Where there are none, whoever answers waits up to `wait_s` for some.
    """

    after: int
    offset: int | None
    until: int
    limit: int
    wait_s: float = 0.0


class EventsView(msgspec.Struct, array_like=True, frozen=True):
    """As `goqueue.wire.events.EventsPage`; `columns` are its events, `count` of them, encoded in
    MessagePack."""

    first: int
    end: int
    next: int
    next_offset: int | None
    exact: bool
    count: int
    columns: bytes


class Traces(Protocol):
    """What happened to messages, and why not more, asked of any node."""

    @scoped(topic)
    async def message_trace(self, topic: str, partition: int, offset: Offset) -> MessageTrace:
        """Raises `NotFound` where no such message exists (any more)."""
        ...

    @scoped(topic)
    async def message_why(
        self, topic: str, partition: int, offset: Offset, group: str | None
    ) -> WhyView:
        """Raises `UnknownTopic`, `UnknownPartition`, `UnknownGroup`. A partition that no majority
        serves is told as such, not raised."""
        ...

    @scoped(topic)
    async def events(
        self, topic: str, partition: int, wanted: EventsWanted
    ) -> tuple[str, EventsView]:
        """The topic's id, and its events. Raises `UnknownTopic`, `UnknownPartition`, `Unavailable`
        where nobody leads it or the log must be read up to there first."""
        ...

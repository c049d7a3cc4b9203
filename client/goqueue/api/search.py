"""Where a message is: its timeline, and finding it by what it carries, by time and by state."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from goqueue.models.messages import Message
from goqueue.models.queued import MessageBody, queued_message
from goqueue.models.times import Time, time_text
from goqueue.publish.outgoing import Text
from goqueue.transport.calls import Calls, given
from goqueue.transport.http import join

LIMIT = 100


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a message: PUBLISHED, DELIVERED, ACKNOWLEDGED, ...; `attributes`
    say who and why."""

    time: datetime = msgspec.field(name="timestamp")
    type: str = msgspec.field(name="event_type")
    attributes: dict[str, Any] = {}


class GroupState(msgspec.Struct, frozen=True):
    """How a message stands in one group: `state` is delayed, ready, in_flight, retrying, acked,
    dead, cancelled or expired; `reason` is why its last attempt failed."""

    group: str
    state: str
    attempts: int = 0
    consumer: str = ""
    visible_until: datetime | None = None
    retry_at: datetime | None = None
    reason: str = ""


class Timeline(msgspec.Struct, frozen=True):
    """A message's life so far, oldest event first; iterate over it, or over `events`.

    `status` is in_progress, completed, failed, retrying, delayed, cancelled or expired; `states`
    are those of its groups. Where `exact` is false, some of its past is not known any more. `alike`
    are older messages of the same id, where it was asked for by its producer's. `stale`: no leader
    answered in time, and more may have happened since.
    """

    id: str
    topic: str
    partition: int
    offset: int
    events: list[Event]
    message_id: str | None = None
    delivery_attempts: int = 0
    status: str = ""
    states: list[GroupState] = []
    exact: bool = True
    alike: list[str] = []
    stale: bool = False

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)


class FoundMessage(Message, frozen=True, gc=True):
    """A message that was found: its state for each group (delayed, ready, in_flight, retrying,
    acked, dead, cancelled, expired), its `status` over all of them (in_progress, completed, failed,
    retrying, delayed, cancelled, expired), and the W3C trace id that it carries."""

    states: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    status: str = ""
    trace_id: str | None = None


class NotSearched(msgspec.Struct, frozen=True):
    """What of a partition may hold other matches, and why it was not searched."""

    topic: str
    partition: int
    reason: str


class FoundPage(msgspec.Struct, frozen=True):
    """Matches, newest first. Where `complete` is false there may be others: under `next`, which the
    next call takes, or in what was not searched."""

    messages: list[FoundMessage]
    complete: bool
    not_searched: list[NotSearched] = []
    next: str | None = None

    def __iter__(self) -> Iterator[FoundMessage]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


class Searching:
    """The part of the client that finds messages."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def timeline(self, id: str, *, topic: str | None = None) -> Timeline:
        """What happened to the message with this `topic:partition:offset`; with a topic, to the
        newest one there that has this `message_id`. Raises NotFound."""
        params = None if topic is None else {"topic": topic}
        return await self._calls.get(join("messages", id, "timeline"), Timeline, params)

    async def search(
        self,
        topic: str | None = None,
        *,
        partition: int | None = None,
        message_id: str | None = None,
        trace_id: str | None = None,
        key: Text | None = None,
        headers: Mapping[str, str] | None = None,
        group: str | None = None,
        state: str | Sequence[str] | None = None,
        status: str | None = None,
        start: Time | None = None,
        end: Time | None = None,
        limit: int = LIMIT,
        next: str | None = None,
    ) -> FoundPage:
        """Messages that match all that is given, of one topic or of all; at most 1000.

        `state` (one, or any of several) and `status` are meant for the group, if one is named.
        Times are the log's, `end` exclusive. `next` is an earlier page's. Raises `UnknownTopic`,
        `UnknownGroup`, BadRequest.
        """
        if isinstance(key, str):
            key = key.encode()
        query = given(
            {
                "topic": topic,
                "partition": partition,
                "message_id": message_id,
                "trace_id": trace_id,
                "group": group,
                "state": state if isinstance(state, str) or state is None else ",".join(state),
                "status": status,
                "from_time": None if start is None else time_text(start),
                "to_time": None if end is None else time_text(end),
                "next": next,
            }
        )
        if key is not None:
            query |= {"key": b64encode(key).decode(), "key_encoding": "base64"}
        query |= {
            "limit": limit,
            "header": [f"{n}:{value}" for n, value in (headers or {}).items()],
        }
        path = join("messages") + "?" + urlencode(query, doseq=True)
        found = await self._calls.get(path, _Found)
        return FoundPage(
            [_message(body) for body in found.messages],
            found.complete,
            found.not_searched,
            found.next,
        )


class _Body(MessageBody, frozen=True):
    states: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    status: str = ""
    trace_id: str | None = None


class _Found(msgspec.Struct):
    messages: list[_Body]
    complete: bool
    not_searched: list[NotSearched] = []
    next: str | None = None


def _message(body: _Body) -> FoundMessage:
    plain = msgspec.structs.asdict(queued_message(body))
    fields = {name: plain[name] for name in Message.__struct_fields__}
    return FoundMessage(**fields, states=body.states, status=body.status, trace_id=body.trace_id)

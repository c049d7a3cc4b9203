"""Events in bulk: what happened to a partition's messages, in the log's order, read on by index."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime

import msgspec

from goqueue.transport.calls import Calls
from goqueue.transport.channel import Answer
from goqueue.transport.http import join
from goqueue.wire.errors import ServerError
from goqueue.wire.events import EVENTS_MEDIA_TYPE, EventColumns, EventsPage
from goqueue.wire.unreadable import UNREADABLE

EVENTS_LIMIT = 10_000
"""Events that one answer is asked for, about."""
FOLLOW_WAIT_S = 5.0


class MessageEvent(msgspec.Struct, frozen=True):
    """One event; (topic, partition, index, offset, seq) names it for good.

    `lane`, `key` and `message_id` (the producer's own) are told by PUBLISHED only. `attributes`
    are all else that the message's timeline tells of it, as texts.
    """

    topic: str
    partition: int
    offset: int
    index: int
    seq: int
    timestamp_ms: int
    event_type: str
    group: str | None = None
    consumer: str | None = None
    lane: str | None = None
    attempt: int | None = None
    reason: str | None = None
    message_id: str | None = None
    key: bytes | None = None
    attributes: dict[str, str] | None = None

    @property
    def id(self) -> str:
        """Of the message."""
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def timestamp(self) -> datetime:
        """Log time."""
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)


def events_path(topic: str, partition: int) -> str:
    """Where a partition's events are asked for."""
    return join("topics", topic, "partitions", partition, "events")


def events_params(
    after: int,
    after_offset: int | None = None,
    *,
    until: int | None = None,
    limit: int = EVENTS_LIMIT,
    wait_s: float = 0.0,
) -> dict[str, str]:
    """What is asked: see `EventFeed.events_page`."""
    params = {"after": str(after), "limit": str(limit)}
    if after_offset is not None:
        params["after_offset"] = str(after_offset)
    if until is not None:
        params["until"] = str(until)
    if wait_s > 0:
        params["wait"] = f"{round(wait_s * 1000)}ms"
    return params


def decode_events(answer: Answer) -> EventsPage:
    """Raises ServerError where the answer is no page of events."""
    if answer.media_type != EVENTS_MEDIA_TYPE:
        raise ServerError(f"the server answered {answer.media_type or 'nothing'}, not events")
    try:
        return msgspec.msgpack.decode(answer.body, type=EventsPage)
    except UNREADABLE as error:
        raise ServerError(f"an answer that is not understood: {error}") from None


def events_of(page: EventsPage) -> Iterator[MessageEvent]:
    """One by one."""
    columns: EventColumns = page.events
    cells = zip(
        columns.offset,
        columns.index,
        columns.seq,
        columns.timestamp_ms,
        columns.event_type,
        columns.group,
        columns.consumer,
        columns.lane,
        columns.attempt,
        columns.reason,
        columns.message_id,
        columns.key,
        columns.attributes,
        strict=True,
    )
    return (MessageEvent(page.topic, page.partition, *cell) for cell in cells)


class EventFeed:
    """The part of the client that reads events."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def events_page(
        self,
        topic: str,
        partition: int,
        after: int = 0,
        *,
        after_offset: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        wait_s: float = 0.0,
    ) -> EventsPage:
        """Events of the log's entries after this index, in columns.

        Goes on at `next`, and `next_offset` where that is not None. Of entries up to `until` only;
        with none there yet, waits up to `wait_s`. Entries that retention took are passed: `first`
        is where the log begins. Of what was told once, the same is told again, by whoever leads.
        """
        answer = await self._calls.transport.request(
            "GET",
            events_path(topic, partition),
            params=events_params(after, after_offset, until=until, limit=limit, wait_s=wait_s),
            headers={"Accept": EVENTS_MEDIA_TYPE},
            repeatable=True,
            wait_s=wait_s,
        )
        return decode_events(answer)

    async def events_pages(
        self,
        topic: str,
        partition: int,
        after: int = 0,
        *,
        until: int | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[EventsPage, None]:
        """Pages with events, one after the other; see `events`."""
        offset: int | None = None
        while True:
            page = await self.events_page(
                topic,
                partition,
                after,
                after_offset=offset,
                until=until,
                limit=EVENTS_LIMIT,
                wait_s=FOLLOW_WAIT_S if follow else 0.0,
            )
            if until is None and not follow:
                until = page.end
            if page.events.index:
                yield page
            after, offset = page.next, page.next_offset
            if until is not None and after >= until:
                return

    async def events(
        self,
        topic: str,
        partition: int,
        after: int = 0,
        *,
        until: int | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[MessageEvent, None]:
        """What happened to a partition's messages, of the log's entries after this index, in the
        order of index, offset and seq: all that their timelines tell, but RETAINED, each once.

        Ends with the entry `until`, or where the log ended when iteration began; `follow` goes on.
        Who goes on after the `index` of the last event whose entry was read whole misses nothing.
        """
        async for page in self.events_pages(topic, partition, after, until=until, follow=follow):
            for event in events_of(page):
                yield event

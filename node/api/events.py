"""What the HTTP front asks of the node about events in bulk: `EventBroker`."""

from __future__ import annotations

from typing import Protocol

import msgspec


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


class EventBroker(Protocol):
    """Events of any partition, asked of any node."""

    async def events(
        self, topic: str, partition: int, wanted: EventsWanted
    ) -> tuple[str, EventsView]:
        """The topic's id, and its events. Raises `UnknownTopic`, `UnknownPartition`, `Unavailable`
        where nobody leads it or the log must be read up to there first."""
        ...

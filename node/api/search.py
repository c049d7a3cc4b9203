"""What the HTTP front asks of the node about where messages are: `Search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from node.api.queue import QueuedMessage
from node.api.rules.rule import everywhere, scoped
from node.api.rules.scope import Scope


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Which messages are meant: all conditions that are given must hold.

    Times are log times, `to_ms` exclusive. `states` (one of them) and `status` are meant for the
    group; without one, for any group, and over all groups.
    """

    message_id: str | None = None
    trace_id: str | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()
    from_ms: int | None = None
    to_ms: int | None = None
    partition: int | None = None
    group: str | None = None
    states: Sequence[str] = ()
    status: str | None = None


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """One event of a message that was found."""

    time_ms: int
    type: str
    attributes: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message, the W3C trace id that it carries, its state for each group by name, and its status
    in GoQueue's words; `events` where they were asked for."""

    message: QueuedMessage
    trace_id: str | None
    states: Mapping[str, str]
    status: str
    events: Sequence[FoundEvent] | None = None


@dataclass(frozen=True, slots=True)
class NotSearched:
    """What of a partition may hold other matches, and why it was not searched."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches, newest first. `following` is, by (topic, partition), below which offset there may be
    more: where it is empty, nothing is left but what `not_searched` names."""

    found: Sequence[FoundMessage]
    following: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    not_searched: Sequence[NotSearched] = ()


@dataclass(frozen=True, slots=True)
class SearchStats:
    """What search hashes take on all nodes that answer, and what they cover."""

    nodes: int
    messages: int
    """Stored in the partitions whose leaders answer."""
    items: int
    disk_bytes: int
    ram_bytes: int
    behind_entries: int
    segments: int
    ram_items: int = 0
    """Of `items`, those in memory, which are written once there are `ram_items_max`, at most."""
    ram_items_max: int = 0
    acked: int = 0
    dead: int = 0
    wait_ms_sum: int = 0
    """From ready to delivered, over `waits` deliveries."""
    waits: int = 0
    timelines: bool = True
    """Whether this node tells timelines."""
    exports: bool = False
    """Whether it exports spans."""


def _found(scope: Scope, method: Any) -> Any:
    async def seen(topics: Sequence[str] | None, which: SearchFilter, **named: Any) -> SearchPage:
        for topic in topics or ():
            scope.principal.require(topic)
        if topics is None and not scope.principal.is_everywhere:
            topics = scope.covered(scope.broker.topics.list_topics())
            if not topics:
                return SearchPage(())
        return cast(SearchPage, await method(topics, which, **named))

    return seen


class Search(Protocol):
    """Finding messages, from any node."""

    @scoped(_found)
    async def search(
        self,
        topics: Sequence[str] | None,
        which: SearchFilter,
        *,
        below: Mapping[tuple[str, int], int] | None,
        limit: int,
        with_events: bool = False,
    ) -> SearchPage:
        """Messages of these topics, of all for None; `below` is an earlier page's `following`.

        Raises `UnknownTopic`, `UnknownPartition`, `UnknownGroup`, and `BadRequest` where there are
        too many partitions to ask.
        """
        ...

    @scoped(everywhere)
    async def search_stats(self) -> SearchStats: ...

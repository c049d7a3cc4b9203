"""How far events of a partition were read: the feed as of an entry, to go on from.

Making one costs reading the log up to there. So those that were used last are kept, and on the way
copies of them, for who reads something again.
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import ReferenceType, ref

from delivery.events.feed import EventFeed
from delivery.events.outcome import Row
from node.partition.host import PartitionHost

CURSORS_MAX = 32
"""On one node, of all partitions; each knows its partition's groups by sets of offsets, and one by
one what is in flight, has failed or is dead."""


class EventCursor:
    """All up to the entry `index` was told; of the next one, offsets up to `offset`, where that is
    not None. Used by one reader at a time."""

    def __init__(self, host: PartitionHost, feed: EventFeed) -> None:
        self.host: ReferenceType[PartitionHost] = ref(host)
        self.feed = feed
        self.index = feed.index
        self.offset: int | None = None
        self.rest: Iterator[Row] | None = None
        """What is left to tell of the entry that the feed has taken last."""

    def stands_at(self, after: int, offset: int | None) -> bool:
        return (self.index, self.offset) == (after, offset)

    def can_reach(self, after: int, offset: int | None) -> bool:
        """Whether it comes there by reading on."""
        return self.rest is None and self.index <= after

    def begin(self, rest: Iterator[Row]) -> None:
        """The feed has taken the next entry."""
        self.rest = rest

    def end(self) -> None:
        """All of it was told, or passed."""
        self.rest, self.offset, self.index = None, None, self.feed.index


class EventCursors:
    """Those that nobody uses now; beyond the bound the one that was used longest ago goes."""

    def __init__(self) -> None:
        self._idle: list[EventCursor] = []

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, host: PartitionHost, after: int, offset: int | None) -> EventCursor | None:
        """The one that stands there, else the one nearest to it from which that can be reached."""
        start = host.state.log_start_index
        own = [c for c in self._idle if c.host() is host and c.feed.index + 1 >= start]
        exact = [c for c in own if c.stands_at(after, offset)]
        near = [c for c in own if c.can_reach(after, offset)]
        found = exact[0] if exact else max(near, key=lambda c: c.index, default=None)
        if found is not None:
            self._idle.remove(found)
        return found

    def give(self, cursor: EventCursor) -> None:
        """It may be used again."""
        self._idle = [c for c in self._idle if c.host() is not None]
        self._idle.append(cursor)
        del self._idle[:-CURSORS_MAX]

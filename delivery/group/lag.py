"""How far a group has come in a partition: what it has yet to settle, for how long, and what a seek
would change.

All of it is counted from sets of offsets, at a cost that hardly depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delivery.config import bounded
from delivery.group.messages import GroupMessages
from delivery.offsets.bitmaps import BitMap64, first_missing, span


@dataclass(frozen=True, slots=True)
class Move:
    """A seek: the group's floor before and after it.

    `replayed` counts messages that would not have come without it, again or at all; `skipped` those
    that would have come, and don't any more.
    """

    before: int
    after: int
    replayed: int
    skipped: int


class GroupStanding(GroupMessages):
    """What a group is asked about its position."""

    def lag(self) -> int:
        """Messages that are due and not settled: ready, in flight, or waiting for anything but
        their time."""
        return len(self._unsettled())

    def oldest_ms(self, now_ms: int, stored_at: Callable[[int], int | None] | None = None) -> int:
        """For how long the oldest of these could have been delivered: since it was stored, due or
        redriven, but not before the group began here. 0 where there is none.

        `stored_at` tells when a message was stored, if it knows; else, and for what outlives the
        log, it may be a second too long.
        """
        since = [min(known.values()) for known in (self.since, self.first) if known]
        offset = self._oldest_dated_by_store()
        if offset is not None:
            stored_ms = None if stored_at is None else stored_at(offset)
            since.append(
                self._stored_ms(offset) if stored_ms is None else max(stored_ms, self.opened_ms)
            )
        return max(0, now_ms - min(since)) if since else 0

    def delayed(self) -> int:
        """Messages that come to the group once they are due."""
        return len(self._hidden(self.base) - self.done)

    def coming(self) -> BitMap64:
        """All that the group is still to get, now or later, or has in flight."""
        return self._unsettled() | (self._hidden(self.base) - self.done)

    def would_seek(self, offset: int) -> Move:
        """What `GroupState.seek` to this offset would do."""
        stored = self._stored
        start = bounded(offset, 0, stored.next_offset)
        first = max(start, stored.log_start_offset)
        over = stored.withdrawn | BitMap64(self.dead)
        before = self.coming()
        below = self._unsettled() | stored.kept
        after = span(first, stored.next_offset) | (below & span(start, first))
        after = (after - over) | self._hidden(start)
        return moved(self.floor, before, first_missing(over, first), after)

    def _oldest_dated_by_store(self) -> int | None:
        """The first unsettled message that could be delivered as soon as it was stored."""
        unsettled = self._unsettled()
        for offset in unsettled & self.timed & self._stored.kept:
            if offset not in self.since and offset not in self.first:
                return offset
        plain = unsettled - self.timed
        return plain.min() if plain else None

    def _unsettled(self) -> BitMap64:
        stored = self._stored
        if self.floor >= stored.next_offset and not self.timed:
            return BitMap64()
        found = span(self.floor, stored.next_offset) | self.timed
        for gone in (self.done, stored.hidden, stored.withdrawn):
            if gone:
                found -= gone
        return found

    def _hidden(self, first: int) -> BitMap64:
        hidden = self._stored.hidden
        return hidden & span(first, self._stored.next_offset) if hidden else BitMap64()


def moved(floor: int, coming: BitMap64, floor_after: int, coming_after: BitMap64) -> Move:
    """A seek, from where the group stood and what was coming before and after it."""
    replayed = coming_after.difference_cardinality(coming)
    return Move(floor, floor_after, replayed, coming.difference_cardinality(coming_after))

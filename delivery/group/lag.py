"""How far a group has come in a partition: what it has yet to settle, for how long, and what a seek
would change.

All of it is counted from sets of offsets, at a cost that hardly depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from delivery.config import bounded
from delivery.group.state import GroupState
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


def lag_count(group: GroupState) -> int:
    """Messages that are due and not settled: ready, in flight, or waiting for anything but
    their time."""
    return len(_unsettled(group))


def lag_ms(
    group: GroupState, now_ms: int, stored_at: Callable[[int], int | None] | None = None
) -> int:
    """For how long the oldest of these could have been delivered: since it was stored, due or
    redriven, but not before the group began here. 0 where there is none.

    `stored_at` tells when a message was stored, if it knows; else, and for what outlives the
    log, it may be a second too long.
    """
    since = [min(known.values()) for known in (group.since, group.first) if known]
    offset = _oldest_dated_by_store(group)
    if offset is not None:
        stored_ms = None if stored_at is None else stored_at(offset)
        since.append(
            group.stored_ms(offset) if stored_ms is None else max(stored_ms, group.opened_ms)
        )
    return max(0, now_ms - min(since)) if since else 0


def delayed_count(group: GroupState) -> int:
    """Messages that come to the group once they are due."""
    return len(_hidden(group, group.base) - group.done)


def coming(group: GroupState) -> BitMap64:
    """All that the group is still to get, now or later, or has in flight."""
    return _unsettled(group) | (_hidden(group, group.base) - group.done)


def would_seek(group: GroupState, offset: int) -> Move:
    """What `GroupState.seek` to this offset would do."""
    stored = group.stored
    start = bounded(offset, 0, stored.next_offset)
    first = max(start, stored.log_start_offset)
    over = stored.withdrawn | BitMap64(group.dead)
    before = coming(group)
    below = _unsettled(group) | stored.compacted
    after = span(first, stored.next_offset) | (below & span(start, first))
    after = (after - over) | _hidden(group, start)
    return moved(group.committed_offset, before, first_missing(over, first), after)


def _oldest_dated_by_store(group: GroupState) -> int | None:
    """The first unsettled message that could be delivered as soon as it was stored."""
    unsettled = _unsettled(group)
    for offset in unsettled & group.timed & group.stored.compacted:
        if offset not in group.since and offset not in group.first:
            return offset
    plain = unsettled - group.timed
    return plain.min() if plain else None


def _unsettled(group: GroupState) -> BitMap64:
    stored = group.stored
    if group.committed_offset >= stored.next_offset and not group.timed:
        return BitMap64()
    found = span(group.committed_offset, stored.next_offset) | group.timed
    for gone in (group.done, stored.hidden, stored.withdrawn):
        if gone:
            found -= gone
    return found


def _hidden(group: GroupState, first: int) -> BitMap64:
    hidden = group.stored.hidden
    return hidden & span(first, group.stored.next_offset) if hidden else BitMap64()


def moved(
    committed_offset: int, coming: BitMap64, committed_after: int, coming_after: BitMap64
) -> Move:
    """A seek, from where the group stood and what was coming before and after it."""
    replayed = coming_after.difference_cardinality(coming)
    return Move(
        committed_offset, committed_after, replayed, coming.difference_cardinality(coming_after)
    )

"""What every group of a partition has settled: the beginning of its log that nobody works on.

Messages that are delayed are no group's yet, and dead letters count as settled: both outlive the
log before them, as they are carried.
"""

from __future__ import annotations

from collections.abc import Iterable

from delivery.group.state import GroupState
from delivery.offsets.bitmaps import BitMap64, first_missing, span
from delivery.state.queue import QueueState


def first_unsettled(group: GroupState) -> int:
    """The first offset, from the group's floor on, that it has to do yet; the partition's end where
    there is none."""
    hidden = group.stored.hidden
    settled = group.done | hidden if hidden else group.done
    return first_missing(settled, group.committed_offset)


def pending_below(groups: Iterable[GroupState], offset: int) -> BitMap64:
    """Messages below this offset that a group has to do all the same, or has in flight: redriven
    ones, and those that came late."""
    below = span(0, offset)
    return BitMap64.union(BitMap64(), *(group.pending(below) for group in groups))


def is_settled(queue: QueueState, index: int, offset: int) -> bool:
    """Whether the log may begin at this entry, and so at this offset, without taking anything from
    a group: there are some, none has anything to do before it, but for what stands elsewhere."""
    groups = queue.groups.values()
    if not groups or any(first_unsettled(group) < offset for group in groups):
        return False
    return all(queue.reappended.get(one, 0) >= index for one in pending_below(groups, offset))

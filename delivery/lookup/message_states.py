"""Which messages of a partition are in a state, for a group: sets of offsets, not one by one.

The words are those of a message's timeline. `acked` is all that a group is done with: what it has
acked, and what it went past. What was stored before a group began, and never was its, has no state
for it. `expired` is all that is past its time, and `cancelled` all that was, also what a group was
done with before. A group that has leases on messages which were withdrawn meanwhile has them in
flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from delivery.group.state import GroupState
from delivery.offsets.bitmaps import BitMap64, span
from delivery.state.queue import QueueState
from delivery.timeline import groups as timeline_groups

STATES = (
    "delayed",
    "ready",
    "in_flight",
    "retrying",
    "acked",
    "dead",
    "cancelled",
    "expired",
)


STATES_OF: Mapping[str, Sequence[str]] = {
    "in_progress": ("ready", "in_flight"),
    "completed": ("acked",),
    "failed": ("dead",),
    "retrying": ("retrying",),
    "delayed": ("delayed",),
    "cancelled": ("cancelled",),
    "expired": ("expired",),
}
"""Of each status, the states of which a message has one at least, for some group."""


def offsets_in(queue: QueueState, state: str, group: GroupState | None) -> BitMap64:
    """Offsets that are stored and in this state for the group; without one, for any group, and for
    nobody where no group has them. The set is the caller's."""
    if group is not None:
        return _of_group(queue, state, group)
    if state in ("delayed", "cancelled", "expired"):
        return _of_message(queue, state)
    found = BitMap64()
    for one in queue.groups.values():
        found |= _of_group(queue, state, one)
    if state == "ready":
        nobodys = stored(queue) - queue.hidden - queue.withdrawn
        for one in queue.groups.values():
            nobodys &= one.never
        found |= nobodys
    return found


def state_of(queue: QueueState, group: GroupState, offset: int) -> str | None:
    """The state of one message that is stored, for one group; None where it never was its."""
    if not group.had(offset):
        return None
    if offset in group.leases:
        return "in_flight"
    if offset in group.dead:
        return "dead"
    if offset in queue.withdrawn:
        return "cancelled" if offset in queue.cancelled else "expired"
    if offset in queue.hidden and offset >= group.base and offset not in group.done:
        return "delayed"
    if not group.pending(BitMap64((offset,))):
        return "acked"
    return "retrying" if group.failures.count(offset) else "ready"


def states_of(queue: QueueState, offset: int) -> dict[str, str]:
    """Of each group by name, the state of one message that is stored; groups whose it never was
    are left out."""
    found = {group.name: state_of(queue, group, offset) for group in queue.groups.values()}
    return {name: state for name, state in found.items() if state is not None}


def status_of(queue: QueueState, offset: int, group: GroupState | None = None) -> str:
    """GoQueue's word for a message's life so far, for all groups, or for one that has it: see
    `delivery.timeline.groups.status_of`."""
    state = None if group is None else state_of(queue, group, offset)
    states = states_of(queue, offset) if group is None or state is None else {group.name: state}
    fate = "delayed" if offset in queue.hidden else ""
    if offset in queue.withdrawn:
        fate = "cancelled" if offset in queue.cancelled else "expired"
    return timeline_groups.status_of(states, fate)


def stored(queue: QueueState) -> BitMap64:
    """Every message that the partition still has."""
    held = BitMap64(queue.reappended)
    return span(queue.log_start_offset, queue.next_offset) | queue.compacted | held


def _of_message(queue: QueueState, state: str) -> BitMap64:
    if state == "delayed":
        return queue.hidden.copy()
    if state == "cancelled":
        return queue.cancelled.copy()
    return queue.withdrawn - queue.cancelled


def _of_group(queue: QueueState, state: str, group: GroupState) -> BitMap64:
    group.look()
    flying = BitMap64(group.leases)
    if state == "in_flight":
        return flying
    dead = BitMap64(group.dead)
    if state == "dead":
        return dead - flying
    delayed = (queue.hidden & span(group.base, queue.next_offset)) - group.done - group.never
    if state == "delayed":
        return delayed
    if state in ("cancelled", "expired"):
        return _of_message(queue, state) - flying - dead - group.never
    pending = group.pending(stored(queue)) - flying - queue.withdrawn
    if state in ("ready", "retrying"):
        failed = BitMap64(group.failures.offsets()) & pending
        return failed if state == "retrying" else pending - failed
    return stored(queue) - pending - flying - dead - delayed - queue.withdrawn - group.never

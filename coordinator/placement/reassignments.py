"""Reassignments: plans that are being carried out, and how far each has come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from coordinator.commands.members import Partition
from coordinator.commands.placement import Reassign, ReassignResult
from coordinator.errors import UnknownReassignment
from goqueue.wire.errors import Busy

RUNNING_MAX = 100
FINISHED_MAX = 100
"""The newest are remembered."""
FINISHED_ROWS_MAX = 100
"""Of one that is over; all are counted."""
RUNNING, CANCELLING, DONE, CANCELLED = "running", "cancelling", "done", "cancelled"
MOVING, ARRIVED, RETURNING, RETURNED, OVERTAKEN, DELETED = (
    "moving",
    "arrived",
    "returning",
    "returned",
    "overtaken",
    "deleted",
)
"""States of a row. `overtaken`: a later plan took over; `deleted`: its topic was."""
REASSIGN, DRAIN, REBALANCE, FACTOR, LEADERS = (
    "reassign",
    "drain",
    "rebalance",
    "replication_factor",
    "leaders",
)
"""Causes."""


class Move(msgspec.Struct, array_like=True):
    """One partition of a reassignment, by brokers, the preferred leader first."""

    topic: int
    partition: int
    before: list[str]
    after: list[str]
    state: str = MOVING

    @property
    def is_over(self) -> bool:
        return self.state not in (MOVING, RETURNING)


class Reassignment(msgspec.Struct, array_like=True):
    """One plan, named by the index of its command; `ended_ms` is 0 while it runs."""

    id: int
    cause: str
    brokers: list[str]
    throttle_bytes_s: int
    request: int
    created_ms: int
    total: int
    """Partitions in all."""
    left: int
    """Those that are on their way."""
    moves: list[Move]
    state: str = RUNNING
    ended_ms: int = 0

    @property
    def is_running(self) -> bool:
        return self.state in (RUNNING, CANCELLING)


class Reassignments:
    """Those that run, and the last ones that ended. A partition is on its way in at most one."""

    def __init__(self, known: Iterable[Reassignment] = ()) -> None:
        self.by_id = {one.id: one for one in known}
        self._of: dict[Partition, tuple[Reassignment, Move]] = {
            (move.topic, move.partition): (one, move)
            for one in self.by_id.values()
            for move in one.moves
            if one.is_running and not move.is_over
        }

    def running(self) -> list[Reassignment]:
        """Oldest first."""
        return [one for one in self.by_id.values() if one.is_running]

    def numbered(self, id: int) -> Reassignment:
        """Raises UnknownReassignment."""
        known = self.by_id.get(id)
        if known is None:
            raise UnknownReassignment(id)
        return known

    def requested(self, request: int) -> Reassignment | None:
        """The one that this request made already."""
        found = (one for one in self.by_id.values() if one.request == request != 0)
        return next(found, None)

    def of(self, partition: Partition) -> Reassignment | None:
        """The one that moves this partition now."""
        found = self._of.get(partition)
        return None if found is None else found[0]

    def throttle(self, node: str, bytes_s: int) -> None:
        """The drains of this broker that run go on at another rate."""
        for one in self.running():
            if one.cause == DRAIN and node in one.brokers:
                one.throttle_bytes_s = bytes_s

    def check_room(self) -> None:
        """Raises Busy."""
        if len(self.running()) >= RUNNING_MAX:
            raise Busy(f"{RUNNING_MAX} reassignments are running already")

    def begin(
        self, id: int, time_ms: int, command: Reassign, moves: Sequence[Move]
    ) -> Reassignment:
        """A new one; it takes over what others were moving."""
        for move in moves:
            self.ended((move.topic, move.partition), time_ms, OVERTAKEN)
        begun = Reassignment(
            id,
            command.cause,
            command.brokers,
            command.throttle_bytes_s,
            command.request,
            time_ms,
            len(moves),
            len(moves),
            list(moves),
        )
        self.by_id[id] = begun
        for move in moves:
            self._of[move.topic, move.partition] = (begun, move)
        if not moves:
            self._end(begun, time_ms)
        return begun

    def settled(self, partition: Partition, time_ms: int) -> None:
        """The partition is where it should be."""
        found = self._of.get(partition)
        if found is not None:
            returning = found[1].state == RETURNING
            self.ended(partition, time_ms, RETURNED if returning else ARRIVED)

    def ended(self, partition: Partition, time_ms: int, state: str) -> None:
        """Nothing is left to do of a partition's move, if there was one."""
        found = self._of.pop(partition, None)
        if found is None:
            return
        one, move = found
        move.state = state
        one.left -= 1
        if one.left == 0:
            self._end(one, time_ms)

    def _end(self, one: Reassignment, time_ms: int) -> None:
        one.state = CANCELLED if one.state == CANCELLING else DONE
        one.ended_ms = max(time_ms, 1)
        one.moves = one.moves[:FINISHED_ROWS_MAX]
        over = [known.id for known in self.by_id.values() if not known.is_running]
        for id in over[: max(0, len(over) - FINISHED_MAX)]:
            del self.by_id[id]


def result_of(one: Reassignment) -> ReassignResult:
    """What whoever asked is told."""
    return ReassignResult(one.id, one.state, one.total)

"""What a consumer has received and not yet begun: bounded, highest lane first.

A buffer would defeat priority if it were first in, first out, or if it were full. So it is ordered
by lane, and while there is anything in it that a higher lane could overtake, it wants messages of
those higher lanes: they go ahead, and what is over the bound then goes back, from the end of the
lowest lane. Within a lane messages stay as they came, but for first attempts of one partition,
which are in the order of their offsets also where two answers overtook each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from goqueue.models.groups import TopicPartition
from goqueue.models.queued import Received
from goqueue.wire.layout import LANES

LANE_WAIT_S = 30.0
LANE_SHARE = 5
"""One of so many messages taken may be one that has waited longer than `LANE_WAIT_S`."""

LOWEST = len(LANES) - 1


@dataclass(slots=True)
class Held:
    """A message whose lease lasts until `deadline_s`, or, where that is infinite, as long as the
    `stream` that it came over; it came at `came_s`. With the stream its lease `is_lost`."""

    message: Received
    came_s: float
    deadline_s: float
    stream: object | None = None
    is_lost: bool = False
    place: TopicPartition = field(init=False)

    def __post_init__(self) -> None:
        self.place = TopicPartition(self.message.topic, self.message.partition)


@dataclass(frozen=True, slots=True)
class Want:
    """Up to `limit` messages of lanes down to `lowest`."""

    limit: int
    lowest: int


class Prefetch:
    """The buffer. Its time is whatever clock its callers use."""

    def __init__(self, bound: int) -> None:
        if bound < 1:
            raise ValueError(f"prefetch {bound}: at least 1")
        self.bound = bound
        self._lanes: list[list[Held]] = [[] for _ in LANES]
        self._size = 0
        self._turn = 0

    def __len__(self) -> int:
        return self._size

    def add(self, held: Held) -> None:
        """Put it behind its lane. It may be over the bound then: see `overflow`."""
        lane = self._lanes[held.message.lane]
        lane.insert(_position(lane, held), held)
        self._size += 1

    def take(self, now_s: float) -> Held | None:
        """The next one to begin: the first of the highest lane, or now and then the one that has
        waited for too long behind others."""
        waiting = [lane[0] for lane in self._lanes if lane]
        if not waiting:
            return None
        self._turn = (self._turn + 1) % LANE_SHARE
        chosen = waiting[0]
        if self._turn == 0:
            oldest = min(waiting, key=lambda held: held.came_s)
            if now_s - oldest.came_s > LANE_WAIT_S:
                chosen = oldest
        self._lanes[chosen.message.lane].pop(0)
        self._size -= 1
        return chosen

    def overflow(self) -> list[Held]:
        """Remove what is over the bound, from the end of the lowest lane."""
        over: list[Held] = []
        for lane in reversed(self._lanes):
            while lane and self._size > self.bound:
                over.append(lane.pop())
                self._size -= 1
        return over

    def remove(self, which: Callable[[Held], bool]) -> list[Held]:
        """Remove all of which this is true."""
        found = [held for lane in self._lanes for held in lane if which(held)]
        for lane in self._lanes:
            lane[:] = [held for held in lane if not which(held)]
        self._size -= len(found)
        return found

    def drop(self, places: Collection[TopicPartition]) -> list[Held]:
        """Remove all of these partitions."""
        return self.remove(lambda held: held.place in places)

    def came_before(self, time_s: float) -> list[Held]:
        """Remove what has waited since before this time."""
        return self.remove(lambda held: held.came_s < time_s)

    def all(self) -> list[Held]:
        """What is held, the next one first."""
        return [held for lane in self._lanes for held in lane]

    def want(self) -> Want | None:
        """What to ask for now: anything when it is half empty; else what would go ahead of the
        lowest lane that it holds, as much as could take that lane's place."""
        held = self._size
        if held * 2 <= self.bound:
            return Want(self.bound - held, LOWEST)
        lowest = max(lane for lane in range(len(LANES)) if self._lanes[lane])
        if lowest == 0:
            return None
        return Want(len(self._lanes[lowest]) + max(0, self.bound - held), lowest - 1)


def _position(lane: list[Held], new: Held) -> int:
    at = len(lane)
    if new.message.attempt > 1:
        return at
    for position in range(len(lane) - 1, -1, -1):
        other = lane[position]
        if other.message.attempt > 1 or other.place != new.place:
            continue
        if other.message.offset < new.message.offset:
            break
        at = position
    return at

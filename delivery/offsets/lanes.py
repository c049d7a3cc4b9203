"""What is ready in each lane of a group, and which of it goes out next.

Inside a lane it is first come first served: offset order, in which a message that is given back
comes first again, or, given back "to the back", after everything that was stored by then.

Across lanes it is strict, with a bound on waiting: when a lower lane's head has been ready for
longer than `max_wait_ms`, one delivery in `share` goes to the head that has waited longest. So
with a group that takes `r` messages a second of the partition, a message that has `B` older
messages ready in its own and the other lower lanes waits at most
`max_wait + share * (B + 1) / r`; one of those that comes again counts again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, takewhile

from delivery.config import LANES_COUNT
from delivery.offsets.bitmaps import BitMap64

LOOKED_AT_MAX = 64
"""Messages that came back or were delayed, at the head of a lane, of which each one's wait is
looked at; what is behind them may have waited since it was stored."""
STALE_MAX = 64
"""Places in `_back` of messages that are gone, beyond as many as are there."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """The bound on waiting: `turn` counts deliveries, `since` tells when an offset became ready,
    `stored` when it was stored; of those in `later` the one is later than the other."""

    now_ms: int
    max_wait_ms: int
    share: int
    turn: int
    since: Callable[[int], int]
    stored: Callable[[int], int]
    later: Container[int]


class ReadyLanes:
    """The ready messages of one group in one partition."""

    def __init__(self) -> None:
        self._front = [BitMap64() for _ in range(LANES_COUNT)]
        self._back: list[deque[tuple[int, int, int]]] = [deque() for _ in range(LANES_COUNT)]
        """(barrier, offset, ticket): in front of it comes what is below the barrier, which is the
        partition's end at the time."""
        self._behind: dict[int, tuple[int, int]] = {}
        """Lane and ticket of each offset that is in `_back`; other tickets are stale."""
        self._tickets = self._stale = 0

    def __contains__(self, offset: int) -> bool:
        return offset in self._behind or any(offset in front for front in self._front)

    def __len__(self) -> int:
        return sum(map(len, self._front)) + len(self._behind)

    def counts(self) -> list[int]:
        """How many are ready in each lane."""
        found = [len(front) for front in self._front]
        for lane, _ in self._behind.values():
            found[lane] += 1
        return found

    def add(self, lane: int, offset: int) -> None:
        self._front[lane].add(offset)

    def add_all(self, lane: int, offsets: BitMap64) -> None:
        self._front[lane] |= offsets

    def add_behind(self, lane: int, offset: int, end: int) -> None:
        """Ready after everything that is stored: the partition's end is `end`."""
        self._tickets += 1
        self._back[lane].append((end, offset, self._tickets))
        self._behind[offset] = (lane, self._tickets)

    def discard(self, offset: int) -> bool:
        """Take one out; whether it was ready."""
        if offset in self._behind:
            self._drop_behind([offset])
            return True
        for front in self._front:
            if offset in front:
                front.remove(offset)
                return True
        return False

    def among(self, wanted: BitMap64) -> BitMap64:
        """Those of the offsets that are ready."""
        found = BitMap64(self._among_behind(wanted))
        for front in self._front:
            found |= front & wanted
        return found

    def take(self, wanted: BitMap64) -> BitMap64:
        """Take these out; those that were ready."""
        taken = BitMap64()
        for front in self._front:
            if front:
                hit = front & wanted
                if hit:
                    front -= hit
                    taken |= hit
        if self._behind:
            behind = self._among_behind(wanted)
            self._drop_behind(behind)
            taken.update(behind)
        return taken

    def heads(self) -> list[int | None]:
        """What each lane would give next."""
        return [next(self._in_order(lane), None) for lane in range(LANES_COUNT)]

    def place(self, offset: int) -> tuple[int, int] | None:
        """Its lane, and how many of that lane come before it; None for one that is not ready."""
        known = self._behind.get(offset)
        if known is not None:
            lane = known[0]
            for before, (barrier, behind, _) in enumerate(self._live(lane)):
                if behind == offset:
                    return lane, before + self._front[lane].range_cardinality(0, barrier)
        for lane, front in enumerate(self._front):
            if offset in front:
                back = takewhile(lambda place: place[0] <= offset, self._live(lane))
                return lane, front.rank(offset) - 1 + sum(1 for _ in back)
        return None

    def waits_since(self, lane: int, fairness: Fairness) -> int | None:
        """Since when the lane is taken to have something ready: with `max_wait_ms` more, the share
        of what has waited too long may go to it. None for an empty lane."""
        head = next(self._in_order(lane), None)
        if head is None:
            return None
        return self._oldest(lane, fairness) if head in fairness.later else fairness.stored(head)

    def select(
        self, limit: int, fairness: Fairness, lowest_lane: int = LANES_COUNT - 1
    ) -> list[int]:
        """The next offsets in the order of delivery, of no lane below that one; none is taken."""
        lanes = [n for n in range(lowest_lane + 1) if self._front[n] or self._back[n]]
        if len(lanes) <= 1 or limit <= 0:
            return list(islice(self._in_order(lanes[0]), limit)) if lanes and limit > 0 else []
        views = [_Lane(self._in_order(n), partial(self._oldest, n, fairness)) for n in lanes]
        return _Selection(views, fairness).take(limit)

    def dump(self) -> tuple[list[BitMap64], list[list[tuple[int, int]]]]:
        """For a snapshot: what is ready in offset order in each lane, and what comes behind."""
        backs = [[(end, offset) for end, offset, _ in self._live(n)] for n in range(LANES_COUNT)]
        return [front.copy() for front in self._front], backs

    def load(self, data: tuple[list[bytes], list[list[tuple[int, int]]]]) -> None:
        """Replace everything by what `dump` told."""
        fronts, backs = data
        self._front = [BitMap64.deserialize(front) for front in fronts]
        self._back = [deque() for _ in range(LANES_COUNT)]
        self._behind = {}
        for lane, back in enumerate(backs):
            for end, offset in back:
                self.add_behind(lane, offset, end)

    def _live(self, lane: int) -> Iterator[tuple[int, int, int]]:
        for place in self._back[lane]:
            if self._behind.get(place[1]) == (lane, place[2]):
                yield place

    def _oldest(self, lane: int, fairness: Fairness) -> int:
        """Since when the lane has had something ready, no later than in truth.

        Offsets rise with the time at which they were stored; `_back` is in the order of time.
        """
        since = [fairness.since(offset) for _, offset, _ in islice(self._live(lane), 1)]
        for looked_at, offset in enumerate(self._front[lane]):
            if looked_at == LOOKED_AT_MAX or offset not in fairness.later:
                since.append(fairness.stored(offset))
                break
            since.append(fairness.since(offset))
        return min(since)

    def _in_order(self, lane: int) -> Iterator[int]:
        if not self._back[lane]:
            return iter(self._front[lane])
        return self._merged(lane)

    def _merged(self, lane: int) -> Iterator[int]:
        front, back = iter(self._front[lane]), self._live(lane)
        ahead, behind = next(front, None), next(back, None)
        while True:
            if behind is not None and (ahead is None or ahead >= behind[0]):
                yield behind[1]
                behind = next(back, None)
            elif ahead is not None:
                yield ahead
                ahead = next(front, None)
            else:
                return

    def _among_behind(self, wanted: BitMap64) -> list[int]:
        if len(wanted) < len(self._behind):
            return [offset for offset in wanted if offset in self._behind]
        return [offset for offset in self._behind if offset in wanted]

    def _drop_behind(self, gone: Sequence[int]) -> None:
        for offset in gone:
            del self._behind[offset]
        self._stale += len(gone)
        if self._stale > STALE_MAX + len(self._behind):
            self._back = [deque(self._live(lane)) for lane in range(LANES_COUNT)]
            self._stale = 0


class _Lane:
    """What one lane gives next, as far as it was looked at."""

    def __init__(self, offsets: Iterator[int], oldest: Callable[[], int]) -> None:
        self._offsets = offsets
        self._oldest = oldest
        self._oldest_ms: int | None = None
        self._since_ms: int | None = None
        self.head: int | None = next(offsets, None)

    def pop(self) -> int:
        head = self.head
        assert head is not None
        self.head = next(self._offsets, None)
        self._since_ms = None
        return head

    def pop_many(self, limit: int) -> list[int]:
        found = [self.pop()]
        if self.head is not None and limit > 1:
            found += [self.head, *islice(self._offsets, limit - 2)]
            self.head = next(self._offsets, None)
        return found

    def since_ms(self, fairness: Fairness) -> int:
        """Since when its head is taken to be ready."""
        if self._since_ms is None:
            assert self.head is not None
            later = self.head in fairness.later
            self._since_ms = self.oldest_ms() if later else fairness.stored(self.head)
        return self._since_ms

    def oldest_ms(self) -> int:
        """`ReadyLanes._oldest`, as of the beginning."""
        if self._oldest_ms is None:
            self._oldest_ms = self._oldest()
        return self._oldest_ms


class _Selection:
    """One choice among several lanes, highest first."""

    def __init__(self, lanes: list[_Lane], fairness: Fairness) -> None:
        self._lanes = lanes
        self._fairness = fairness
        self._top = 0

    def take(self, limit: int) -> list[int]:
        found: list[int] = []
        fairness, turn = self._fairness, self._fairness.turn
        while len(found) < limit and self._find_top():
            aged = self._aged()
            if aged is None:
                found += self._lanes[self._top].pop_many(limit - len(found))
                continue
            while len(found) < limit and aged is not None:
                shared = (turn + len(found)) % fairness.share == fairness.share - 1
                found.append(self._lanes[aged if shared else self._top].pop())
                if not self._find_top():
                    break
                aged = self._aged()
        return found

    def _find_top(self) -> bool:
        while self._top < len(self._lanes) and self._lanes[self._top].head is None:
            self._top += 1
        return self._top < len(self._lanes)

    def _aged(self) -> int | None:
        """The lower lane that has waited longest, if that is too long."""
        fairness = self._fairness
        oldest: tuple[int, int] | None = None
        found = None
        for number in range(self._top + 1, len(self._lanes)):
            lane = self._lanes[number]
            if lane.head is None:
                continue
            since = lane.since_ms(fairness)
            late = since + fairness.max_wait_ms <= fairness.now_ms
            if late and (oldest is None or (since, lane.head) < oldest):
                oldest, found = (since, lane.head), number
        return found

"""What is ready in each lane of a group, and which of it goes out next.

Inside a lane it is first come first served: offset order, in which a message that is given back
comes first again, or, given back "to the back", after everything that was stored by then.

Across lanes it is strict, with a bound on waiting: when a lower lane's head has been ready for
longer than `max_wait_ms`, one delivery in `share` goes to the head that has waited longest. So
with a group that takes `r` messages a second of the partition, a message that has `B` older
messages ready in its own and the other lower lanes waits at most
`max_wait + share * (B + 1) / r`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from delivery.bitmaps import BitMap64, remove_below
from delivery.config import LANES_COUNT


@dataclass(frozen=True, slots=True)
class Fairness:
    """The bound on waiting: `turn` counts deliveries, `since` tells when an offset became ready."""

    now_ms: int
    max_wait_ms: int
    share: int
    turn: int
    since: Callable[[int], int]


class ReadyLanes:
    """The ready messages of one group in one partition."""

    def __init__(self) -> None:
        self._front = [BitMap64() for _ in range(LANES_COUNT)]
        self._back: list[deque[tuple[int, int]]] = [deque() for _ in range(LANES_COUNT)]
        """(what must not be there below it in front, offset): its barrier is the partition's end
        at the time."""
        self._behind: dict[int, int] = {}
        """Lane of each offset in `_back`."""

    def __contains__(self, offset: int) -> bool:
        return offset in self._behind or any(offset in front for front in self._front)

    def __len__(self) -> int:
        return sum(map(len, self._front)) + len(self._behind)

    def counts(self) -> list[int]:
        """How many are ready in each lane."""
        found = [len(front) for front in self._front]
        for lane, back in enumerate(self._back):
            found[lane] += len(back)
        return found

    def add(self, lane: int, offset: int) -> None:
        self._front[lane].add(offset)

    def add_all(self, lane: int, offsets: BitMap64) -> None:
        self._front[lane] |= offsets

    def add_behind(self, lane: int, offset: int, end: int) -> None:
        """Ready after everything that is stored: the partition's end is `end`."""
        self._back[lane].append((end, offset))
        self._behind[offset] = lane

    def discard(self, offset: int) -> bool:
        """Take one out; whether it was ready."""
        if offset in self._behind:
            self._drop_behind({offset})
            return True
        for front in self._front:
            if offset in front:
                front.remove(offset)
                return True
        return False

    def among(self, wanted: BitMap64) -> BitMap64:
        """Those of the offsets that are ready."""
        found = BitMap64(offset for offset in self._behind if offset in wanted)
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
            behind = [offset for offset in self._behind if offset in wanted]
            if behind:
                self._drop_behind(set(behind))
                taken.update(behind)
        return taken

    def take_below(self, offset: int) -> BitMap64:
        """Take all below the offset out."""
        taken = BitMap64()
        for front in self._front:
            if front and front.min() < offset:
                low = BitMap64(front)
                if low.max() >= offset:
                    low.remove_range(offset, low.max() + 1)
                taken |= low
                remove_below(front, offset)
        behind = {found for found in self._behind if found < offset}
        if behind:
            self._drop_behind(behind)
            taken.update(behind)
        return taken

    def heads(self) -> list[int | None]:
        """What each lane would give next."""
        return [next(self._in_order(lane), None) for lane in range(LANES_COUNT)]

    def select(self, limit: int, fairness: Fairness) -> list[int]:
        """The next offsets in the order of delivery; nothing is taken."""
        lanes = [n for n in range(LANES_COUNT) if self._front[n] or self._back[n]]
        if len(lanes) <= 1 or limit <= 0:
            return list(islice(self._in_order(lanes[0]), limit)) if lanes and limit > 0 else []
        return _Selection([self._in_order(lane) for lane in lanes], fairness).take(limit)

    def dump(self) -> tuple[list[BitMap64], list[list[tuple[int, int]]]]:
        """For a snapshot: what is ready in offset order in each lane, and what comes behind."""
        return [front.copy() for front in self._front], [list(back) for back in self._back]

    def load(self, data: tuple[list[bytes], list[list[tuple[int, int]]]]) -> None:
        """Replace everything by what `dump` told."""
        fronts, backs = data
        self._front = [BitMap64.deserialize(front) for front in fronts]
        self._back = [deque(back) for back in backs]
        self._behind = {offset: lane for lane, back in enumerate(backs) for _, offset in back}

    def _in_order(self, lane: int) -> Iterator[int]:
        if not self._back[lane]:
            return iter(self._front[lane])
        return self._merged(lane)

    def _merged(self, lane: int) -> Iterator[int]:
        front, back = iter(self._front[lane]), iter(self._back[lane])
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

    def _drop_behind(self, gone: set[int]) -> None:
        for lane in {self._behind.pop(offset) for offset in gone}:
            back = self._back[lane]
            while back and back[0][1] in gone:
                back.popleft()
            if any(offset in gone for _, offset in back):
                self._back[lane] = deque(item for item in back if item[1] not in gone)


class _Selection:
    """One choice among several lanes, highest first."""

    def __init__(self, lanes: list[Iterator[int]], fairness: Fairness) -> None:
        self._lanes = lanes
        self._fairness = fairness
        self._heads: list[int | None] = [next(lane, None) for lane in lanes]
        self._top = 0

    def take(self, limit: int) -> list[int]:
        found: list[int] = []
        fairness, turn = self._fairness, self._fairness.turn
        while len(found) < limit and self._find_top():
            aged = self._aged()
            if aged is None:
                self._drain(found, limit)
                continue
            while len(found) < limit and aged is not None and self._find_top():
                if (turn + len(found)) % fairness.share == fairness.share - 1:
                    found.append(self._pop(aged))
                else:
                    found.append(self._pop(self._top))
                if not self._find_top():
                    break
                aged = self._aged()
        return found

    def _drain(self, found: list[int], limit: int) -> None:
        """The highest lane's messages, as many as it has and are wanted."""
        head = self._heads[self._top]
        assert head is not None
        found.append(head)
        found += islice(self._lanes[self._top], limit - len(found))
        self._heads[self._top] = next(self._lanes[self._top], None)

    def _find_top(self) -> bool:
        while self._top < len(self._lanes) and self._heads[self._top] is None:
            self._top += 1
        return self._top < len(self._lanes)

    def _aged(self) -> int | None:
        """The lower lane whose head has waited longest, if that is too long."""
        oldest: tuple[int, int] | None = None
        found = None
        for lane in range(self._top + 1, len(self._lanes)):
            head = self._heads[lane]
            if head is None:
                continue
            since = self._fairness.since(head)
            late = since + self._fairness.max_wait_ms <= self._fairness.now_ms
            if late and (oldest is None or (since, head) < oldest):
                oldest, found = (since, head), lane
        return found

    def _pop(self, lane: int) -> int:
        head = self._heads[lane]
        assert head is not None
        self._heads[lane] = next(self._lanes[lane], None)
        return head

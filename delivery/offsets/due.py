"""What happens when: runs of offsets by time, the near ones in order, the far in arrays.

A far run costs 24 bytes in the bucket of its ten seconds, untouched until its time is near; then
the bucket is sorted. Adding and taking cost the same however much is waiting.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator

BUCKET_MS = 10_000
NEAR_TAKEN_MAX = 1024
"""Runs that were taken and still lie before the others, however few those are."""

Run = tuple[int, int, int]
"""(time in ms, first offset, how many)."""


class _Bucket:
    __slots__ = ("counts", "firsts", "next_ms", "times")

    def __init__(self) -> None:
        self.times = array("Q")
        self.firsts = array("Q")
        self.counts = array("Q")
        self.next_ms = 1 << 63

    def add(self, time_ms: int, first: int, count: int) -> None:
        self.times.append(time_ms)
        self.firsts.append(first)
        self.counts.append(count)
        self.next_ms = min(self.next_ms, time_ms)

    def copy(self) -> _Bucket:
        found = _Bucket()
        found.times, found.firsts, found.counts = self.times[:], self.firsts[:], self.counts[:]
        found.next_ms = self.next_ms
        return found

    def runs(self) -> Iterator[Run]:
        return zip(self.times, self.firsts, self.counts, strict=True)


class DueTimes:
    """Runs of offsets, each due once. None is removed alone before its time: whoever takes a run
    knows whether it still matters, and lets go of those that don't when they are too many."""

    def __init__(self) -> None:
        self._near: list[Run] = []
        self._taken = 0
        """Runs at the beginning of `_near` that were taken."""
        self._near_until = 0
        self._far: dict[int, _Bucket] = {}
        self._far_order: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        """Runs that wait, those that no longer matter included."""
        return self._count

    def add(self, time_ms: int, first: int, count: int = 1) -> None:
        """Let these offsets fall due at this time."""
        self._count += 1
        if time_ms < self._near_until:
            insort(self._near, (time_ms, first, count), lo=self._taken)
            return
        number = time_ms // BUCKET_MS
        bucket = self._far.get(number)
        if bucket is None:
            bucket = self._far[number] = _Bucket()
            heapq.heappush(self._far_order, number)
        bucket.add(time_ms, first, count)

    def pop(self, now_ms: int) -> list[Run]:
        """Takes the runs that are due at `now_ms`, in the order of time, then of offset."""
        while self._far_order and self._far_order[0] * BUCKET_MS <= now_ms:
            self._bring_near()
        found = self._due(now_ms)
        self._taken += len(found)
        self._count -= len(found)
        if self._taken > NEAR_TAKEN_MAX and 2 * self._taken > len(self._near):
            del self._near[: self._taken]
            self._taken = 0
        return found

    def due(self, now_ms: int) -> list[Run]:
        """What `pop` would take, left where it is."""
        if self._far_order and self._far_order[0] * BUCKET_MS <= now_ms:
            far = [run for n in self._far_order for run in self._far[n].runs() if run[0] <= now_ms]
            return self._due(now_ms) + sorted(far)
        return self._due(now_ms)

    def next_ms(self) -> int | None:
        """When the next run is due."""
        if self._taken < len(self._near):
            return self._near[self._taken][0]
        return self._far[self._far_order[0]].next_ms if self._far_order else None

    def runs(self) -> Iterator[Run]:
        """All runs in the order of time, then of offset."""
        yield from self._near[self._taken :]
        for number in sorted(self._far_order):
            yield from sorted(self._far[number].runs())

    def time_of(self, offset: int) -> int | None:
        """When the offset falls due; looks at every run."""
        for time_ms, first, count in self._near[self._taken :]:
            if first <= offset < first + count:
                return time_ms
        for bucket in self._far.values():
            for time_ms, first, count in bucket.runs():
                if first <= offset < first + count:
                    return time_ms
        return None

    def keep(self, wanted: Callable[[int, int], bool]) -> None:
        """Let go of the runs (first offset, how many) that are not wanted; looks at every one."""
        left = [run for run in self.runs() if wanted(run[1], run[2])]
        self.__init__()  # type: ignore[misc]
        self._add_all(left)

    def copy(self) -> DueTimes:
        """The same runs, which go their own way."""
        found = DueTimes()
        found._near, found._near_until = self._near[self._taken :], self._near_until
        found._far = {number: bucket.copy() for number, bucket in self._far.items()}
        found._far_order, found._count = list(self._far_order), self._count
        return found

    def dump(self) -> bytes:
        """All runs as 24 bytes each, in order: equal wherever the same runs wait."""
        return array("Q", [cell for run in self.runs() for cell in run]).tobytes()

    def load(self, data: bytes) -> None:
        """Replaces everything by what `dump` told."""
        self.__init__()  # type: ignore[misc]
        cells = array("Q")
        cells.frombytes(data)
        self._add_all(zip(cells[::3], cells[1::3], cells[2::3], strict=True))

    def _add_all(self, runs: Iterable[Run]) -> None:
        for time_ms, first, count in runs:
            self.add(time_ms, first, count)

    def _bring_near(self) -> None:
        number = heapq.heappop(self._far_order)
        bucket = self._far.pop(number)
        self._near_until = max(self._near_until, (number + 1) * BUCKET_MS)
        self._near = [*self._near[self._taken :], *sorted(bucket.runs())]
        self._taken = 0

    def _due(self, now_ms: int) -> list[Run]:
        end = bisect_left(self._near, (now_ms + 1, 0, 0), lo=self._taken)
        return self._near[self._taken : end]

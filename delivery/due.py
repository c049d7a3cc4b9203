"""What happens when: runs of offsets by time, the near ones in a heap, the far in sorted arrays.

A far run costs 24 bytes in the bucket of its ten seconds, untouched until its time is near; then
the bucket goes into the heap. Adding and taking cost the same however much is waiting.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Iterator

BUCKET_MS = 10_000

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
            heapq.heappush(self._near, (time_ms, first, count))
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
        found: list[Run] = []
        near = self._near
        while near and near[0][0] <= now_ms:
            found.append(heapq.heappop(near))
        self._count -= len(found)
        return found

    def next_ms(self) -> int | None:
        """When the next run is due."""
        if self._near:
            return self._near[0][0]
        return self._far[self._far_order[0]].next_ms if self._far_order else None

    def runs(self) -> Iterator[Run]:
        """All runs in the order of time, then of offset."""
        yield from sorted(self._near)
        for number in sorted(self._far_order):
            yield from sorted(self._far[number].runs())

    def time_of(self, offset: int) -> int | None:
        """When the offset falls due; looks at every run."""
        for time_ms, first, count in self._near:
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
        found._near, found._near_until = list(self._near), self._near_until
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
        if self._near:
            for run in bucket.runs():
                heapq.heappush(self._near, run)
        else:
            self._near = list(bucket.runs())
            heapq.heapify(self._near)

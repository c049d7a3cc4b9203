"""Messages in flight: each leased to a member until it is settled, given back, or too late."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from delivery.entries.ops import StreamId
from delivery.group.rules import NO_DEADLINE

OpenLease = tuple[int, int, str, list[int]]
"""(delivery, deadline in ms, member, offsets): one lease in a snapshot."""
StreamLease = tuple[int, int, int, int, str, list[int]]
"""As `OpenLease`, of a stream: its run and its number stand before."""
OVER_MAX = 1000
"""Leases that are over and still in the heap, beyond as many as there are messages in flight."""


@dataclass(slots=True, eq=False)
class Lease:
    """Messages of one delivery that have one deadline, or none; `left` of them are still in flight.
    One of a stream is over when the stream is."""

    delivery: int
    deadline_ms: int
    member: str
    offsets: Sequence[int]
    left: int
    stream: StreamId | None = None


class Leases:
    """The leases of one group in one partition, by offset."""

    def __init__(self) -> None:
        self._by_offset: dict[int, Lease] = {}
        self._by_deadline: list[tuple[int, int, Lease]] = []
        self._streams = Counter[StreamId]()
        """How many messages each stream has in flight, of those that have any."""
        self._made = self._over = 0

    def __len__(self) -> int:
        return len(self._by_offset)

    def __contains__(self, offset: int) -> bool:
        return offset in self._by_offset

    def get(self, offset: int) -> Lease | None:
        return self._by_offset.get(offset)

    def __iter__(self) -> Iterator[int]:
        return iter(self._by_offset)

    def of_delivery(self, delivery: int) -> list[int]:
        """What is still in flight of a delivery."""
        return [o for o, lease in self._by_offset.items() if lease.delivery == delivery]

    def of_others(self, member: str) -> list[int]:
        """What is in flight of anyone but this member, in order: on every replica the same."""
        return sorted(o for o, lease in self._by_offset.items() if lease.member != member)

    def of_streams(self, are_ended: Callable[[StreamId | None], bool]) -> list[int]:
        """What these streams have in flight, in order: on every replica the same."""
        if not any(map(are_ended, self._streams)):
            return []
        return sorted(o for o, lease in self._by_offset.items() if are_ended(lease.stream))

    @property
    def runs(self) -> set[int]:
        """Those whose streams have messages in flight."""
        return {stream.run for stream in self._streams}

    def count_of(self, member: str) -> int:
        """How many messages this member has in flight."""
        return sum(lease.member == member for lease in self._by_offset.values())

    def open(
        self,
        delivery: int,
        deadline_ms: int,
        member: str,
        offsets: Sequence[int],
        stream: StreamId | None = None,
    ) -> None:
        """Lease these messages, none of which is leased."""
        lease = Lease(delivery, deadline_ms, member, offsets, len(offsets), stream)
        self._by_offset.update(dict.fromkeys(offsets, lease))
        if stream is not None:
            self._streams[stream] += len(offsets)
        if deadline_ms != NO_DEADLINE:
            self._made += 1
            heapq.heappush(self._by_deadline, (deadline_ms, self._made, lease))

    def end(self, offset: int) -> None:
        """The message is in flight no longer."""
        lease = self._by_offset.pop(offset)
        lease.left -= 1
        stream = lease.stream
        if stream is not None:
            self._streams[stream] -= 1
            if not self._streams[stream]:
                del self._streams[stream]
        if not lease.left:
            lease.offsets = ()
            self._over += lease.deadline_ms != NO_DEADLINE
            if self._over > OVER_MAX + len(self._by_offset):
                self._by_deadline = [item for item in self._by_deadline if item[2].left]
                heapq.heapify(self._by_deadline)
                self._over = 0

    def next_deadline_ms(self) -> int | None:
        """When the first lease is over."""
        heap = self._by_deadline
        while heap and not heap[0][2].left:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def overdue(self, now_ms: int, limit: int) -> list[tuple[int, list[int]]]:
        """(delivery, offsets) of leases whose deadline has passed."""
        first = self.next_deadline_ms()
        if first is None or first > now_ms:
            return []
        found: list[tuple[int, list[int]]] = []
        for _, _, lease in sorted(item for item in self._by_deadline if item[0] <= now_ms):
            offsets = [o for o in lease.offsets if self._by_offset.get(o) is lease][:limit]
            if offsets:
                found.append((lease.delivery, offsets))
                limit -= len(offsets)
            if limit <= 0:
                break
        return found

    def dump(self) -> list[OpenLease]:
        """For a snapshot, but for those of streams: equal wherever the same messages are leased."""
        merged: dict[tuple[int, int, str], list[int]] = {}
        for offset, lease in self._by_offset.items():
            if lease.stream is None:
                key = lease.delivery, lease.deadline_ms, lease.member
                merged.setdefault(key, []).append(offset)
        return [(*key, sorted(merged[key])) for key in sorted(merged)]

    def dump_streams(self) -> list[StreamLease]:
        """As `dump`, of streams."""
        if not self._streams:
            return []
        merged: dict[tuple[int, int, int, int, str], list[int]] = {}
        for offset, lease in self._by_offset.items():
            if lease.stream is not None:
                run, number = lease.stream.run, lease.stream.number
                key = run, number, lease.delivery, lease.deadline_ms, lease.member
                merged.setdefault(key, []).append(offset)
        return [(*key, sorted(merged[key])) for key in sorted(merged)]

    def load(self, leases: Sequence[OpenLease], of_streams: Sequence[StreamLease] = ()) -> None:
        """Replace everything by what `dump` and `dump_streams` told."""
        self.__init__()  # type: ignore[misc]
        for delivery, deadline_ms, member, offsets in leases:
            self.open(delivery, deadline_ms, member, offsets)
        for run, number, delivery, deadline_ms, member, offsets in of_streams:
            self.open(delivery, deadline_ms, member, offsets, StreamId(run, number))

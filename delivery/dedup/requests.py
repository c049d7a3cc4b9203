"""Which requests without a producer's identity are stored, by the random id their node gave them.

A node that received such a request may send it to a leader, lose the answer, and send it again to
the next leader: the id travels in the entry beside the batch, so that it is stored once. All that
is remembered fits into the bytes that the topic allows a partition (`dedup_requests_bytes`, which
travels in the log): replicas forget alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from delivery.config import QueueConfig
from goqueue.wire.types import Offset

REMEMBERED_MS = 10 * 60 * 1000
"""By log time, where there is room: far longer than any node repeats a request."""
REPEATED_MS = 60 * 1000
"""One that is forgotten within this might come again: that counts as before its time."""
REQUEST_BYTES = 200
"""What one takes in memory."""
RUN_MS = 10
"""Ids of so short a time are forgotten together."""


class RequestsRecord(msgspec.Struct, array_like=True, frozen=True):
    """All remembered requests in a snapshot; `runs` is (log time, how many ids) in order."""

    ids: list[int]
    offsets: list[int]
    runs: list[tuple[int, int]]


class Requests:
    """The request ids of one partition's applied entries, oldest first: so many bytes of them."""

    def __init__(self, bytes_max: int = QueueConfig().dedup_requests_bytes) -> None:
        self._count_max = bytes_max // REQUEST_BYTES
        self._offsets: dict[int, Offset] = {}
        self._order: deque[int] | None = None
        """The ids again: a dict whose first keys were deleted looks at all of them for the next.
        None before the first one."""
        self.evicted = 0
        """Forgotten before their time, for want of room, since this replica started."""
        self._runs: list[tuple[int, int]] = []
        """(log time, how many ids came then or soon after), in the order of `_offsets`."""

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def bytes(self) -> int:
        """What they take, by `REQUEST_BYTES`."""
        return len(self._offsets) * REQUEST_BYTES

    def configure(self, bytes_max: int) -> None:
        """The bound from the next entry on."""
        self._count_max = bytes_max // REQUEST_BYTES

    def offset_of(self, request_id: int) -> Offset | None:
        """Where this request's first record is, None where it is not known."""
        return self._offsets.get(request_id)

    def stored(self, stored: Sequence[tuple[int, Offset]], time_ms: int) -> None:
        """Note the requests of one applied entry. An id that is known keeps its first offset."""
        if not stored:
            return
        before = len(self._offsets)
        if (order := self._order) is None:
            order = self._order = deque()
        for request_id, base_offset in stored:
            if request_id not in self._offsets:
                self._offsets[request_id] = base_offset
                order.append(request_id)
        added = len(self._offsets) - before
        if not added:
            return
        if self._runs and time_ms - self._runs[-1][0] < RUN_MS:
            time_ms, count = self._runs.pop()
            added += count
        self._runs.append((time_ms, added))

    def forget(self, now_ms: int) -> None:
        """Let go of what is too old, and of the oldest beyond the bound."""
        while self._runs:
            time_ms, count = self._runs[0]
            excess = len(self._offsets) - self._count_max
            if time_ms + REMEMBERED_MS < now_ms:
                dropped = count
            elif excess > 0:
                dropped = min(excess, count)
                self.evicted += dropped if time_ms + REPEATED_MS >= now_ms else 0
            else:
                return
            assert self._order is not None, "ids have come"
            for _ in range(dropped):
                del self._offsets[self._order.popleft()]
            if dropped == count:
                del self._runs[0]
            else:
                self._runs[0] = (time_ms, count - dropped)

    def dump(self) -> RequestsRecord:
        """For a snapshot; equal for replicas that applied the same entries."""
        return RequestsRecord(list(self._offsets), list(self._offsets.values()), list(self._runs))

    def load(self, record: RequestsRecord) -> None:
        """Replace everything by what `dump` told."""
        self._offsets = dict(zip(record.ids, map(Offset, record.offsets), strict=True))
        self._order = deque(self._offsets)
        self._runs = list(record.runs)

"""Which requests without a producer's identity are stored, by the random id their node gave them.

A node that received such a request may send it to a leader, lose the answer, and send it again to
the next leader: the id travels in the entry beside the batch, so that it is stored once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from goqueue.wire.types import Offset

REMEMBERED_MS = 10 * 60 * 1000
"""By log time: far longer than any node repeats a request."""
REQUESTS_MAX = 65_536
"""Per partition, about 100 bytes each; beyond it the oldest are forgotten before their time."""


class RequestsRecord(msgspec.Struct, array_like=True, frozen=True):
    """All remembered requests in a snapshot; `runs` is (log time, how many ids) in order."""

    ids: list[int]
    offsets: list[int]
    runs: list[tuple[int, int]]


class Requests:
    """The request ids of one partition's applied entries, oldest first."""

    def __init__(self) -> None:
        self._offsets: dict[int, Offset] = {}
        self._runs: deque[tuple[int, int]] = deque()
        """(log time, how many ids came with it), in the order of `_offsets`."""

    def __len__(self) -> int:
        return len(self._offsets)

    def offset_of(self, request_id: int) -> Offset | None:
        """Where this request's first record is, None where it is not known."""
        return self._offsets.get(request_id)

    def stored(self, stored: Sequence[tuple[int, Offset]], time_ms: int) -> None:
        """Note the requests of one applied entry. An id that is known keeps its first offset."""
        before = len(self._offsets)
        for request_id, base_offset in stored:
            self._offsets.setdefault(request_id, base_offset)
        added = len(self._offsets) - before
        if added:
            self._runs.append((time_ms, added))

    def forget(self, now_ms: int) -> None:
        """Let go of what is too old, and of the oldest beyond the bound."""
        while self._runs:
            time_ms, count = self._runs[0]
            excess = len(self._offsets) - REQUESTS_MAX
            if time_ms + REMEMBERED_MS < now_ms:
                dropped = count
            elif excess > 0:
                dropped = min(excess, count)
            else:
                return
            for _ in range(dropped):
                del self._offsets[next(iter(self._offsets))]
            if dropped == count:
                self._runs.popleft()
            else:
                self._runs[0] = (time_ms, count - dropped)

    def dump(self) -> RequestsRecord:
        """For a snapshot; equal for replicas that applied the same entries."""
        return RequestsRecord(list(self._offsets), list(self._offsets.values()), list(self._runs))

    def load(self, record: RequestsRecord) -> None:
        """Replace everything by what `dump` told."""
        self._offsets = dict(zip(record.ids, map(Offset, record.offsets), strict=True))
        self._runs = deque(record.runs)

"""What a group has done in a partition so far: figures of replicated state, so they survive."""

from __future__ import annotations

import copy

import msgspec

from delivery.config import LANES_COUNT


class Counters(msgspec.Struct, array_like=True):
    """Messages, counted since the group was opened here."""

    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    expired: int = 0
    """Leases that ran out."""
    extended: int = 0
    dead: int = 0
    withdrawn: int = 0
    """Cancelled, or beyond their time to live, before they were settled."""
    fallen: int = 0
    """Unsettled, and taken by retention."""
    fenced: int = 0
    """Leases that ended with their consumer, which lost the partition without letting go, or whose
    stream broke."""
    wait_ms_max: list[int] = msgspec.field(default_factory=lambda: [0] * LANES_COUNT)
    """The longest that any message of each lane was ready before it was delivered."""
    wait_ms_sum: list[int] = msgspec.field(default_factory=lambda: [0] * LANES_COUNT)
    waits: list[int] = msgspec.field(default_factory=lambda: [0] * LANES_COUNT)

    def copy(self) -> Counters:
        """The same figures, which go their own way."""
        lists = (self.wait_ms_max, self.wait_ms_sum, self.waits)
        found = copy.copy(self)
        found.wait_ms_max, found.wait_ms_sum, found.waits = map(list, lists)
        return found

    def waited(self, lane: int, wait_ms: int) -> None:
        """The oldest message of a delivery in this lane has waited so long."""
        wait_ms = max(0, wait_ms)
        self.wait_ms_max[lane] = max(self.wait_ms_max[lane], wait_ms)
        self.wait_ms_sum[lane] += wait_ms
        self.waits[lane] += 1

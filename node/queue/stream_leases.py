"""What a stream may have in flight, as the node knows that serves it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from delivery.entries.ops import StreamId
from goqueue.wire.types import PartitionId

StreamPlace = tuple[int, PartitionId]
"""(group's id, partition)."""


@dataclass(slots=True)
class StreamLeases:
    """Of one stream. Its end is told wherever it was granted something, or may have been: what was
    given back in its name may have been lost with a leadership."""

    stream: StreamId
    receipts: dict[str, None] = field(default_factory=dict[str, None])
    """Given to it, and not settled as far as is known here."""
    touched: set[StreamPlace] = field(default_factory=set[StreamPlace])
    """Where it was granted something, or an answer to one of its receives was lost."""

    def touch(self, group: int, partitions: Iterable[PartitionId]) -> None:
        self.touched.update((group, partition) for partition in partitions)

    def places(self) -> dict[PartitionId, list[int]]:
        """Of each partition where it may have something in flight, the groups' ids."""
        found: dict[PartitionId, list[int]] = {}
        for group, partition in sorted(self.touched):
            found.setdefault(partition, []).append(group)
        return found

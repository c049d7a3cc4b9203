"""What a stream may have in flight, as the node knows that serves it.

It may have more than that: an answer was lost, or what a leader gave back in its name went with the
leadership. A lease without a deadline would stay so for as long as the stream lives. So leases are
taken under a number until any of that may have happened, and then under another one; the former one
ends once all that is known of it is settled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from delivery.entries.ops import StreamId
from goqueue.wire.types import NodeId, PartitionId


@dataclass(slots=True)
class StreamLeases:
    """Of one stream, under one number."""

    stream: StreamId
    receipts: dict[str, None] = field(default_factory=dict[str, None])
    """Given to it, and not settled as far as is known here."""
    receiving: int = 0
    """Receives under way."""
    touched: dict[tuple[int, PartitionId], NodeId | None] = field(
        default_factory=dict[tuple[int, PartitionId], NodeId | None]
    )
    """(group's id, partition) where it was granted something, and the leader that did so; None
    where nobody knows whether it was."""

    def touch(self, group: int, partitions: Iterable[PartitionId], leader: NodeId | None) -> None:
        for partition in partitions:
            known = self.touched.get((group, partition), leader)
            self.touched[group, partition] = known if known == leader else None

    def may_have_more(self, leader: Callable[[PartitionId], NodeId | None]) -> bool:
        """Whether something may be in flight under this number that is not known here."""
        return any(
            known is None or leader(partition) != known
            for (_group, partition), known in self.touched.items()
        )

    @property
    def is_settled(self) -> bool:
        """Whether all that is known of it is settled, and nothing more comes."""
        return not self.receipts and not self.receiving

    def places(self) -> dict[PartitionId, list[int]]:
        """Of each partition where it may have something in flight, the groups' ids."""
        found: dict[PartitionId, list[int]] = {}
        for group, partition in sorted(self.touched):
            found.setdefault(partition, []).append(group)
        return found

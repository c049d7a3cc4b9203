"""Replicas that are not desired any more, and may come back all the same.

A step that was decided while they were desired may be on its way yet, and make them take part. It
is refused from when the partition's log has seen the epoch in which they were dropped: until that
is known, they are remembered here. See docs/adr/0021.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from goqueue.wire.types import NodeId, PartitionId, Voter


class Dropped:
    """By partition: each such replica, with the epoch that began as it was dropped last."""

    def __init__(self, rows: Iterable[tuple[PartitionId, Voter, int]] = ()) -> None:
        self._epochs: dict[PartitionId, dict[Voter, int]] = {}
        for partition_id, voter, epoch in rows:
            self._epochs.setdefault(partition_id, {})[voter] = epoch

    def rows(self) -> list[tuple[PartitionId, Voter, int]]:
        """For a snapshot; in order."""
        return sorted(
            (partition_id, voter, epoch)
            for partition_id, voters in self._epochs.items()
            for voter, epoch in voters.items()
        )

    def moved(
        self, partition_id: PartitionId, before: Sequence[Voter], after: Sequence[Voter], epoch: int
    ) -> None:
        """From this epoch on, other replicas are desired."""
        dropped = self._epochs.setdefault(partition_id, {})
        dropped |= dict.fromkeys(before, epoch)
        for voter in after:
            dropped.pop(voter, None)
        if not dropped:
            del self._epochs[partition_id]

    def confirmed(self, partition_id: PartitionId, epoch: int) -> list[NodeId]:
        """The partition's log has seen this epoch. Of whom nothing is to be feared any more."""
        dropped = self._epochs.get(partition_id, {})
        found = sorted(voter for voter, at in dropped.items() if at <= epoch)
        for voter in found:
            del dropped[voter]
        if not dropped:
            self._epochs.pop(partition_id, None)
        return [voter.node for voter in found]

    def forget(self, partition_id: PartitionId) -> list[NodeId]:
        """The partition was deleted. Of whom nothing is to be feared any more."""
        return sorted({voter.node for voter in self._epochs.pop(partition_id, {})})

    def last(self, partition_id: PartitionId) -> dict[NodeId, int]:
        """The brokers that may come back into a partition, and what it must have seen first."""
        found: dict[NodeId, int] = {}
        for voter, epoch in self._epochs.get(partition_id, {}).items():
            found[voter.node] = max(epoch, found.get(voter.node, 0))
        return found

    def partition_ids(self, node: NodeId) -> list[PartitionId]:
        """Where a broker may come back."""
        return [
            partition_id
            for partition_id, voters in self._epochs.items()
            if any(voter.node == node for voter in voters)
        ]

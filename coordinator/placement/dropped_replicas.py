"""Replicas that are not desired any more, and may come back all the same.

A step that was decided while they were desired may be on its way yet, and make them take part. It
is refused from when the partition's log has seen the epoch in which they were dropped: until that
is known, they are remembered here. See docs/adr/0021.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from goqueue.wire.types import GroupId, NodeId, Voter


class Dropped:
    """By partition: each such replica, with the epoch that began as it was dropped last."""

    def __init__(self, rows: Iterable[tuple[GroupId, Voter, int]] = ()) -> None:
        self._epochs: dict[GroupId, dict[Voter, int]] = {}
        for group, voter, epoch in rows:
            self._epochs.setdefault(group, {})[voter] = epoch

    def rows(self) -> list[tuple[GroupId, Voter, int]]:
        """For a snapshot; in order."""
        return sorted(
            (group, voter, epoch)
            for group, voters in self._epochs.items()
            for voter, epoch in voters.items()
        )

    def moved(
        self, group: GroupId, before: Sequence[Voter], after: Sequence[Voter], epoch: int
    ) -> None:
        """From this epoch on, other replicas are desired."""
        dropped = self._epochs.setdefault(group, {})
        dropped |= dict.fromkeys(before, epoch)
        for voter in after:
            dropped.pop(voter, None)
        if not dropped:
            del self._epochs[group]

    def confirmed(self, group: GroupId, epoch: int) -> list[NodeId]:
        """The partition's log has seen this epoch. Of whom nothing is to be feared any more."""
        dropped = self._epochs.get(group, {})
        found = sorted(voter for voter, at in dropped.items() if at <= epoch)
        for voter in found:
            del dropped[voter]
        if not dropped:
            self._epochs.pop(group, None)
        return [voter.node for voter in found]

    def forget(self, group: GroupId) -> list[NodeId]:
        """The partition was deleted. Of whom nothing is to be feared any more."""
        return sorted({voter.node for voter in self._epochs.pop(group, {})})

    def last(self, group: GroupId) -> dict[NodeId, int]:
        """The brokers that may come back into a partition, and what it must have seen first."""
        found: dict[NodeId, int] = {}
        for voter, epoch in self._epochs.get(group, {}).items():
            found[voter.node] = max(epoch, found.get(voter.node, 0))
        return found

    def groups(self, node: NodeId) -> list[GroupId]:
        """Where a broker may come back."""
        return [
            group
            for group, voters in self._epochs.items()
            if any(voter.node == node for voter in voters)
        ]

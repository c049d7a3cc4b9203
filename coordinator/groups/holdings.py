"""Partitions on their way from member to member, and those that have arrived."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from coordinator.commands.members import Partition
from goqueue.wire.types import PartitionId

OWNED, REVOKING, HANDING = "owned", "revoking", "handing"


@dataclass(frozen=True, slots=True)
class Holding:
    """One partition on its way. `member` has it (owned, revoking), or is being named its owner
    (handing; nobody where empty), in this generation.

    `since_ms` is when it was got; while it moves, since when it has paused. `rebalance` moves it.
    """

    partition: PartitionId
    topic: str
    state: str
    member: str
    generation: int
    since_ms: int
    former: str = ""
    fence: bool = False
    rebalance: int = 0


class Holdings(Mapping[PartitionId, Holding]):
    """The holdings of one group, also found by member, by short name, and while they move."""

    def __init__(self, holdings: Iterable[Holding]) -> None:
        self._held: dict[PartitionId, Holding] = {}
        self._moving: dict[PartitionId, Holding] = {}
        self._of: dict[str, dict[PartitionId, Holding]] = {}
        self._ids: dict[Partition, PartitionId] = {}
        for held in holdings:
            self.put(held)

    def __getitem__(self, partition: PartitionId) -> Holding:
        return self._held[partition]

    def __iter__(self) -> Iterator[PartitionId]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    @property
    def moving(self) -> Mapping[PartitionId, Holding]:
        """Those that are not where they should be yet."""
        return self._moving

    def of(self, member: str) -> list[Holding]:
        """What a member has, or is about to get."""
        return list(self._of.get(member, {}).values())

    def named(self, partition: Partition) -> Holding | None:
        """The holding of a partition of our cluster."""
        id = self._ids.get((partition[0], partition[1]))
        return None if id is None else self._held[id]

    def put(self, held: Holding) -> None:
        """Replaces what was known of the partition."""
        partition = held.partition
        before = self._held.get(partition)
        if before is not None and before.member != held.member:
            self._leave(before)
        self._held[partition] = held
        self._of.setdefault(held.member, {})[partition] = held
        self._ids[short(partition)] = partition
        if held.state == OWNED:
            self._moving.pop(partition, None)
        else:
            self._moving[partition] = held

    def drop(self, partition: PartitionId) -> None:
        """Nobody has the partition, or will."""
        self._leave(self._held.pop(partition))
        self._moving.pop(partition, None)
        del self._ids[short(partition)]

    def in_order(self) -> list[Holding]:
        """The same wherever the same commands were applied."""
        return [self._held[partition] for partition in in_order(self._held)]

    def _leave(self, held: Holding) -> None:
        theirs = self._of[held.member]
        del theirs[held.partition]
        if not theirs:
            del self._of[held.member]


def in_order(partitions: Iterable[PartitionId]) -> list[PartitionId]:
    """By topic and number; all are of one cluster."""
    return sorted(partitions, key=short)


def short(partition: PartitionId) -> Partition:
    """How commands name a partition."""
    return partition.topic.index, partition.partition

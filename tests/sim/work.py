"""What is done with queues in a run, as the nodes of the simulation see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from delivery.config import GroupConfig, QueueConfig
from delivery.state.partition import PartitionState
from goqueue.wire.types import Index, NodeId, PartitionId, Term
from log.entry import Entry


@dataclass(frozen=True)
class GroupSpec:
    """A group as a node knows it."""

    id: int
    name: str
    config: GroupConfig
    version: int = 1


class Work(Protocol):
    """What is done with queues in a run, and what is known of it for certain."""

    config: QueueConfig

    def has(self, partition_id: PartitionId) -> bool:
        """Whether the partition's queue is used."""
        ...

    def known_groups(self, node: NodeId) -> list[GroupSpec]:
        """The groups as this node knows them now."""
        ...

    def proposed(self, partition_id: PartitionId, term: Term, index: Index, seen: Index) -> None:
        """A leader has made a queue entry, having applied everything up to `seen`."""
        ...

    def applied(
        self, partition_id: PartitionId, entry: Entry, state: PartitionState, result: object
    ) -> None:
        """A replica has applied an entry."""
        ...

    def held(self, partition_id: PartitionId, who: str) -> None:
        """A receive was given nothing, though something is ready and nothing is under way."""
        ...

"""A topic's partitions: where their replicas should be, and where they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.topics.settings import TopicConfig, config_warnings
from goqueue.wire.types import Index, NodeId, TopicId, Voter


@dataclass(frozen=True, slots=True)
class Configuration:
    """Who takes part in a partition's log, as a committed entry of that log says; `index` is that
    entry's. Learners have no vote yet. `epoch` is the layout's when the newest change was decided:
    what was decided earlier is refused from then on."""

    index: Index
    voters: tuple[Voter, ...]
    learners: tuple[Voter, ...] = ()
    epoch: int = 0

    @property
    def everyone(self) -> tuple[Voter, ...]:
        """Voters and learners."""
        return (*self.voters, *self.learners)


@dataclass(frozen=True, slots=True)
class PartitionPlacement:
    """Where a partition's replicas should be, the preferred leader first."""

    replicas: tuple[Voter, ...]
    founders: tuple[Voter, ...] = ()
    """The voters of its creating entry; none where those are its replicas still."""
    joined: tuple[Voter, ...] = ()
    """Replicas that were named after its creation: they begin empty (see `may_found`)."""
    created: int = 0
    """Index of the command that added it to its topic; 0 for those it was created with."""
    created_ms: int = 0
    """Log time of that command; 0 likewise."""

    @property
    def preferred(self) -> NodeId:
        """Who should lead when all is well."""
        return self.replicas[0].node

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        """The brokers, the preferred leader first."""
        return tuple(voter.node for voter in self.replicas)

    @property
    def creators(self) -> tuple[Voter, ...]:
        """Exactly these are in the creating entry, whoever founds the partition."""
        return self.founders or self.replicas

    def may_found(self, voter: Voter, *, votes: bool = False) -> bool:
        """Whether this one writes the creating entry by itself where it holds nothing. One that
        was named anew meanwhile does not: it may have voted, been moved away and forgotten.

        `votes`: as far as leaders have told, it is a voter. Then it has not been moved away yet,
        wanted or not: its vote may be one of those that bring about what is wanted.
        """
        if voter not in self.creators:
            return False
        return votes or (voter in self.replicas and voter not in self.joined)

    def moved(self, replicas: Sequence[Voter]) -> PartitionPlacement:
        """The same partition with other replicas."""
        known = {voter for voter in self.replicas if voter not in self.joined}
        joined = tuple(voter for voter in replicas if voter not in known)
        return dataclasses.replace(
            self, replicas=tuple(replicas), founders=self.creators, joined=joined
        )


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its id, which no other topic ever had or will have."""

    name: str
    id: TopicId
    config: TopicConfig
    partitions: tuple[PartitionPlacement, ...]
    created_ms: int
    """Log time of the creating command: the creation time of its first Raft groups, too."""
    raised: tuple[tuple[int, int], ...] = ()
    """(partitions before, log time) of each time that their number was raised."""

    def has(self, settings: Mapping[str, object]) -> bool:
        """Whether these are its settings; None stands for any."""
        return all(
            value is None or getattr(self.config, name) == value for name, value in settings.items()
        )

    @property
    def warnings(self) -> list[str]:
        return config_warnings(self.config)

    def founded_ms(self, number: int) -> int:
        """The creation time of a partition's Raft group."""
        return self.partitions[number].created_ms or self.created_ms


def is_settled(replicas: Sequence[Voter], configuration: Configuration) -> bool:
    """Whether exactly these vote, and nobody is learning."""
    return not configuration.learners and set(replicas) == set(configuration.voters)


def with_partitions(topic: Topic, partitions: Sequence[PartitionPlacement]) -> Topic:
    """The topic with these placements."""
    return dataclasses.replace(topic, partitions=tuple(partitions))

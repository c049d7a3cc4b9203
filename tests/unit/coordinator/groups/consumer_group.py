"""A group with members in a cluster's state; the logs of its partitions do as they are told."""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import CreateTopic
from coordinator.commands.members import (
    ExpireMembers,
    Handed,
    HandOver,
    JoinGroup,
    LeaveGroup,
    LetGo,
)
from coordinator.commands.queue import PutGroup
from coordinator.groups.holdings import HANDING, REVOKING, Holding, short
from coordinator.groups.membership import GroupMembership, MemberView
from coordinator.groups.rebalances import Rebalance
from coordinator.groups.settings import Group
from tests.unit.coordinator.cluster_group import Cluster

NAME = "pay"


class ConsumerGroup(Cluster):
    """A cluster with one group and some topics, of six partitions where nothing else is said."""

    def __init__(self, *topics: str, partitions: int = 6, **settings: object) -> None:
        super().__init__()
        for topic in topics:
            self.create(topic, partitions)
        self.do(PutGroup(NAME, settings))

    def create(self, topic: str, partitions: int = 6) -> None:
        self.do(CreateTopic(topic, {"partitions": partitions, "replication_factor": 1}))

    def restart(self) -> None:
        """The state goes through a snapshot."""
        snapshot = self.state.snapshot()
        self.state = ClusterState.restore(snapshot)
        assert self.state.snapshot() == snapshot

    # -- what is known

    @property
    def group(self) -> Group:
        return self.state.groups[NAME]

    @property
    def membership(self) -> GroupMembership:
        return self.state.members.of(self.group)

    @property
    def receipts(self) -> list[Rebalance]:
        return self.membership.rebalances.known

    def view(self, member: str) -> MemberView:
        return self.state.members.view(self.group, member)

    def has(self, member: str) -> list[int]:
        """The partitions it is told to be its own; of one topic."""
        return [number for _, number in self.view(member).assigned]

    def revoked(self, member: str) -> list[int]:
        return [number for _, number in self.view(member).revoking]

    def held(self, number: int, topic: str = "orders") -> Holding:
        id = self.state.topics[topic].id
        found = self.membership.holdings.named((id.index, number))
        assert found is not None
        return found

    def generations(self) -> dict[tuple[str, int], int]:
        """Of whatever has arrived."""
        return {
            (held.topic, held.partition.partition): held.generation
            for held in self.membership.holdings.values()
        }

    # -- what happens

    def join(
        self, member: str, *topics: str, patterns: Sequence[str] = (), **more: object
    ) -> object:
        """A member of our library, which subscribes to `orders` where nothing else is said."""
        known = list(topics) if topics or patterns else ["orders"]
        command = JoinGroup(
            NAME,
            self.group.id,
            member,
            topics=known,
            patterns=list(patterns),
            **{"lets_go": True, **more},  # type: ignore[arg-type]
        )
        return self.do(command)

    def joined(self, *members: str) -> None:
        """These join, one after the other, and each gets all it is to have."""
        for member in members:
            self.join(member)
            self.settle()

    def leave(self, member: str) -> object:
        return self.do(LeaveGroup(self.group.id, member))

    def expire(self, *members: str, silent_ms: int = 30_000) -> object:
        return self.do(ExpireMembers(self.group.id, [(m, silent_ms) for m in members]))

    def let_go(self, member: str, *numbers: int, fence: bool = False) -> object:
        """Of `orders`, or of all that it was asked for."""
        asked = [
            held
            for held in self.membership.holdings.of(member)
            if held.state == REVOKING and (not numbers or held.partition.partition in numbers)
        ]
        partitions = sorted(short(held.partition) for held in asked)
        return self.do(LetGo(self.group.id, member, partitions, fence))

    def namings(self) -> list[Handed]:
        """What the logs answer when they are given their owners."""
        return [
            Handed(short(held.partition), held.member, held.generation)
            for held in self.membership.holdings.in_order()
            if held.state == HANDING
        ]

    def hand_over(self, rows: Sequence[Handed] | None = None) -> object:
        told = self.namings() if rows is None else list(rows)
        return self.do(HandOver(self.group.id, told))

    def settle(self) -> None:
        """Everybody lets go, and every log names its owner, until nothing moves."""
        for _ in range(3):
            for member in list(self.membership.members):
                self.let_go(member)
            self.hand_over()
        assert not list(self.membership.moving())

"""Partitions that take steps as their leaders would, on brokers that die, come back and are wiped.

Each partition keeps what its log would: the configuration, and who holds what is committed. Every
step is judged again by the leader, and checked: whatever order they come in, however late.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from coordinator.commands.codec import Command
from coordinator.placement.mover import Ask, Limits, Mover
from coordinator.placement.steps import (
    ADD_LEARNER,
    CONFIRM,
    PROMOTE,
    REMOVE,
    TRANSFER,
    Seen,
    Step,
    refusal,
)
from coordinator.topics.partitions import Configuration
from goqueue.wire.types import Incarnation, Index, NodeId, PartitionId, Voter
from tests.unit.coordinator.cluster_group import Cluster, broker

CATCH_UP_ASKS = 2
"""So many times a learner is seen behind, before it is caught up."""


@dataclass(slots=True)
class Replicated:
    """One partition's log, as far as its replicas go."""

    configuration: Configuration
    leader: NodeId
    in_sync: set[Voter]
    behind: dict[Voter, int] = field(default_factory=dict[Voter, int])


class World:
    """A cluster's state, its mover, and what really is on the brokers. Random by `seed` only."""

    def __init__(self, cluster: Cluster, seed: int = 0, limits: Limits | None = None) -> None:
        self.cluster = cluster
        self.limits = limits
        self.random = random.Random(seed)
        self.now_ms = 0
        self.down: set[NodeId] = set()
        self.late: list[Step] = []
        """Steps of a mover that has died, which may arrive yet."""
        self.learners_max = 0
        self.coming_max = 0
        self.steps: list[Step] = []
        self.refusals: list[str] = []
        self.partitions: dict[PartitionId, Replicated] = {}
        self.mover = self.new_mover()

    def new_mover(self) -> Mover:
        """Another leader of the cluster group takes over."""
        self.mover = Mover(lambda: self.cluster.state.layout, self.limits)
        return self.mover

    def incarnation(self, node: NodeId) -> Incarnation:
        return self.cluster.state.brokers[node].incarnation

    def lives(self, voter: Voter) -> bool:
        known = self.cluster.state.brokers.get(voter.node)
        return (
            voter.node not in self.down
            and known is not None
            and known.incarnation == voter.incarnation
        )

    def do(self, command: Command) -> object:
        found = self.cluster.do(command)
        self.found()
        return found

    def found(self) -> None:
        """Partitions that are new are founded by their creators."""
        for topic in self.cluster.state.topics.values():
            for number, placement in enumerate(topic.partitions):
                partition_id = PartitionId(topic.id, number)
                if partition_id not in self.partitions:
                    configuration = Configuration(Index(1), placement.creators)
                    self.partitions[partition_id] = Replicated(
                        configuration, placement.preferred, set(placement.creators)
                    )

    # -- what happens to brokers

    def kill(self, node: NodeId) -> None:
        self.down.add(node)

    def revive(self, node: NodeId) -> None:
        """It comes back with its disk, and catches up."""
        self.down.discard(node)
        for one in self.partitions.values():
            if self.quorum(one):
                one.in_sync |= {v for v in one.configuration.voters if self.lives(v)}

    def wipe(self, node: NodeId) -> None:
        """It comes back with an empty disk."""
        self.down.discard(node)
        for one in self.partitions.values():
            one.in_sync = {voter for voter in one.in_sync if voter.node != node}
        incarnation = self.incarnation(node) + 1
        self.do(broker(node, incarnation=incarnation, replaces=True))

    def quorum(self, one: Replicated) -> bool:
        """Whether the partition has a working leader."""
        alive = [v for v in one.configuration.voters if self.lives(v) and v in one.in_sync]
        return len(alive) * 2 > len(one.configuration.voters)

    def survives(self, node: NodeId) -> bool:
        """Whether all partitions would go on without this broker."""
        for one in self.partitions.values():
            alive = [
                voter
                for voter in one.configuration.voters
                if self.lives(voter) and voter in one.in_sync and voter.node != node
            ]
            if len(alive) * 2 <= len(one.configuration.voters):
                return False
        return True

    # -- what leaders answer

    def look(self, partition_id: PartitionId) -> Seen | None:
        one = self.partitions.get(partition_id)
        if one is None or not self.quorum(one):
            return None
        alive = {v.node for v in one.configuration.voters if self.lives(v) and v in one.in_sync}
        if one.leader not in alive:
            one.leader = min(alive)
        caught_up = set()
        for learner in one.configuration.learners:
            if self.lives(learner):
                left = one.behind.get(learner, 0)
                one.behind[learner] = max(0, left - 1)
                caught_up |= {learner.node} if left == 0 else set()
        return Seen(
            one.configuration,
            one.leader,
            frozenset(alive),
            frozenset(caught_up),
            behind_bytes=sum(one.behind.values()),
        )

    def take(self, step: Step) -> Seen | None:
        """The leader takes the step, if it may."""
        seen = self.look(step.partition_id)
        if seen is None:
            return None
        problem = refusal(step, seen)
        if problem is not None:
            self.refusals.append(problem)
            return seen
        self.steps.append(step)
        one = self.partitions[step.partition_id]
        before = len(seen.in_sync)
        now = one.configuration
        voters, learners = list(now.voters), list(now.learners)
        match step.kind:
            case "add_learner":
                assert step.kind == ADD_LEARNER
                learners.append(step.voter)
                one.behind[step.voter] = CATCH_UP_ASKS
            case "promote":
                assert step.kind == PROMOTE
                learners.remove(step.voter)
                voters.append(step.voter)
                one.in_sync.add(step.voter)
            case "remove":
                assert step.kind == REMOVE
                (learners if step.voter in learners else voters).remove(step.voter)
                one.in_sync.discard(step.voter)
            case "confirm":
                assert step.kind == CONFIRM
            case _:
                assert step.kind == TRANSFER
                one.leader = step.voter.node
                return self.look(step.partition_id)
        changed = len(set(voters) ^ set(now.voters)) + len(set(learners) - set(now.learners))
        assert changed <= 1, "one voter or learner at a time"
        one.configuration = Configuration(
            Index(now.index + self.random.randint(1, 9)),
            tuple(voters),
            tuple(learners),
            max(now.epoch, step.epoch),
        )
        assert self.quorum(one), "a step stops no partition"
        after = self.look(step.partition_id)
        assert after is not None
        assert len(after.in_sync) >= min(before, step.factor), "no fewer in sync than there were"
        assert len(voters) <= max(step.factor + 1, len(now.voters))
        return after

    # -- the driver

    def turn(self, *, loses: float = 0.0) -> bool:
        """One round of the mover: whether it had anything to do. Some answers are lost."""
        self.now_ms += 100
        mover, work = self.mover, self.mover.collect(self.now_ms)
        moving = list(mover.waiting)
        self.coming_max = max(self.coming_max, len(moving))
        learners = [len(one.configuration.learners) for one in self.partitions.values()]
        self.learners_max = max(self.learners_max, sum(learners))
        for ask in work.asks:
            assert isinstance(ask, Ask)
            lost = self.random.random() < loses
            mover.seen(ask.partition_id, None if lost else self.look(ask.partition_id), self.now_ms)
        for step in work.steps:
            if self.random.random() < loses:  # it may come late, or the answer is lost
                if self.random.random() < 0.5:
                    self.take(step)
                else:
                    self.late.append(step)
                mover.stepped(step, None, self.now_ms)
            else:
                mover.stepped(step, self.take(step), self.now_ms)
        for command in work.commands:
            lost = self.random.random() < loses
            result = None if lost and self.random.random() < 0.5 else self.do(command)
            applied = result is not None and not isinstance(result, Exception) and not lost
            mover.answered(command, self.now_ms, applied=applied)
        return bool(work.asks or work.steps or work.commands)

    def audit(self) -> bool:
        """Leaders tell unasked where the cluster knows another configuration: whether any did."""
        news = False
        for partition_id, one in self.partitions.items():
            known = self.cluster.state.layout.configuration(partition_id)
            if known is None or known.index == one.configuration.index:
                continue
            seen = self.look(partition_id)
            if seen is not None:
                self.mover.told(partition_id, seen)
                news = True
        return news

    def late_arrive(self) -> None:
        """What dead movers sent comes now."""
        late, self.late = self.late, []
        for step in late:
            self.take(step)

    def settle(self, turns_max: int = 3000) -> None:
        """Go on until everything is where it should be."""
        for _ in range(turns_max):
            self.turn()
            if not self.audit() and self.is_settled():
                return
        raise AssertionError(f"not settled: {self.mover.waiting} {self.mover.problems}")

    def is_settled(self) -> bool:
        layout = self.cluster.state.layout
        leaving = any(one.state == "draining" for one in self.cluster.state.brokers.values())
        return not (layout.moving or layout.unequal or leaving)

    def check(self) -> None:
        """What is, is what should be."""
        layout = self.cluster.state.layout
        for partition_id, one in self.partitions.items():
            placement = layout.placement(partition_id)
            if placement is not None:
                assert set(one.configuration.voters) == set(placement.replicas)
                assert not one.configuration.learners
                assert set(placement.replicas) <= one.in_sync
        assert not layout.reassignments.running()

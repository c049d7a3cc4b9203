"""Replicas come and go at random while nodes and links fail: nothing acknowledged is lost."""

from __future__ import annotations

from contextlib import suppress

import pytest

from goqueue.wire.errors import Busy
from goqueue.wire.types import Index, NodeId
from raft.configuration import AddLearner, Change, Promote, Remove
from raft.errors import ChangeRefused, NotLeader, Outcome
from raft.group import RaftGroup
from tests.unit.raft.chaos import Chaos
from tests.unit.raft.cluster import GROUP

VOTERS_MIN, VOTERS_MAX = 2, 5


class ChangingChaos(Chaos):
    """The same faults, and every now and then a replica that joins, is promoted, or leaves.

    Replicas that left are begun anew before they join again, some on another disk. Now and then a
    voter's disk is lost; the next one only when that voter has been removed.
    """

    def __init__(
        self,
        seed: int,
        *,
        size: int = 3,
        spares: int = 2,
        raft_group_type: type[RaftGroup] = RaftGroup,
    ) -> None:
        super().__init__(seed, size=size, raft_group_type=raft_group_type, spares=spares)
        self.changes = 0
        self.wipes = 0
        self._changed_in_term = 0
        self._at(0.5, self._change)

    def _change(self) -> None:
        if self._quiet:
            return
        leader = self.cluster.leader()
        raft_group = None if leader is None else self.cluster.raft_group(leader)
        if raft_group is not None:
            change = self._choose(raft_group)
            if change is not None:
                with suppress(Busy, ChangeRefused, NotLeader):
                    raft_group.changes.change(change, self._ended)
                    self._changed_in_term = raft_group.term
        self._at(self.rng.uniform(0.02, 0.4), self._change)

    def _ended(self, outcome: Outcome, _result: object, _index: Index) -> None:
        self.changes += outcome is Outcome.APPLIED

    def _choose(self, raft_group: RaftGroup) -> Change | None:
        known = raft_group.membership.configuration
        for member in known.members:
            if self._is_lost(raft_group, member.node):
                return Remove(member.node)
        for learner in known.learners:
            if raft_group.replication.caught_up(learner.node) and len(known.voters) < VOTERS_MAX:
                return Promote(learner.node)
        outside = [name for name in self.cluster.nodes if known.find(NodeId(name)) is None]
        if outside and self.rng.random() < 0.6:
            return self._joining(raft_group, self.rng.choice(outside))
        one = self.rng.choice(known.members)
        if one in known.voters and len(known.voters) <= VOTERS_MIN:
            return None
        if one in known.voters and len(known.voters) > VOTERS_MIN and self.rng.random() < 0.2:
            self._lose_disk(raft_group, one.node)
            return None
        return Remove(one.node)

    def _is_newest(self, raft_group: RaftGroup) -> bool:
        """Whether no other leader can have changed the group since."""
        return raft_group.term >= self._changed_in_term and raft_group.membership.is_committed

    def _is_lost(self, raft_group: RaftGroup, name: str) -> bool:
        """Whether the configuration names a data directory that is gone."""
        node = self.cluster.nodes[name]
        named = raft_group.membership.configuration.find(NodeId(name))
        return (
            node.host is not None
            and named is not None
            and (named.incarnation != node.store.incarnation)
        )

    def _lose_disk(self, raft_group: RaftGroup, name: str) -> None:
        names = [member.node for member in raft_group.membership.voters]
        if name == raft_group.node or any(self._is_lost(raft_group, other) for other in names):
            return
        if self._is_newest(raft_group) and self.cluster.nodes[name].host is not None:
            self._look()
            self.cluster.wipe(name)
            self.cluster.join(name)
            self.wipes += 1

    def _joining(self, raft_group: RaftGroup, name: str) -> Change | None:
        """A replica in no configuration, as its newest leader knows: it holds nothing that
        counts, and is begun anew."""
        cluster, node = self.cluster, self.cluster.nodes[name]
        if not self._is_newest(raft_group):
            return None
        if node.host is not None:
            self._look()
            node.host.retire_raft_group(GROUP)
        elif name in cluster.joined or name in cluster.voter_names:
            return None
        return AddLearner(cluster.join(name))

    def _restart(self, name: str) -> None:
        if name in self.cluster.joined or name in self.cluster.voter_names:
            super()._restart(name)

    def _members(self) -> list[str]:
        leader = self.cluster.leader()
        assert leader is not None
        configuration = self.cluster.raft_group(leader).membership.configuration
        return [
            member.node
            for member in configuration.members
            if not self._is_lost(self.cluster.raft_group(leader), member.node)
        ]


@pytest.mark.parametrize("size", [3, 4])
def test_nothing_is_lost_while_replicas_come_and_go_and_fail(size: int) -> None:
    chaos = ChangingChaos(size, size=size)

    assert chaos.run(6.0) == []
    assert chaos.changes > 5

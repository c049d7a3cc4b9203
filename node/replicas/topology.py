"""Who leads what, and who can be reached, as this node knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.cluster.state import ClusterState
from goqueue.wire.types import CLUSTER_GROUP, GroupId, NodeId
from node.partition.host import PartitionHost
from raft.group import RaftGroup

HINTS_MAX = 10_000
"""Remembered leaders of partitions that have no replica here."""


class Topology:
    """Answers from local groups where there are any, else from what leaders said last. A replica
    that does not vote, as it was just added or is removed, is not asked. One here that has no vote,
    or none that the cluster knows of, is believed only while it hears the leader that it names:
    nothing makes the one look for another, and nobody may tell the other of any.

    Implements `node.peers.forwarding.Leadership`.
    """

    def __init__(
        self,
        node: NodeId,
        *,
        state: Callable[[], ClusterState],
        cluster_voters: Callable[[], tuple[NodeId, ...]],
        cluster_group: Callable[[], RaftGroup | None],
        find: Callable[[GroupId], PartitionHost | None],
        is_present: Callable[[NodeId], bool],
    ) -> None:
        self._node = node
        self._state = state
        self._cluster_voters = cluster_voters
        self._cluster_group = cluster_group
        self._find = find
        self._is_present = is_present
        self._hints: dict[GroupId, NodeId] = {}
        self._turns: dict[GroupId, int] = {}
        """Which of their voters is asked next where nobody has said who leads."""

    def leader(self, group: GroupId) -> NodeId | None:
        if group == CLUSTER_GROUP:
            cluster = self._cluster_group()
            if cluster is not None:
                return _ready(cluster, self._node)
            return None
        own = self._own(group)
        if own is not None:
            return _ready(own.group, self._node)
        hint, others = self._hints.get(group), self._others(group)
        if hint in others:
            return hint
        return others[self._turns.get(group, 0) % len(others)] if others else None

    def learn(self, group: GroupId, leader: NodeId | None, asked: NodeId) -> None:
        """Who was asked said who leads, maybe itself; remembered for partitions that have no
        replica here which knows. Where it does not know, as its replica has moved away, say, or
        names one that is not there, the voter after it is asked next."""
        if group == CLUSTER_GROUP or self._own(group) is not None:
            return
        next_ = self.leader(group)
        if leader is not None and self._is_present(leader):
            if len(self._hints) >= HINTS_MAX:
                self._hints.clear()
            self._hints[group] = leader
        elif self._hints.get(group) == asked:
            del self._hints[group]
        if leader != asked == next_:  # else it is not asked next anyway
            others = self._others(group)
            if len(self._turns) >= HINTS_MAX:
                self._turns.clear()
            self._turns[group] = others.index(asked) + 1

    def replicas(self, group: GroupId) -> tuple[NodeId, ...]:
        if group == CLUSTER_GROUP:
            return self._cluster_voters()
        layout = self._state().layout
        if layout.placement(group) is None:
            return ()
        known, own = layout.configuration(group), self._own(group)
        voters = () if known is None else known.voters
        if own is not None and known is not None:
            newer = own.group.configuration
            voters = newer.voters if newer.index > known.index else voters
        return tuple(voter.node for voter in voters)

    def reachable(self, group: GroupId) -> int:
        return sum(map(self._is_present, self.replicas(group)))

    async def changed(self, group: GroupId, timeout_s: float) -> None:
        host = self._find(group)
        if host is not None:
            await host.wait_for_leadership(timeout_s)
        else:
            await asyncio.sleep(max(0.0, timeout_s))

    def _others(self, group: GroupId) -> list[NodeId]:
        """Voters elsewhere that are there."""
        voters = self.replicas(group)
        return [node for node in voters if node != self._node and self._is_present(node)]

    def _own(self, group: GroupId) -> PartitionHost | None:
        """This node's replica, where it knows who leads, or will: it hears a leader, or has a vote
        that the cluster knows of. An entry that never committed may have given it one, or keep it
        from seeing that it has none any more: then it names nobody, for good."""
        host = self._find(group)
        if host is None or host.group.hears_leader:
            return host
        known = self._state().layout.configuration(group)
        if host.group.is_learner or known is None:
            return None
        return host if any(voter.node == self._node for voter in known.voters) else None


def _ready(group: RaftGroup, node: NodeId) -> NodeId | None:
    """The group's leader; not this node before it may propose."""
    leader = group.leader
    return None if leader == node and not group.is_ready_leader else leader

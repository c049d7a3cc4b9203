"""Who leads what, and who can be reached, as this node knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.state import ClusterState
from goqueue.wire.types import CLUSTER_GROUP, GroupId, NodeId
from node.partition import PartitionHost
from raft.group import RaftGroup

HINTS_MAX = 10_000
"""Remembered leaders of partitions that have no replica here."""


class Topology:
    """Answers from local groups where there are any, else from what leaders said last. A replica
    that does not vote, as it was just added or is removed, is not asked; one here is believed only
    while it hears the leader that it names, since nothing makes it look for another one.

    Implements `node.forwarding.Leadership`.
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
        """How often nobody knew, of such partitions."""

    def leader(self, group: GroupId) -> NodeId | None:
        if group == CLUSTER_GROUP:
            cluster = self._cluster_group()
            if cluster is not None:
                return _ready(cluster, self._node)
            return None
        host = self._find(group)
        if host is not None and not host.group.is_learner:
            return _ready(host.group, self._node)
        if host is not None and host.group.leader is not None and host.group.hears_leader:
            return host.group.leader
        hint, voters = self._hints.get(group), self.replicas(group)
        if hint is not None and hint in voters and self._is_present(hint):
            return hint
        present = [node for node in voters if node != self._node and self._is_present(node)]
        return present[self._turns.get(group, 0) % len(present)] if present else None

    def learn(self, group: GroupId, leader: NodeId | None) -> None:
        """Who was asked said who leads; remembered for partitions that have no voting replica here.
        Where it does not know, as its replica has moved away, say, another voter is asked next."""
        host = self._find(group)
        if host is not None and not host.group.is_learner:
            return
        if leader is None:
            self._hints.pop(group, None)
            if len(self._turns) >= HINTS_MAX:
                self._turns.clear()
            self._turns[group] = self._turns.get(group, 0) + 1
            return
        if len(self._hints) >= HINTS_MAX:
            self._hints.clear()
        self._hints[group] = leader

    def replicas(self, group: GroupId) -> tuple[NodeId, ...]:
        if group == CLUSTER_GROUP:
            return self._cluster_voters()
        layout = self._state().layout
        if layout.placement(group) is None:
            return ()
        known, host = layout.configuration(group), self._find(group)
        voters = () if known is None else known.voters
        if host is not None and known is not None:
            newer = host.group.configuration
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


def _ready(group: RaftGroup, node: NodeId) -> NodeId | None:
    """The group's leader; not this node before it may propose."""
    leader = group.leader
    return None if leader == node and not group.is_ready_leader else leader

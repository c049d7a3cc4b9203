"""Who leads what, and who can be reached, as this node knows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.cluster.state import ClusterState
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId
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
        find: Callable[[PartitionId], PartitionHost | None],
        is_present: Callable[[NodeId], bool],
    ) -> None:
        self._node = node
        self._state = state
        self._cluster_voters = cluster_voters
        self._cluster_group = cluster_group
        self._find = find
        self._is_present = is_present
        self._hints: dict[PartitionId, NodeId] = {}
        self._turns: dict[PartitionId, int] = {}
        """Which of their voters is asked next where nobody has said who leads."""

    def leader(self, partition_id: PartitionId) -> NodeId | None:
        if partition_id == CLUSTER_GROUP:
            cluster = self._cluster_group()
            if cluster is not None:
                return _ready(cluster, self._node)
            return None
        own = self._own(partition_id)
        if own is not None:
            return _ready(own.raft_group, self._node)
        hint, others = self._hints.get(partition_id), self._others(partition_id)
        if hint in others:
            return hint
        return others[self._turns.get(partition_id, 0) % len(others)] if others else None

    def learn(self, partition_id: PartitionId, leader: NodeId | None, asked: NodeId) -> None:
        """Who was asked said who leads, maybe itself; remembered for partitions that have no
        replica here which knows. Where it does not know, as its replica has moved away, say, or
        names one that is not there, the voter after it is asked next."""
        if partition_id == CLUSTER_GROUP or self._own(partition_id) is not None:
            return
        next_ = self.leader(partition_id)
        if leader is not None and self._is_present(leader):
            if len(self._hints) >= HINTS_MAX:
                self._hints.clear()
            self._hints[partition_id] = leader
        elif self._hints.get(partition_id) == asked:
            del self._hints[partition_id]
        if leader != asked == next_:  # else it is not asked next anyway
            others = self._others(partition_id)
            if len(self._turns) >= HINTS_MAX:
                self._turns.clear()
            self._turns[partition_id] = others.index(asked) + 1

    def replicas(self, partition_id: PartitionId) -> tuple[NodeId, ...]:
        if partition_id == CLUSTER_GROUP:
            return self._cluster_voters()
        layout = self._state().layout
        if layout.placement(partition_id) is None:
            return ()
        known, own = layout.configuration(partition_id), self._own(partition_id)
        voters = () if known is None else known.voters
        if own is not None and known is not None:
            newer = own.raft_group.membership.configuration
            voters = newer.voters if newer.index > known.index else voters
        return tuple(voter.node for voter in voters)

    def reachable(self, partition_id: PartitionId) -> int:
        return sum(map(self._is_present, self.replicas(partition_id)))

    async def changed(self, partition_id: PartitionId, timeout_s: float) -> None:
        host = self._find(partition_id)
        if host is not None:
            await host.wait_for_leadership(timeout_s)
        else:
            await asyncio.sleep(max(0.0, timeout_s))

    def _others(self, partition_id: PartitionId) -> list[NodeId]:
        """Voters elsewhere that are there."""
        voters = self.replicas(partition_id)
        return [node for node in voters if node != self._node and self._is_present(node)]

    def _own(self, partition_id: PartitionId) -> PartitionHost | None:
        """This node's replica, where it knows who leads, or will: it hears a leader, or has a vote
        that the cluster knows of. An entry that never committed may have given it one, or keep it
        from seeing that it has none any more: then it names nobody, for good."""
        host = self._find(partition_id)
        if host is None or host.raft_group.voting.hears_leader():
            return host
        known = self._state().layout.configuration(partition_id)
        if host.raft_group.is_learner or known is None:
            return None
        return host if any(voter.node == self._node for voter in known.voters) else None


def _ready(raft_group: RaftGroup, node: NodeId) -> NodeId | None:
    """The group's leader; not this node before it may propose."""
    leader = raft_group.leader
    return None if leader == node and not raft_group.is_ready_leader else leader

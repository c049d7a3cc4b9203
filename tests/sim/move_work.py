"""Brokers that come, are drained and wiped, and topics that grow, while faults strike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command
from coordinator.commands.placement import (
    AddPartitions,
    CancelReassignment,
    DrainBroker,
    Reassign,
    SetReplicationFactor,
    UndrainBroker,
)
from coordinator.placement.planner import plan_rebalance
from goqueue.wire.types import CLUSTER_GROUP, PartitionId
from raft.group import RaftGroup
from tests.sim.removing import Removing

if TYPE_CHECKING:
    from tests.sim.world import World

ACT_S = (0.2, 1.0)
ADDED_S = (0.3, 4.0)
"""When a broker that did not found the cluster comes."""
PARTITIONS_MAX = 4


class MoveWork:
    """What is asked of the cluster, each command once; and whether all is done in the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.rng("moves")
        self.removing = Removing(world)

    def start(self) -> None:
        world = self._world
        for node in world.nodes[world.shape.founders :]:
            world.loop.call_later(self._rng.uniform(*ADDED_S), world.machines.bring_up, node)
        world.loop.call_later(self._rng.uniform(*ACT_S), self._act)
        self.removing.start()

    def heal(self) -> None:
        """Nothing more is asked, but for what was begun."""

    def _act(self) -> None:
        world = self._world
        if world.is_quiet:
            return
        command = self._choose(world.newest_state())
        if command is not None:
            world.loop.note("asked", type(command).__name__)
            world.ask_cluster(command, lambda _result: None)
        world.loop.call_later(self._rng.uniform(*ACT_S), self._act)

    def _choose(self, state: ClusterState) -> Command | None:
        rng, layout = self._rng, state.layout
        brokers = [node for node in sorted(state.brokers) if node != self.removing.leaver]
        topics = sorted(state.topics)
        if not brokers or not topics:
            return None
        node, topic = rng.choice(brokers), state.topics[rng.choice(topics)]
        kind = rng.choice(("drain", "undrain", "rebalance", "rebalance", "factor", "add", "cancel"))
        if kind == "drain":
            return DrainBroker(node)
        if kind == "undrain":
            return UndrainBroker(node)
        if kind == "factor":
            return SetReplicationFactor(topic.name, str(topic.id), rng.choice((3, 3, 5)))
        if kind == "add" and len(topic.partitions) < PARTITIONS_MAX:
            return AddPartitions(topic.name, len(topic.partitions) + 1, str(topic.id))
        running = layout.reassignments.running()
        if kind == "cancel" and running:
            return CancelReassignment(rng.choice(running).id)
        rows = plan_rebalance(layout.picture())
        return Reassign(rows, request=rng.getrandbits(62) | 1) if rows else None

    # the end

    def unsettled(self) -> str:
        """What is still to be done, in words."""
        world, state = self._world, self._world.newest_state()
        layout = state.layout
        found = self.removing.unsettled(state)
        if found:
            return found
        left = [node for node in world.nodes if not self.removing.is_gone(node)]
        if set(state.brokers) != set(left):
            return f"brokers are {sorted(state.brokers)} only"
        for process in world.members_here():
            if state.brokers[process.node].incarnation != process.store.incarnation:
                return f"{process.node} is registered with another data directory"
        if layout.moving:
            return (
                f"moving: {[str(partition_id) for partition_id in layout.moving]}, {layout.unequal}"
            )
        found = self._unsettled_cluster(state)
        if found:
            return found
        for partition_id in world.partition_ids:
            placement = layout.placement(partition_id)
            leader = self._leader(partition_id)
            if placement is None or leader is None:
                return f"nobody leads {partition_id}"
            now = leader.membership.configuration
            if now.learners or set(now.voters) != set(placement.replicas):
                return f"{partition_id} has {now}, and should have {placement.replicas}"
        return ""

    def _unsettled_cluster(self, state: ClusterState) -> str:
        leader = self._leader(CLUSTER_GROUP)
        if leader is None:
            return "nobody leads the cluster group"
        now = leader.membership.configuration
        voters = {broker.voter for broker in state.brokers.values()}
        if set(now.members) != voters:
            return f"the cluster group has {now}"
        able = sum(broker.takes for broker in state.brokers.values())
        wanted = min(5, able - 1 + able % 2)
        if len(now.voters) != wanted and not len(now.voters) == able == 2:
            return f"{[str(v.node) for v in now.voters]} vote in the cluster group, of {able}"
        return ""

    def _leader(self, partition_id: PartitionId) -> RaftGroup | None:
        rafts = [raft for process in self._world.members_here() for raft in process.rafts()]
        return next(
            (raft for raft in rafts if raft.id == partition_id and raft.is_ready_leader), None
        )

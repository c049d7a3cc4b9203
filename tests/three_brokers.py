"""A node, and brokers that it was only told of: partitions arrive there when a test says so.

All is the node's own but what moves replicas: it stands still, and `ThreeBrokers` reports in its
place what arrived. Brokers that are not there count as up, and nothing can be asked of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from coordinator.brokers.health import Standing
from coordinator.brokers.registry import DRAINING
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, RegisterBroker, Result
from coordinator.commands.placement import Reassign, ReplicasChanged, Reported
from coordinator.errors import TooFewBrokers
from coordinator.groups.holdings import short
from coordinator.placement.planner import plan_drain, plan_factor
from coordinator.placement.reassignments import DRAIN, FACTOR
from goqueue.wire.errors import NoQuorum
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId
from log.levels import Spoken
from node.assembly import NodeAssembly
from node.placement.moves import MoveProgress
from tests.one_node import cluster_of

DEADLINE_S = 30.0
STILL = ("cluster_members", "replica_moves", "strays")
"""Parts of the node that change who holds what."""


class ThreeBrokers:
    """The node's cluster. Whenever it is asked for what is newest, `arrivals` partitions arrive
    where they should be; `down` are brokers that are not there; `told` is said of every partition
    that is on its way. The cluster group has no leader while it is not `led`."""

    def __init__(self, node: NodeAssembly) -> None:
        self.node = node
        self.arrivals = 0
        self.down: set[str] = set()
        self.told = MoveProgress("", 0, 0)
        self.led = True
        self.cluster = cluster = cluster_of(node.broker)
        self._command, self._refresh = cluster.command, cluster.refresh
        cluster.command = self._commanded  # type: ignore[method-assign]
        cluster.refresh = self._refreshed  # type: ignore[method-assign]
        cluster.standing = self._standing  # type: ignore[method-assign]
        cluster.spoken = self._spoken  # type: ignore[method-assign]
        placement = node.broker.placement
        placement._progress = self._progress  # type: ignore[method-assign]

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    async def add(
        self, node: str, zone: str = "", url: str = "", peer_address: str = "", level: int = 1
    ) -> None:
        """One more broker, or one that has changed."""
        told = RegisterBroker(
            node, sum(node.encode()), peer_address, url, zone, highest_level=level, replaces=True
        )
        await self._command(told, DEADLINE_S)

    async def move(self, partitions: int) -> None:
        """So many of the partitions that are on their way arrive."""
        layout, rows = self.state.layout, []
        for id in islice(sorted(layout.moving), partitions):
            placement, known = layout.placement(id), layout.configuration(id)
            assert placement is not None and known is not None
            rows.append(Reported(*short(id), known.index + 1, placement.replicas, (), layout.epoch))
        if rows:
            await self._command(ReplicasChanged(rows), DEADLINE_S)
            await self._plan()

    # in the place of the cluster's own

    async def _commanded(self, command: Command, deadline_s: float) -> Result:
        if not self.led:
            raise NoQuorum
        result = await self._command(command, deadline_s)
        await self._plan()
        return result

    async def _refreshed(self) -> bool:
        if self.led:
            await self.move(self.arrivals)
        return self.led and await self._refresh()

    def _standing(self, node: NodeId) -> Standing:
        return Standing.DOWN if node in self.down else Standing.UP

    def _spoken(self, node: NodeId) -> Spoken | None:
        return None if node in self.down else self.state.layout.brokers.by_name[node].spoken

    async def _progress(self) -> Mapping[PartitionId, MoveProgress]:
        return dict.fromkeys(self.state.layout.moving, self.told) if self.led else {}

    async def _plan(self) -> None:
        """What the mover plans by itself, at once."""
        layout = self.state.layout
        leaving = [
            node
            for node, broker in sorted(layout.brokers.by_name.items())
            if broker.state == DRAINING and layout.replicas[node]
        ]
        try:
            if leaving and (rows := plan_drain(layout.picture(), leaving)):
                await self._command(Reassign(rows, DRAIN, [*leaving]), DEADLINE_S)
            if layout.unequal and (rows := plan_factor(layout.picture())):
                await self._command(Reassign(rows, FACTOR), DEADLINE_S)
        except TooFewBrokers:
            return  # it is told by whoever looks


async def three_brokers(node: NodeAssembly) -> ThreeBrokers:
    """`node-1` is the node; it has what there is by now."""
    for name, part in node.services._parts:
        if name in STILL:
            await part.stop()
    brokers = ThreeBrokers(node)
    for number in (2, 3):
        await brokers.add(
            f"node-{number}", f"zone-{number}", f"http://n{number}:8080", f"n{number}:7000"
        )
    # a voter is never drained, and what `cluster_members` told in its last moment comes late, but
    # before the brokers that were added after it
    brokers.state.layout._known.pop(CLUSTER_GROUP, None)
    return brokers

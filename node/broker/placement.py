"""Growing, shrinking and moving as the front asks for them: judged by the cluster's state, decided
by its commands, carried out by the mover.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from coordinator.brokers.registry import Broker
from coordinator.cluster.state import ClusterState, Topic
from coordinator.commands.codec import Command, Result
from coordinator.commands.placement import (
    ROWS_MAX,
    AddPartitions,
    CancelReassignment,
    DrainBroker,
    PartitionsAdded,
    Reassign,
    ReassignResult,
    RemoveBroker,
    Row,
    SetReplicationFactor,
    UndrainBroker,
)
from coordinator.errors import Overtaken, UnknownBroker, UnknownReassignment
from coordinator.placement.planner import Picture, plan_drain, plan_leaders, plan_rebalance
from coordinator.placement.reassignments import REASSIGN, REBALANCE
from goqueue.wire.errors import GoQueueError, Unavailable, UnknownPartition, UnknownTopic
from goqueue.wire.types import NodeId, PartitionId
from node.api.node import NodeView
from node.api.placement import (
    BrokerView,
    GrownView,
    PlanView,
    ReassignmentView,
    ScalingView,
    WantedMove,
)
from node.placement.views import (
    Progress,
    Sizes,
    broker_view,
    plan_view,
    reassignment_view,
    scaling_view,
)

COMMAND_DEADLINE_S = 15.0
PLANS_MAX = 3
"""How often a plan that was overtaken before it was made is planned again."""


class Cluster(Protocol):
    """The cluster group, as `node.cluster.host.ClusterHost` is it."""

    @property
    def state(self) -> ClusterState: ...

    async def command(self, command: Command, deadline_s: float) -> Result: ...

    async def refresh(self) -> bool: ...

    def absent(self) -> list[str]: ...

    def not_ready(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class PlacementParts:
    """What placement stands on.

    `sizes` are those of partitions whose leader tells; `progress` is that of partitions that are on
    their way, as the cluster group's leader knows it; `until_led` waits for a topic's leaders.
    """

    cluster: Cluster
    nodes: Callable[[], Sequence[NodeView]]
    sizes: Callable[[Sequence[PartitionId]], Awaitable[Sizes]]
    progress: Callable[[], Awaitable[Progress]]
    until_led: Callable[[str], Awaitable[None]]
    request_id: Callable[[], int]


class NodePlacement:
    """Implements `node.api.placement.Placement`. Loop thread only."""

    def __init__(self, parts: PlacementParts) -> None:
        self._placement = parts

    # topics

    async def add_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[str]]
    ) -> GrownView:
        found = await self._topic_now(topic)
        command = AddPartitions(
            topic,
            count,
            str(found.id),
            self._placement.cluster.absent(),
            [list(nodes) for nodes in assignments],
        )
        added = await self._command(command)
        assert isinstance(added, PartitionsAdded), "what this command results in"
        await self._placement.until_led(topic)
        # A repeated command finds its partitions added by itself.
        return GrownView(topic, min(added.before, len(found.partitions)), added.partitions)

    async def set_replication_factor(self, topic: str, factor: int) -> None:
        """Every partition is to have so many replicas; more or fewer are planned by the mover.
        Raises UnknownTopic, BadConfig, TooFewBrokers."""
        found = await self._topic_now(topic)
        await self._command(SetReplicationFactor(topic, str(found.id), factor))

    async def scaling(self, topic: str) -> ScalingView:
        found = await self._topic_now(topic)
        return scaling_view(found, self._state.layout, await self._progress())

    # plans

    async def plan_moves(
        self, moves: Sequence[WantedMove], *, throttle_bytes_s: int = 0
    ) -> PlanView:
        command = Reassign(await self._rows(moves), throttle_bytes_s=throttle_bytes_s)
        layout, rows = self._state.layout, []
        for partition_id, row in layout.check_reassign(command).items():
            placement = layout.placement(partition_id)
            before: list[str] = [] if placement is None else [*placement.nodes]
            rows.append(Row(row.topic, row.partition, before, row.replicas))
        return await self._plan_view(rows, len(rows) + 1)

    async def reassign(
        self, moves: Sequence[WantedMove], *, throttle_bytes_s: int = 0
    ) -> ReassignmentView:
        return await self._reassign(await self._rows(moves), REASSIGN, throttle_bytes_s)

    async def plan_rebalance(self, *, leaders_only: bool, limit: int) -> PlanView:
        await self._refresh()
        return await self._plan_view(await self._rebalance_rows(leaders_only, limit), limit)

    async def rebalance(
        self, *, leaders_only: bool, limit: int, throttle_bytes_s: int
    ) -> ReassignmentView | None:
        for attempt in range(PLANS_MAX):
            await self._refresh()
            rows = await self._rebalance_rows(leaders_only, limit)
            if not rows:
                return None
            try:
                return await self._reassign(rows, REBALANCE, throttle_bytes_s)
            except Overtaken:
                if attempt == PLANS_MAX - 1:
                    raise
        return None

    async def reassignments(self, *, running_only: bool) -> list[ReassignmentView]:
        await self._refresh()
        progress, state = await self._progress(), self._state
        known = list(state.layout.reassignments.by_id.values())
        return [
            reassignment_view(one, state, progress)
            for one in reversed(known)
            if one.is_running or not running_only
        ]

    async def reassignment(self, id: int) -> ReassignmentView:
        is_current = await self._refresh()
        progress = await self._progress()
        known = self._state.layout.reassignments.by_id.get(id)
        if known is None:
            self._check_current(is_current, f"reassignment {id}")
            raise UnknownReassignment(id)
        return reassignment_view(known, self._state, progress, with_moves=True)

    async def cancel_reassignment(self, id: int) -> ReassignmentView:
        await self._command(CancelReassignment(id))
        return await self.reassignment(id)

    # brokers

    async def brokers(self) -> list[BrokerView]:
        await self._refresh()
        return await self._views([broker for _, broker in sorted(self._state.brokers.items())])

    async def broker(self, id: str) -> BrokerView:
        (view,) = await self._views([await self._known_broker(id)])
        return view

    async def plan_drain(self, id: str) -> PlanView:
        broker = await self._known_broker(id)
        layout = self._state.layout
        if broker.takes:
            layout.check_drain(broker)
        picture = layout.picture()
        rows = await asyncio.to_thread(plan_drain, picture, [broker.node])
        return await self._plan_view(rows, ROWS_MAX)

    async def drain(self, id: str, *, throttle_bytes_s: int = 0) -> BrokerView:
        await self._command(DrainBroker(id, throttle_bytes_s))
        return await self.broker(id)

    async def undrain(self, id: str) -> BrokerView:
        await self._command(UndrainBroker(id))
        return await self.broker(id)

    async def remove_broker(self, id: str) -> None:
        try:
            await self._command(RemoveBroker(id))
        except UnknownBroker as error:
            if error.outcome == "none":  # else this very call may have removed it, earlier
                raise

    # private

    @property
    def _state(self) -> ClusterState:
        return self._placement.cluster.state

    async def _command(self, command: Command) -> Result:
        return await self._placement.cluster.command(command, COMMAND_DEADLINE_S)

    async def _refresh(self) -> bool:
        return await self._placement.cluster.refresh()

    async def _progress(self) -> Progress:
        """Nothing, where the cluster group's leader does not answer: the rest is known here."""
        try:
            return await self._placement.progress()
        except GoQueueError:
            return {}

    async def _views(self, brokers: Sequence[Broker]) -> list[BrokerView]:
        progress = await self._progress()
        nodes = {view.node: view for view in self._placement.nodes()}
        return [
            broker_view(broker, nodes.get(broker.node), self._state, progress) for broker in brokers
        ]

    async def _known_broker(self, id: str) -> Broker:
        is_current = await self._refresh()
        known = self._state.brokers.get(NodeId(id))
        if known is None:
            self._check_current(is_current, f"broker {id[:64]}")
            raise UnknownBroker(id[:64])
        return known

    def _check_current(self, is_current: bool, what: str) -> None:
        if not is_current:
            problem = self._placement.cluster.not_ready()
            problem = problem or "the cluster group's leader does not answer"
            raise Unavailable(f"{what} is not known here: {problem}")

    async def _topic_now(self, name: str) -> Topic:
        """The topic that has the name now. Raises UnknownTopic, or Unavailable where nobody can say
        that there is none."""
        return self._topic_of(name, await self._refresh())

    def _topic_of(self, name: str, is_current: bool) -> Topic:
        found = self._state.topics.get(name)
        if found is None:
            self._check_current(is_current, f"topic {name[:64]}")
            raise UnknownTopic(name[:249])
        return found

    async def _rows(self, moves: Sequence[WantedMove]) -> list[Row]:
        rows, is_current = [], await self._refresh()
        for move in moves:
            topic = self._topic_of(move.topic, is_current)
            if not 0 <= move.partition < len(topic.partitions):
                raise UnknownPartition(topic.name, move.partition)
            rows.append(Row(topic.id.index, move.partition, list(move.before), list(move.after)))
        return rows

    async def _rebalance_rows(self, leaders_only: bool, limit: int) -> list[Row]:
        plan: Callable[[Picture, int], list[Row]]
        plan = plan_leaders if leaders_only else plan_rebalance
        picture = self._state.layout.picture()
        return await asyncio.to_thread(partial(plan, picture, min(limit, ROWS_MAX)))

    async def _reassign(
        self, rows: list[Row], cause: str, throttle_bytes_s: int
    ) -> ReassignmentView:
        request = self._placement.request_id()
        command = Reassign(rows, cause, [], throttle_bytes_s, request)
        if await self._refresh():
            self._state.layout.check_reassign(command)  # what makes no sense is not replicated
        begun = await self._command(command)
        assert isinstance(begun, ReassignResult), "what this command results in"
        return await self.reassignment(begun.id)

    async def _plan_view(self, rows: Sequence[Row], limit: int) -> PlanView:
        layout = self._state.layout
        partition_ids = [layout.partition_id((row.topic, row.partition)) for row in rows]
        sizes = await self._placement.sizes(
            [partition_id for partition_id in partition_ids if partition_id is not None]
        )
        return plan_view(self._state, rows, sizes, limit)

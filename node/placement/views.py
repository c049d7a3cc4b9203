"""Brokers, plans and moves as the front shows them, from the state and from what leaders tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from coordinator.brokers.registry import ACTIVE, Broker
from coordinator.cluster.state import ClusterState
from coordinator.commands.placement import ROWS_MAX, Row
from coordinator.groups.holdings import short
from coordinator.placement.layout import Layout
from coordinator.placement.reassignments import Move, Reassignment
from coordinator.topics.partitions import Topic
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId, TopicId, Voter
from node.api.node import NodeView
from node.api.placement import (
    BrokerView,
    DrainView,
    MoveView,
    MovingView,
    Nodes,
    PlannedMove,
    PlanView,
    ReassignmentView,
    ScalingView,
)

WAITING_MAX = 20
"""Partitions whose reason to wait is named in one view."""
TURN = "waits for its turn"
"""What partitions wait for while others are moved: nothing that keeps them."""


class MoveProgress(Protocol):
    """How far one partition's move is, as its mover and its leader tell."""

    @property
    def waiting(self) -> str: ...

    @property
    def bytes_left(self) -> int: ...

    @property
    def rate_bytes_s(self) -> int: ...


Progress = Mapping[PartitionId, MoveProgress]
Sizes = Mapping[PartitionId, int]


def plan_view(state: ClusterState, rows: Sequence[Row], sizes: Sizes, limit: int) -> PlanView:
    """A planner's rows with the sizes that are known; whole unless they fill the `limit`."""
    moves = [
        PlannedMove(
            topic_name(state, row.topic),
            row.partition,
            tuple(row.before),
            tuple(row.replicas),
            None if (partition_id := state.layout.partition_id((row.topic, row.partition))) is None
            else sizes.get(partition_id),
        )
        for row in rows
    ]  # fmt: skip
    return PlanView(moves, is_whole=len(rows) < min(limit, ROWS_MAX))


def reassignment_view(
    one: Reassignment, state: ClusterState, progress: Progress, *, with_moves: bool = False
) -> ReassignmentView:
    """`with_moves` also names every partition that is remembered."""
    layout = state.layout
    active = {
        partition_id: told
        for partition_id, told in progress.items()
        if one.is_running and layout.reassignments.of(short(partition_id)) is one
    }
    return ReassignmentView(
        id=one.id,
        state=one.state,
        cause=one.cause,
        brokers=list(one.brokers),
        throttle_bytes_s=one.throttle_bytes_s,
        started_ms=one.created_ms,
        ended_ms=one.ended_ms,
        total=one.total,
        left=one.left,
        bytes_left=_bytes_left(active) if one.left else 0,
        rate_bytes_s=sum(told.rate_bytes_s for told in active.values()),
        waiting=_waiting(state, active),
        moves=[_move_view(move, state, active) for move in one.moves] if with_moves else (),
    )


def scaling_view(topic: Topic, layout: Layout, progress: Progress) -> ScalingView:
    """What of a topic is on its way."""
    partition_ids = [PartitionId(topic.id, number) for number in range(len(topic.partitions))]
    return ScalingView(
        topic=topic.name,
        partitions=len(topic.partitions),
        replication_factor=topic.config.replication_factor,
        moving=[
            _moving_view(partition_id, layout, progress)
            for partition_id in partition_ids
            if partition_id in layout.moving
        ],
        unplanned=[
            partition_id.partition
            for partition_id in partition_ids
            if partition_id in layout.unequal
        ],
    )


def broker_view(
    broker: Broker, node: NodeView | None, state: ClusterState, progress: Progress
) -> BrokerView:
    """`node` is what is seen of it from here."""
    layout = state.layout
    return BrokerView(
        id=broker.node,
        state=broker.state,
        zone=broker.zone,
        incarnation=broker.incarnation,
        url=broker.http_url,
        peer_address=broker.peer_address,
        status="dead" if node is None else node.status,
        replicas=layout.replicas[broker.node],
        leaders=0 if node is None else node.leaders,
        held=layout.held[broker.node],
        drain=None if broker.state == ACTIVE else _drain_view(broker, state, progress),
    )


def topic_name(state: ClusterState, index: int) -> str:
    """The name of a topic, also of one that was deleted lately."""
    topic = state.layout.topic(index)
    if topic is not None:
        return topic.name
    return state.deleted.get(TopicId(state.cluster_id, index), f"(deleted topic {index:x})")


def nodes_of(voters: Iterable[Voter]) -> Nodes:
    """The brokers' names."""
    return tuple(voter.node for voter in voters)


def _move_view(move: Move, state: ClusterState, active: Progress) -> MoveView:
    partition_id = state.layout.partition_id((move.topic, move.partition))
    told = None if partition_id is None or move.is_over else active.get(partition_id)
    return MoveView(
        topic=topic_name(state, move.topic),
        partition=move.partition,
        before=tuple(move.before),
        after=tuple(move.after),
        state=move.state,
        waiting="" if told is None else told.waiting,
        bytes_left=0 if move.is_over else None if told is None else told.bytes_left,
        rate_bytes_s=0 if told is None else told.rate_bytes_s,
    )


def _moving_view(partition_id: PartitionId, layout: Layout, progress: Progress) -> MovingView:
    configuration, placement = layout.configuration(partition_id), layout.placement(partition_id)
    told = progress.get(partition_id)
    return MovingView(
        partition_id.partition,
        () if configuration is None else nodes_of(configuration.everyone),
        () if placement is None else placement.nodes,
        "" if told is None else told.waiting,
        None if told is None else told.bytes_left,
    )


def _drain_view(broker: Broker, state: ClusterState, progress: Progress) -> DrainView:
    layout = state.layout
    active = {
        partition_id: told
        for partition_id, told in progress.items()
        if any(voter.node == broker.node for voter in layout.holders(partition_id))
    }
    waiting = _waiting(state, active)
    if not layout.held[broker.node] and _has_vote(layout, broker.node):
        waiting.append("another broker takes over its vote in the cluster group")
    return DrainView(
        started_ms=broker.drain_ms,
        replicas_at_start=broker.drain_replicas,
        replicas_left=layout.held[broker.node],
        throttle_bytes_s=broker.drain_bytes_s,
        problem=_problem(layout, broker.node),
        waiting=waiting,
        bytes_left=_bytes_left(active) if layout.held[broker.node] else 0,
        rate_bytes_s=sum(told.rate_bytes_s for told in active.values()),
    )


def _problem(layout: Layout, node: NodeId) -> str:
    """Why the replicas of a broker that is drained can't be planned to go elsewhere."""
    if not layout.replicas[node]:
        return ""
    picture = layout.picture()
    takers = {one for one, site in picture.sites.items() if site.takes}
    stuck = [
        len(nodes) for nodes in picture.desired.values() if node in nodes and takers <= {*nodes}
    ]
    if not stuck:
        return ""
    return f"{len(takers)} brokers take replicas: too few for the {max(stuck)} of a partition"


def _has_vote(layout: Layout, node: NodeId) -> bool:
    configuration = layout.configuration(CLUSTER_GROUP)
    return configuration is not None and node in nodes_of(configuration.voters)


def _bytes_left(active: Progress) -> int | None:
    return sum(told.bytes_left for told in active.values()) if active else None


def _waiting(state: ClusterState, active: Progress) -> list[str]:
    named = [
        f"{topic_name(state, partition_id.topic.index)}:{partition_id.partition}: {told.waiting}"
        for partition_id, told in sorted(active.items(), key=lambda item: item[0])
        if told.waiting not in ("", TURN)
    ]
    return named[:WAITING_MAX]

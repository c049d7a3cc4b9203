"""The parts of a node's queue, wired."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count

from delivery.entries.ops import StreamId
from goqueue.background import TaskSet
from goqueue.wire.types import NodeId
from node.broker.node import GroupsFront, NodeBroker, QueueFront
from node.broker.queue import NodeQueue
from node.broker.records import NodeRecords
from node.broker.streams import NodeStreams, StreamParts
from node.cluster.host import ClusterHost
from node.cluster.tenant_quotas import Shares
from node.cluster.topic_finder import TopicFinder
from node.groups.heartbeats import SignsOfLife
from node.groups.members import GroupMembers
from node.groups.partitions import GroupPartitions
from node.groups.polls import GroupPolls
from node.groups.position_views import PositionViews
from node.groups.positions import GroupPositions
from node.groups.request_metrics import RequestMetrics
from node.groups.sessions import GroupSessions
from node.metrics import Metrics
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.peers.runs import Runs
from node.queue.calls import QueueCalls
from node.queue.dead_letters import DeadLetters, DelayedMessages
from node.queue.figures import QueueFigures
from node.queue.group_admin import GroupsBroker
from node.queue.lag import TakingPart
from node.queue.operations import Operations
from node.queue.receipts import Receipts
from node.queue.receiver import QueueReceiver
from node.queue.redrive_admin import PartitionDeadLetters, RedrivesBroker
from node.queue.redrive_worker import DeadLetterSource
from node.queue.schedule_admin import SchedulesBroker
from node.queue.schedule_worker import ScheduleRunner
from node.queue.service import QueueService
from node.queue.settle import Settles
from node.queue.stream_watch import StreamWatch
from node.queue.views import QueueViews
from node.replicas.local import Replicas
from node.replicas.partition_service import PartitionService
from node.replicas.topology import Topology
from node.runtime.service import Service
from node.storage.flusher import Flusher

ANSWER_BYTES = 8 << 20
"""Values in one answer; what was leased beyond them is given back."""
ERRANDS_MAX = 10_000
ERRANDS_STOP_S = 1.0
"""How long errands may go on when the node stops."""


@dataclass(frozen=True, slots=True)
class TimedParts:
    """What does something at a time, or is still doing it."""

    replicas: Replicas
    sessions: GroupSessions
    schedules: ScheduleRunner
    flusher: Flusher


@dataclass(frozen=True, slots=True)
class QueueBase:
    """What the queue stands on."""

    node: NodeId
    cluster: ClusterHost
    replicas: Replicas
    partitions: PartitionService
    forwarder: Forwarder
    topology: Topology
    link: PeerLink
    background_tasks: TaskSet
    finder: TopicFinder
    rng: random.Random
    metrics: Metrics
    wall_ms: Callable[[], int]
    group_defaults: Mapping[str, object]
    runs: Runs


def node_tasks() -> TaskSet:
    """Small work that outlives the request it came from; too much of it is left undone."""
    return TaskSet("node", "errand_failed", tasks_max=ERRANDS_MAX, grace_s=ERRANDS_STOP_S)


@dataclass(frozen=True, slots=True)
class QueueParts:
    """What the queue's front stands on, and other parts of the node ask."""

    calls: QueueCalls
    figures: QueueFigures
    groups: GroupsBroker
    source: DeadLetterSource
    requests: RequestMetrics
    taking_part: TakingPart


def queue_parts(base: QueueBase) -> QueueParts:
    """This node serves its peers, too."""
    taking_part = TakingPart(base.cluster, base.replicas, base.link)
    views = QueueViews(base.partitions, taking_part, base.link)
    operations = Operations(base.partitions, base.forwarder, base.link, base.rng)
    calls = QueueCalls(base.node, views, operations, base.forwarder, base.topology, base.link)
    figures = QueueFigures(base.finder, calls)
    groups = GroupsBroker(base.cluster, figures, base.group_defaults)
    source = PartitionDeadLetters(groups, calls, base.finder)
    return QueueParts(calls, figures, groups, source, RequestMetrics(base.metrics), taking_part)


def queue_front(base: QueueBase, parts: QueueParts) -> QueueFront:
    """The parts of the broker that take messages, settle them and keep them for later."""
    cluster, finder, calls, groups = base.cluster, base.finder, parts.calls, parts.groups
    receiver = QueueReceiver(
        base.node,
        service=QueueService(
            base.node, base.replicas, base.link, base.partitions.confirmed, base.background_tasks
        ),
        calls=calls,
        topology=base.topology,
        link=base.link,
        background_tasks=base.background_tasks,
        rng=base.rng,
        metrics=base.metrics,
    )
    receipts = Receipts(
        lambda: cluster.state.receipt_keys, lambda: max(base.wall_ms(), cluster.state.time_ms)
    )
    queue = NodeQueue(
        finder, groups, calls, receiver, receipts, parts.requests, base.rng, ANSWER_BYTES
    )
    settles = Settles(cluster, groups, calls.operations, receipts, base.rng)
    numbers = count(1)
    of_streams = StreamParts(
        queue,
        settles,
        calls.operations,
        base.background_tasks,
        base.topology.leader,
        lambda: StreamId(base.runs.own, next(numbers)),
    )
    streams = NodeStreams(cluster.levels, groups, of_streams)
    return QueueFront(
        queue,
        settles,
        streams,
        DeadLetters(groups=groups, calls=calls, finder=finder, answer_bytes=ANSWER_BYTES),
        RedrivesBroker(cluster, groups, parts.source, base.rng),
        DelayedMessages(calls, finder),
        SchedulesBroker(cluster, base.wall_ms),
    )


def stream_services(base: QueueBase, broker: NodeBroker) -> list[tuple[str, Service]]:
    """What ends streams: of other nodes that are lost, and of this one when it stops."""
    watch = StreamWatch(base.runs, base.replicas.led)
    return [("streams", watch), ("open_streams", broker.streams)]


@dataclass(frozen=True, slots=True)
class GroupServices:
    """What a node does for groups of its own accord: coordinates them where it leads the cluster
    group, and passes on signs of life of members."""

    sessions: GroupSessions
    signs: SignsOfLife


def group_services(base: QueueBase, parts: QueueParts) -> GroupServices:
    cluster, link, forwarder = base.cluster, base.link, base.forwarder
    partitions = GroupPartitions(cluster, base.partitions, parts.calls, forwarder, link)
    sessions = GroupSessions(cluster, partitions, link, base.metrics)
    return GroupServices(sessions, SignsOfLife(cluster, sessions, forwarder, base.background_tasks))


def groups_front(
    base: QueueBase,
    parts: QueueParts,
    signs: SignsOfLife,
    queue: NodeQueue,
    records: NodeRecords,
    shares: Shares,
) -> GroupsFront:
    """The parts of the broker about groups, and about who is in them."""
    members = GroupMembers(
        cluster=base.cluster,
        groups=parts.groups,
        finder=base.finder,
        signs=signs,
        background_tasks=base.background_tasks,
        rng=base.rng,
        requests=parts.requests,
    )
    positions = GroupPositions(
        cluster=base.cluster,
        groups=parts.groups,
        finder=base.finder,
        calls=parts.calls,
        views=PositionViews(base.partitions, base.link),
        rng=base.rng,
        requests=parts.requests,
        offset_at=records.offset_at,
    )
    polls = GroupPolls(base.cluster, members, signs, queue.receive, parts.requests)
    return GroupsFront(parts.groups, members, polls, positions, parts.figures, shares)

"""The parts of a node's queue, wired."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from goqueue.tasks import TaskSet
from goqueue.wire.types import NodeId
from node.broker.members import MemberParts
from node.broker.queue_parts import QueueParts
from node.broker.why import WhyParts, Whys
from node.cluster.host import ClusterHost
from node.cluster.topic_finder import TopicFinder
from node.groups.heartbeats import SignsOfLife
from node.groups.members import GroupMembers
from node.groups.partitions import GroupPartitions
from node.groups.position_views import PositionViews
from node.groups.positions import GroupPositions
from node.groups.request_metrics import RequestMetrics
from node.groups.sessions import GroupSessions
from node.metrics import Metrics
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.queue.calls import QueueCalls
from node.queue.dead_letters import DeadLetters, DelayedMessages
from node.queue.group_admin import GroupsBroker
from node.queue.lag import TakingPart
from node.queue.receipts import Receipts
from node.queue.receiver import QueueReceiver
from node.queue.redrive_admin import PartitionDeadLetters, RedrivesBroker
from node.queue.schedule_admin import SchedulesBroker
from node.queue.service import QueueService
from node.queue.settle import Settles
from node.queue.views import QueueViews
from node.replicas.local import Replicas
from node.replicas.partition_service import PartitionService
from node.replicas.topology import Topology

ANSWER_BYTES = 8 << 20
"""Values in one answer; what was leased beyond them is given back."""
ERRANDS_MAX = 10_000
ERRANDS_STOP_S = 1.0
"""How long errands may go on when the node stops."""


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
    errands: TaskSet
    finder: TopicFinder
    rng: random.Random
    metrics: Metrics
    wall_ms: Callable[[], int]
    group_defaults: Mapping[str, object]


def errands_of_node() -> TaskSet:
    """Small work that outlives the request it came from; too much of it is left undone."""
    return TaskSet("node", "errand_failed", tasks_max=ERRANDS_MAX, grace_s=ERRANDS_STOP_S)


def queue_parts(base: QueueBase) -> QueueParts:
    """Everything that the queue's front asks; this node serves its peers, too."""
    taking_part = TakingPart(base.cluster, base.replicas, base.link)
    views = QueueViews(base.partitions, taking_part, base.link)
    calls = QueueCalls(base.node, views, base.forwarder, base.topology, base.link, base.rng)
    groups = GroupsBroker(base.cluster, base.group_defaults)
    source = PartitionDeadLetters(groups, calls, base.finder)
    receiver = QueueReceiver(
        base.node,
        service=QueueService(
            base.node, base.replicas, base.link, base.partitions.confirmed, base.errands
        ),
        calls=calls,
        topology=base.topology,
        link=base.link,
        errands=base.errands,
        rng=base.rng,
        metrics=base.metrics,
    )
    receipts = Receipts(
        lambda: base.cluster.state.receipt_keys,
        lambda: max(base.wall_ms(), base.cluster.state.time_ms),
    )
    return QueueParts(
        groups=groups,
        calls=calls,
        receiver=receiver,
        settles=Settles(base.cluster, calls, receipts, base.rng),
        receipts=receipts,
        letters=DeadLetters(
            groups=groups, calls=calls, finder=base.finder, answer_bytes=ANSWER_BYTES
        ),
        delays=DelayedMessages(calls, base.finder),
        redriving=RedrivesBroker(base.cluster, groups, source, base.rng),
        scheduling=SchedulesBroker(base.cluster, base.wall_ms),
        source=source,
        answer_bytes=ANSWER_BYTES,
        rng=base.rng,
        requests=RequestMetrics(base.metrics),
        taking_part=taking_part,
    )


def whys_of(base: QueueBase, queue: QueueParts) -> Whys:
    """What tells why a message is not delivered."""
    return Whys(
        WhyParts(
            node=base.node,
            cluster=base.cluster,
            replicas=base.replicas,
            service=base.partitions,
            groups=queue.groups,
            finder=base.finder,
            forwarder=base.forwarder,
            topology=base.topology,
            link=base.link,
            taking_part=queue.taking_part,
        )
    )


def member_parts(base: QueueBase, queue: QueueParts) -> tuple[GroupSessions, MemberParts]:
    """The service that coordinates groups, and what the members' front asks."""
    cluster, link, forwarder = base.cluster, base.link, base.forwarder
    partitions = GroupPartitions(cluster, base.partitions, queue.calls, forwarder, link)
    sessions = GroupSessions(cluster, partitions, link, base.metrics)
    signs = SignsOfLife(cluster, sessions, forwarder, base.errands)
    members = GroupMembers(
        cluster=cluster,
        groups=queue.groups,
        finder=base.finder,
        signs=signs,
        errands=base.errands,
        rng=base.rng,
        requests=queue.requests,
    )
    positions = GroupPositions(
        cluster=cluster,
        groups=queue.groups,
        finder=base.finder,
        calls=queue.calls,
        views=PositionViews(base.partitions, link),
        rng=base.rng,
    )
    return sessions, MemberParts(cluster, members, signs, positions)

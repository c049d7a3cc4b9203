"""The parts of a node's broker, wired."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from goqueue.wire.types import PartitionId
from node.broker.archive import NodeArchives
from node.broker.compaction import NodeCompactions
from node.broker.node import NodeBroker, NodeItself, OperatorsFront
from node.broker.partitions import Partitions
from node.broker.placement import NodePlacement, PlacementParts
from node.broker.reads import PartitionReads
from node.broker.records import NodeRecords
from node.broker.scrub import NodeScrubs
from node.broker.search import NodeSearch, SearchParts
from node.broker.topics import NodeTopics, until_led
from node.broker.traces import NodeTraces, TraceParts
from node.broker.trims import NodeTrims
from node.broker.upgrade import NodeUpgrade
from node.cluster.tenant_quotas import Shares
from node.config.node import NodeConfig
from node.groups.heartbeats import SignsOfLife
from node.lookup.message_search import MessageSearch
from node.lookup.search_counts import SearchCounts
from node.observe.status import NodeStatus
from node.placement.views import Progress
from node.queue_assembly import QueueBase, QueueParts, groups_front, queue_front
from node.replicas.offsets import OffsetsCollector
from node.storage.flusher import Flusher
from node.storage.repair.scrub import Scrub
from node.storage.sync import TopicSync


@dataclass(frozen=True, slots=True)
class BrokerBase:
    """What the broker stands on besides what the queue does. `progress` is that of partitions that
    move, as the cluster group's leader tells it."""

    config: NodeConfig
    status: NodeStatus
    flusher: Flusher
    scrub: Scrub
    progress: Callable[[], Awaitable[Progress]]
    snapshot: Callable[[PartitionId], Awaitable[None]]
    """Stores the state of a replica here, where it is another than was stored last."""


def broker_of(
    own: BrokerBase, base: QueueBase, parts: QueueParts, signs: SignsOfLife
) -> NodeBroker:
    config, status, cluster = own.config, own.status, base.cluster
    partitions = Partitions(base.finder, base.partitions, base.forwarder, base.link)
    offsets_collector = OffsetsCollector(base.node, base.topology, base.partitions, base.link)
    placement = NodePlacement(
        PlacementParts(
            cluster=cluster,
            nodes=lambda: status.cluster_view().nodes,
            sizes=offsets_collector.sizes,
            progress=own.progress,
            until_led=partial(until_led, cluster, base.replicas),
            request_id=lambda: base.rng.getrandbits(63) or 1,
        )
    )
    records = NodeRecords(
        partitions,
        cluster,
        PartitionReads(base.replicas, base.partitions, base.forwarder),
        offsets_collector,
        TopicSync(
            base.node, base.partitions, own.flusher, base.link, voters=base.topology.replicas
        ),
        parts.requests,
        random.Random(base.rng.getrandbits(64)),
        config.limits.read_bytes,
    )
    queue = queue_front(base, parts)
    shares = Shares(lambda: cluster.state, config.topic_defaults.partitions)
    searches = SearchParts(
        MessageSearch(base.partitions, base.link),
        SearchCounts(base.replicas, base.link),
        config.timelines.enabled,
        config.tracing.otlp.enabled,
    )
    traced = TraceParts(
        base.node,
        partitions,
        cluster,
        base.replicas,
        base.topology,
        parts.groups,
        parts.taking_part,
    )
    upgrade = NodeUpgrade(cluster, lambda: status.cluster_view().nodes)
    operators = OperatorsFront(
        NodeItself(config.node_id, status, offsets_collector),
        placement,
        upgrade,
        NodeScrubs(base.node, own.scrub, base.link, lambda: cluster.nodes),
        NodeCompactions(partitions, own.flusher),
        _trims(own, base, parts, partitions, upgrade),
        NodeArchives(partitions),
    )
    return NodeBroker(
        NodeTopics(
            config, cluster, base.replicas, base.finder, offsets_collector, status, placement
        ),
        records,
        queue,
        groups_front(base, parts, signs, queue.queue, records, shares),
        NodeSearch(searches, base.finder, parts.groups, parts.calls),
        NodeTraces(traced),
        operators,
    )


def _trims(
    own: BrokerBase,
    base: QueueBase,
    parts: QueueParts,
    partitions: Partitions,
    upgrade: NodeUpgrade,
) -> NodeTrims:
    finish = upgrade.finish_level if own.config.cluster.auto_finish else None
    levels = base.cluster.levels
    return NodeTrims(partitions, parts.taking_part, own.flusher, levels, own.snapshot, finish)

"""The broker of a node, put together of its parts, and the part that tells of the node itself."""

from __future__ import annotations

from dataclasses import dataclass

from node.api.node import ClusterView, Readiness, StatsView
from node.broker.archive import NodeArchives
from node.broker.compaction import NodeCompactions
from node.broker.placement import NodePlacement
from node.broker.queue import NodeQueue
from node.broker.records import NodeRecords
from node.broker.scrub import NodeScrubs
from node.broker.search import NodeSearch
from node.broker.streams import NodeStreams
from node.broker.topics import NodeTopics
from node.broker.traces import NodeTraces
from node.broker.trims import NodeTrims
from node.broker.upgrade import NodeUpgrade
from node.cluster.tenant_quotas import Shares
from node.groups.members import GroupMembers
from node.groups.polls import GroupPolls
from node.groups.positions import GroupPositions
from node.observe.status import NodeStatus
from node.queue.dead_letters import DeadLetters, DelayedMessages
from node.queue.figures import QueueFigures
from node.queue.group_admin import GroupsBroker
from node.queue.redrive_admin import RedrivesBroker
from node.queue.schedule_admin import SchedulesBroker
from node.queue.settle import Settles
from node.replicas.offsets import OffsetsCollector


class NodeItself:
    """Implements `node.api.node.Node`. Loop thread only."""

    def __init__(
        self, node_id: str, status: NodeStatus, offsets_collector: OffsetsCollector
    ) -> None:
        self.node_id = node_id
        self._status = status
        self._offsets_collector = offsets_collector

    @property
    def is_drained(self) -> bool:
        return self._status.is_drained

    @property
    def uptime_s(self) -> float:
        return self._status.uptime_s

    def cluster_view(self) -> ClusterView:
        return self._status.cluster_view()

    def stats(self) -> StatsView:
        return self._status.stats()

    async def confirmed_stats(self) -> StatsView:
        here = self._status.hosts_by_topic()
        partition_ids = [host.id for hosts in here.values() for host in hosts]
        return self._status.stats(await self._offsets_collector.told(partition_ids))

    def alive(self) -> str | None:
        return self._status.fault

    def ready(self) -> Readiness:
        return self._status.readiness()


@dataclass(frozen=True, slots=True)
class QueueFront:
    """Parts that take messages, settle them, and keep them for later."""

    queue: NodeQueue
    receipts: Settles
    streams: NodeStreams
    letters: DeadLetters
    redriving: RedrivesBroker
    delays: DelayedMessages
    scheduling: SchedulesBroker


@dataclass(frozen=True, slots=True)
class GroupsFront:
    """Parts about groups, and about who is in them."""

    groups: GroupsBroker
    members: GroupMembers
    polls: GroupPolls
    positions: GroupPositions
    figures: QueueFigures
    shares: Shares


@dataclass(frozen=True, slots=True)
class OperatorsFront:
    """Parts for those who run the cluster."""

    node: NodeItself
    placement: NodePlacement
    upgrade: NodeUpgrade
    scrubs: NodeScrubs
    compactions: NodeCompactions
    trims: NodeTrims
    archives: NodeArchives


class NodeBroker:
    """Implements `node.api.broker.Broker`: has parts, and does nothing itself."""

    def __init__(
        self,
        topics: NodeTopics,
        records: NodeRecords,
        queue: QueueFront,
        groups: GroupsFront,
        lookup: NodeSearch,
        traces: NodeTraces,
        operators: OperatorsFront,
    ) -> None:
        self.topics = topics
        self.records = records
        self.queue = queue.queue
        self.receipts = queue.receipts
        self.streams = queue.streams
        self.letters = queue.letters
        self.redriving = queue.redriving
        self.delays = queue.delays
        self.scheduling = queue.scheduling
        self.groups = self.owners = groups.groups
        self.members = groups.members
        self.polls = groups.polls
        self.positions = groups.positions
        self.figures = groups.figures
        self.shares = groups.shares
        self.lookup = lookup
        self.traces = traces
        self.node = operators.node
        self.placement = operators.placement
        self.upgrade = operators.upgrade
        self.scrubs = operators.scrubs
        self.compactions = operators.compactions
        self.trims = operators.trims
        self.archives = operators.archives

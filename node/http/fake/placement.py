"""Brokers and moves of the fake broker: the real state and planners, and partitions that arrive
when they are told to. Who holds one is only told: its messages stay in the one fake broker.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice

from coordinator.brokers.registry import DRAINING
from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, CreateTopic, DeleteTopic, RegisterBroker, Result
from coordinator.commands.placement import Reassign, ReplicasChanged, Reported
from coordinator.errors import TooFewBrokers
from coordinator.groups.holdings import short
from coordinator.placement.planner import plan_drain, plan_factor
from coordinator.placement.reassignments import DRAIN, FACTOR
from goqueue.wire.errors import GoQueueError, NoQuorum
from goqueue.wire.types import Index, NodeId, Offset, PartitionId
from log.levels import Spoken
from node.api.archive import PartitionArchive
from node.api.node import NodeView
from node.api.placement import GrownView
from node.api.topics import PartitionView
from node.broker.placement import NodePlacement, PlacementParts
from node.http.fake.members import FakeMembers
from node.http.fake.partition import FakePartition
from node.placement.views import nodes_of


@dataclass(slots=True)
class FakeProgress:
    """What is told of every partition that is on its way."""

    waiting: str = ""
    bytes_left: int = 0
    rate_bytes_s: int = 0


class FakeCluster:
    """The cluster group in memory. Whenever its state is looked at, `arrivals` partitions arrive
    where they should be; `down` are brokers that are not there. It has no leader while it is not
    `led`."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.state = ClusterState(1)
        self.arrivals = 0
        self.led = True
        self.down: set[str] = set()
        self.told = FakeProgress()
        self._clock_ms = clock_ms

    def add_broker(self, node: str, zone: str = "", url: str = "", peer_address: str = "") -> None:
        """One more broker, or one that has changed."""
        self.apply(RegisterBroker(node, sum(node.encode()), peer_address, url, zone))

    async def command(self, command: Command, deadline_s: float) -> Result:
        if not self.led:
            raise NoQuorum
        return self.apply(command)

    async def refresh(self) -> bool:
        if self.led:
            self.move(self.arrivals)
        return self.led

    def spoken(self, node: NodeId) -> Spoken | None:
        return None if node in self.down else self.state.layout.brokers.by_name[node].spoken

    def absent(self) -> list[str]:
        return sorted(self.down)

    def not_ready(self) -> str | None:
        return None

    def apply(self, command: Command) -> Result:
        """The command's result; raises what refused it. Plans follow at once."""
        result = self._apply(command)
        self._plan()
        return result

    def move(self, partitions: int) -> None:
        """So many of the partitions that are on their way arrive."""
        layout = self.state.layout
        rows = []
        for partition_id in islice(sorted(layout.moving), partitions):
            placement = layout.placement(partition_id)
            if placement is not None:
                index = self.state.applied_index + 1
                rows.append(
                    Reported(*short(partition_id), index, placement.replicas, (), layout.epoch)
                )
        if rows:
            self.apply(ReplicasChanged(rows))

    async def progress(self) -> Mapping[PartitionId, FakeProgress]:
        if not self.led:
            raise NoQuorum
        return dict.fromkeys(self.state.layout.moving, self.told)

    def _apply(self, command: Command) -> Result:
        index = Index(self.state.applied_index + 1)
        result = self.state.apply(index, self._clock_ms(), command)
        if isinstance(result, GoQueueError):
            raise result
        return result

    def _plan(self) -> None:
        """What the mover plans by itself."""
        layout = self.state.layout
        leaving = [
            node
            for node, broker in sorted(layout.brokers.by_name.items())
            if broker.state == DRAINING and layout.replicas[node]
        ]
        try:
            if leaving and (rows := plan_drain(layout.picture(), leaving)):
                self._apply(Reassign(rows, DRAIN, [*leaving]))
            if layout.unequal and (rows := plan_factor(layout.picture())):
                self._apply(Reassign(rows, FACTOR))
        except TooFewBrokers:
            return  # it is told by whoever looks


class FakePlacement(NodePlacement, FakeMembers):
    """The placement's part of `FakeBroker`: `cluster` is there for tests to move."""

    def __init__(self, node_id: str, clock_ms: Callable[[], int]) -> None:
        FakeMembers.__init__(self, clock_ms)
        self.node_id = node_id
        self.cluster = FakeCluster(clock_ms)
        self.cluster.add_broker(node_id)
        requests = count(1)
        parts = PlacementParts(
            cluster=self.cluster,
            nodes=self._nodes,
            sizes=self._sizes,
            progress=self.cluster.progress,
            until_led=self._led,
            request_id=lambda: next(requests),
        )
        NodePlacement.__init__(self, parts)

    @abstractmethod
    def archive_of(self, log: FakePartition) -> PartitionArchive:
        """How far the partition is archived."""

    @abstractmethod
    def _partition(self, name: str, partition: int) -> FakePartition:
        """Raises UnknownTopic, UnknownPartition."""

    @abstractmethod
    def _grow(self, name: str, count: int) -> None:
        """Have so many partitions in all."""

    async def add_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[str]]
    ) -> GrownView:
        grown = await super().add_partitions(topic, count, assignments)
        self._grow(topic, grown.partitions)
        return grown

    def _put_replicas(self, topic: str, partitions: int, factor: object) -> None:
        """A topic was created. More replicas than brokers are as many as there are."""
        takers = self.cluster.state.layout.takers
        factor = min(factor, takers) if isinstance(factor, int) else 1
        config = {"partitions": partitions, "replication_factor": max(1, factor)}
        self.cluster.apply(CreateTopic(topic, config))

    def _drop_replicas(self, topic: str) -> None:
        """A topic was deleted."""
        self.cluster.apply(DeleteTopic(topic))

    def _partition_view(self, topic: str, number: int) -> PartitionView:
        """A partition with who holds it."""
        found = self.cluster.state.topics[topic]
        partition_id = PartitionId(found.id, number)
        configuration = self.cluster.state.layout.configuration(partition_id)
        voters = () if configuration is None else nodes_of(configuration.voters)
        learners = () if configuration is None else nodes_of(configuration.learners)
        up = [node for node in voters if node not in self.cluster.down]
        stored = self._partition(topic, number)
        return PartitionView(
            number,
            up[0] if up else None,
            found.partitions[number].nodes,
            tuple(up),
            Offset(stored.start),
            Offset(stored.next),
            stored.size_bytes,
            voters,
            learners,
            self.archive_of(stored) if stored.archived[0] else None,
        )

    def _nodes(self) -> list[NodeView]:
        led = [
            self._partition_view(topic.name, number).leader
            for topic in self.cluster.state.topics.values()
            for number in range(len(topic.partitions))
        ]
        layout, now_ms = self.cluster.state.layout, self._clock_ms()
        return [
            NodeView(
                node=node,
                status="dead" if node in self.cluster.down else "alive",
                http_url=broker.http_url,
                peer_address=broker.peer_address,
                zone=broker.zone,
                version="fake",
                leaders=led.count(node),
                replicas=layout.held[node],
                incarnation=broker.incarnation,
                joined_at_ms=broker.joined_at_ms,
                last_heartbeat_ms=now_ms,
                state=broker.state,
            )
            for node, broker in sorted(layout.brokers.by_name.items())
        ]

    async def _sizes(self, partition_ids: Sequence[PartitionId]) -> Mapping[PartitionId, int]:
        """Of those whose leader is there."""
        found: dict[PartitionId, int] = {}
        for partition_id in partition_ids:
            topic = self.cluster.state.topic_of(partition_id.topic)
            if topic is None:
                continue
            if topic.partitions[partition_id.partition].preferred not in self.cluster.down:
                found[partition_id] = self._partition(topic.name, partition_id.partition).size_bytes
        return found

    async def _led(self, topic: str) -> None:
        """Everything is led at once."""

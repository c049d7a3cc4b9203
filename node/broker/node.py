"""The node as its HTTP front sees it: any request, answered here or by whoever leads."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable, Mapping

from coordinator.cluster.state import Topic
from coordinator.commands.codec import (
    AllocateProducer,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ProducerAllocated,
)
from coordinator.topics.compression import split
from coordinator.topics.settings import alter_config
from goqueue.tasks import TaskSet
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import (
    GoQueueError,
    NoQuorum,
    OutcomeUnknown,
    OutOfOrder,
    Timeout,
    TopicExists,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.ids import INTERNAL_PREFIX, validate_topic_name
from goqueue.wire.types import GroupId, NodeId, Offset
from log.levels import Feature
from node.api.node import ClusterView, Readiness, StatsView
from node.api.records import AppendResult, Slice
from node.api.shares import TenantShares
from node.api.topics import TopicView
from node.api.traces import MessageTrace
from node.broker.archive import ArchiveBrokerNode
from node.broker.compaction import CompactionBrokerNode
from node.broker.events import EventBrokerNode
from node.broker.members import MemberBrokerNode, MemberParts
from node.broker.placement import PlacementBrokerNode, PlacementParts
from node.broker.producer_flights import ProducersInFlight
from node.broker.queue_parts import QueueParts
from node.broker.reads import READ_DEADLINE_S, READ_PATIENCE_S, PartitionReads
from node.broker.scrub import ScrubBrokerNode
from node.broker.search import SearchBrokerNode, SearchParts
from node.broker.upgrade import UpgradeBrokerNode
from node.broker.why import WhyBrokerNode, Whys
from node.cluster.host import ClusterHost
from node.cluster.tenant_quotas import Shares
from node.cluster.topic_defaults import wanted_settings
from node.cluster.topic_finder import TopicFinder
from node.config.node import NodeConfig
from node.observe.status import NodeStatus
from node.partition.trace import trace_from_answer, trace_message
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.placement.views import Progress, no_progress
from node.replicas.local import Replicas
from node.replicas.offsets import EndsCollector
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc
from node.storage.repair.scrub import Scrub
from node.storage.sync import TopicSync

COMMAND_DEADLINE_S = 15.0
ORDER_PAUSE_S = 0.01
"""How long a producer's batch waits when it has overtaken an earlier one that is being retried."""
LED_DEADLINE_S = 10.0
LED_POLL_S = 0.01


class NodeBroker(
    MemberBrokerNode,
    PlacementBrokerNode,
    ScrubBrokerNode,
    CompactionBrokerNode,
    ArchiveBrokerNode,
    EventBrokerNode,
    SearchBrokerNode,
    WhyBrokerNode,
    UpgradeBrokerNode,
):
    """Implements `node.api.broker.Broker`. Loop thread only."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        cluster: ClusterHost,
        replicas: Replicas,
        service: PartitionService,
        forwarder: Forwarder,
        ends: EndsCollector,
        sync: TopicSync,
        status: NodeStatus,
        rng: random.Random,
        finder: TopicFinder,
        queue: QueueParts,
        members: MemberParts,
        scrub: Scrub,
        whys: Whys,
        link: PeerLink,
        search: SearchParts,
        progress: Callable[[], Awaitable[Progress]] = no_progress,
    ) -> None:
        ScrubBrokerNode.__init__(self, NodeId(config.node_id), scrub, link, lambda: cluster.nodes)
        CompactionBrokerNode.__init__(self, finder, service, forwarder, link)
        ArchiveBrokerNode.__init__(self, finder, service, forwarder, link)
        EventBrokerNode.__init__(self, finder, service, forwarder, link)
        WhyBrokerNode.__init__(self, whys)
        UpgradeBrokerNode.__init__(self, cluster, lambda: status.cluster_view().nodes)
        MemberBrokerNode.__init__(self, finder, queue, members)
        SearchBrokerNode.__init__(self, search, queue, finder)
        PlacementBrokerNode.__init__(
            self,
            PlacementParts(
                cluster=cluster,
                nodes=lambda: status.cluster_view().nodes,
                sizes=ends.sizes,
                progress=progress,
                until_led=self._until_led,
                request_id=lambda: rng.getrandbits(63) or 1,
            ),
        )
        self.shares: TenantShares = Shares(lambda: cluster.state, config.topic_defaults.partitions)
        self._config = config
        self._cluster = cluster
        self._replicas = replicas
        self._service = service
        self._forwarder = forwarder
        self._ends = ends
        self._reads = PartitionReads(replicas, service, forwarder)
        self._sync = sync
        self._status = status
        self._random_id = rng.getrandbits
        self._in_flight = ProducersInFlight()
        self._tasks = TaskSet(None)
        self._creating: dict[str, asyncio.Future[TopicView]] = {}

    @property
    def node_id(self) -> str:
        return self._config.node_id

    # topics

    async def create_topic(self, name: str, overrides: Mapping[str, object]) -> TopicView:
        validate_topic_name(name)
        if self._has(name) and await self._cluster.refresh() and self._has(name):
            raise TopicExists(name)
        wanted = await wanted_settings(self._config, self._cluster, overrides)
        others, codec = split(wanted)
        if codec is not None:
            self._cluster.levels.require(Feature.TOPIC_COMPRESSION)
        try:
            command = CreateTopic(name, wanted, self._cluster.absent())
            await self._cluster.command(command, COMMAND_DEADLINE_S)
        except TopicExists as error:
            if error.outcome == "none":  # else this very call may have created it, earlier
                raise
            await self._cluster.refresh()
            found = self._cluster.state.topics.get(name)
            if found is None or not found.has(others):
                raise
        created = self._cluster.state.topics.get(name)
        await self._until_led(name)
        try:
            return await self._view(created) if created is not None else await self.topic(name)
        except UnknownTopic as error:
            raise OutcomeUnknown(f"topic {name} was created, and is gone by now") from error

    def _has(self, name: str) -> bool:
        """As far as this node knows: others may have deleted it since."""
        return name in self._cluster.state.topics

    async def alter_topic(self, name: str, changes: Mapping[str, object]) -> TopicView:
        topic, settings = await self._current(name), dict(changes)
        factor = settings.pop("replication_factor", None)
        others, codec = split(settings)
        if codec is not None:
            self._cluster.levels.require(Feature.TOPIC_COMPRESSION)
        alter_config(topic.config, others)  # all of it, or nothing
        if isinstance(factor, int) and factor != topic.config.replication_factor:
            await self.set_replication_factor(name, factor)
        if settings:
            command = AlterTopic(name, settings, str(topic.id))
            await self._cluster.command(command, COMMAND_DEADLINE_S)
        return await self._view(topic)

    async def delete_topic(self, name: str) -> None:
        topic = await self._current(name)
        command = DeleteTopic(name, str(topic.id))
        await self._cluster.command(command, COMMAND_DEADLINE_S)

    def list_topics(self) -> list[str]:
        self._cluster.check_outcast()
        topics = self._cluster.state.topics
        return sorted(name for name in topics if not name.startswith(INTERNAL_PREFIX))

    async def topic(self, name: str) -> TopicView:
        is_current = await self._cluster.refresh()
        view = await self._view(await self._topic(name))
        return dataclasses.replace(view, is_current=is_current)

    async def _view(self, topic: Topic) -> TopicView:
        """The topic as it is here by now; as it was, if somebody has deleted it since."""
        topic = self._cluster.state.topic_of(topic.id) or topic
        ends, stale = await self._ends.known(topic)
        return self._status.topic_view(topic, ends, stale)

    def partition_count(self, topic: str) -> int:
        return len(self._cluster.topic(topic).partitions)

    def max_message_bytes(self, topic: str) -> int:
        return self._cluster.topic(topic).config.max_message_bytes

    def delay_ms_max(self, topic: str) -> int:
        return self._cluster.topic(topic).config.delay_ms_max

    def is_compacted(self, topic: str) -> bool:
        return self._cluster.topic(topic).config.is_compacted

    def compression(self, topic: str) -> str:
        state = self._cluster.state
        return state.compressions.of(self._cluster.topic(topic).id)

    async def ensure_topic(self, name: str) -> None:
        if name in self._cluster.state.topics:
            return
        if not self._config.broker.auto_create_topics:
            await self._topic(name)
            return
        running = self._creating.get(name)
        if running is None:
            running = self._tasks.begin(self.create_topic(name, {}))
            self._creating[name] = running
            running.add_done_callback(lambda _done: self._creating.pop(name, None))
        try:
            await asyncio.shield(running)
        except TopicExists:  # another node was asked at the same time
            await self._until_led(name)

    # records

    async def append(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        *,
        deadline_s: float,
        validated: bool = False,
    ) -> AppendResult:
        try:
            return await self._append_in_order(topic, partition, batch, deadline_s, validated)
        except GoQueueError as error:
            known = topic in self._cluster.state.topics
            count = _count(batch)
            self._queue.requests.failed(topic, error.code, count, is_known=known)
            raise

    async def _append_in_order(
        self, topic: str, partition: int, batch: bytes, deadline_s: float, validated: bool
    ) -> AppendResult:
        group = await self._group(topic, partition)
        with self._in_flight.entered(group, batch) as flight:
            end_s = asyncio.get_running_loop().time() + deadline_s
            while True:
                left_s = end_s - asyncio.get_running_loop().time()
                try:
                    return await self._append(group, batch, validated, left_s)
                except OutOfOrder:
                    if not flight.follows_another or left_s <= 0:
                        raise
                await asyncio.sleep(ORDER_PAUSE_S)  # the batch before it is still on its way

    async def _append(
        self, group: GroupId, batch: bytes, validated: bool, deadline_s: float
    ) -> AppendResult:
        request_id = self._random_id(64) or 1

        async def here(left_s: float) -> AppendResult:
            return await self._service.append(
                group, batch, request_id=request_id, validated=validated, deadline_s=left_s
            )

        return await self._forwarder.call(
            group,
            local=here,
            method=rpc.APPEND,
            payload=lambda _left_s: rpc.encode_append(group, request_id, validated, batch),
            decode=rpc.decode_appended,
            deadline_s=deadline_s,
        )

    async def read(
        self,
        topic: str,
        partition: int,
        offset: Offset,
        *,
        max_records: int,
        max_bytes: int,
        wait_s: float,
        to_time_ms: int | None = None,
        visible: bool = False,
        current: bool = False,
    ) -> Slice:
        group = await self._group(topic, partition)
        max_bytes = min(max_bytes, self._config.limits.read_bytes)
        request = rpc.ReadRequest(
            group.pack(),
            offset,
            max_records,
            max_bytes,
            round(wait_s * 1000),
            to_time_ms,
            visible,
            current,
        )
        return await self._reads.read(group, request)

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> Offset:
        return await self._reads.offset_at(await self._group(topic, partition), time_ms)

    async def end_offsets(self, topic: str) -> dict[int, tuple[Offset, Offset]]:
        ends = await self._ends.confirmed(await self._topic(topic))
        return {
            number: (Offset(found.earliest), Offset(found.next)) for number, found in ends.items()
        }

    async def flush(self, topic: str) -> None:
        await self._sync.flush(await self._topic(topic))

    async def message_trace(self, topic: str, partition: int, offset: Offset) -> MessageTrace:
        group = await self._group(topic, partition)

        async def here(_left_s: float) -> rpc.TraceAnswer:
            return await self._service.trace(group, offset)

        stale = False
        try:
            answer = await self._forwarder.call(
                group,
                local=here,
                method=rpc.TRACE,
                payload=lambda _left_s: rpc.encode(rpc.OffsetRequest(group.pack(), offset)),
                decode=rpc.decode_trace,
                deadline_s=READ_DEADLINE_S,
                patience_s=READ_PATIENCE_S,
            )
        except (NoQuorum, Timeout):
            host = self._replicas.find(group)
            if host is None or offset >= host.end_offset:  # it may be there all the same
                raise
            answer = await trace_message(host, offset)  # as much as this replica has applied
            stale = True
        found = trace_from_answer(topic, partition, offset, answer)
        return dataclasses.replace(found, stale=stale)

    # producers

    async def init_producer(self, transactional_id: str | None) -> tuple[int, int]:
        granted = await self._cluster.command(
            AllocateProducer(transactional_id), COMMAND_DEADLINE_S
        )
        assert isinstance(granted, ProducerAllocated), "what this command results in"
        return granted.producer_id, granted.epoch

    async def check_producer(self, producer_id: int, epoch: int) -> None:
        try:
            self._cluster.state.check_producer(producer_id, epoch)
        except GoQueueError:  # another node may just have given this identity out
            await self._cluster.refresh()
            self._cluster.state.check_producer(producer_id, epoch)

    # the node itself

    def cluster_view(self) -> ClusterView:
        return self._status.cluster_view()

    def stats(self) -> StatsView:
        return self._status.stats()

    async def confirmed_stats(self) -> StatsView:
        here = self._status.hosts_by_topic()
        groups = [host.id for hosts in here.values() for host in hosts]
        return self._status.stats(await self._ends.told(groups))

    def alive(self) -> str | None:
        return self._status.fault

    def ready(self) -> Readiness:
        return self._status.readiness()

    # private

    async def _topic(self, name: str) -> Topic:
        return await self._finder.find(name)

    async def _current(self, name: str) -> Topic:
        """The topic that has the name now, not one that was deleted before the call.

        Raises `UnknownTopic`, and `Unavailable` while nobody can say."""
        end = asyncio.get_running_loop().time() + COMMAND_DEADLINE_S
        while not await self._cluster.refresh():
            if asyncio.get_running_loop().time() >= end:
                raise Unavailable("the cluster group has no leader within reach", topic=name)
            await asyncio.sleep(LED_POLL_S)
        return await self._topic(name)

    async def _group(self, topic: str, partition: int) -> GroupId:
        found = await self._finder.find(topic, partition + 1)
        if not 0 <= partition < len(found.partitions):
            raise UnknownPartition(topic, partition)
        return GroupId(found.id, partition)

    async def _until_led(self, name: str) -> None:
        """Wait until every partition of a topic has a leader known here, for a while."""
        loop = asyncio.get_running_loop()
        end, was_there = loop.time() + LED_DEADLINE_S, False
        while loop.time() < end:
            topic = self._cluster.state.topics.get(name)
            if topic is not None and self._replicas.all_led(topic):
                return
            if topic is None and was_there:
                return  # somebody has deleted it
            was_there = topic is not None
            await asyncio.sleep(LED_POLL_S)


def _count(batch: bytes) -> int:
    """Messages in a batch that was refused, 1 where it can't be read."""
    try:
        return RecordBatch.parse(batch).count
    except GoQueueError:
        return 1

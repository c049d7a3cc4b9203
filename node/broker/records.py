"""Publishing and reading as the HTTP front asks for it, from any node: a part of the broker."""

from __future__ import annotations

import asyncio
import random

from coordinator.commands.codec import AllocateProducer, ProducerAllocated
from delivery.entries.records import NO_REQUEST
from goqueue.wire.batch import RecordBatch
from goqueue.wire.errors import GoQueueError, OutOfOrder
from goqueue.wire.types import Offset, PartitionId
from node.api.records import AppendResult, Slice
from node.broker.partitions import Partitions
from node.broker.producer_flights import ProducersInFlight
from node.broker.reads import PartitionReads
from node.broker.sticky import StickyPartitions
from node.cluster.host import ClusterHost
from node.groups.request_metrics import RequestMetrics
from node.replicas.offsets import OffsetsCollector
from node.rpc import partitions as rpc
from node.storage.sync import TopicSync

COMMAND_DEADLINE_S = 15.0
ORDER_PAUSE_S = 0.01
"""How long a producer's batch waits when it has overtaken an earlier one that is being retried."""


class NodeRecords:
    """Implements `node.api.records.Records`. Loop thread only."""

    def __init__(
        self,
        partitions: Partitions,
        cluster: ClusterHost,
        reads: PartitionReads,
        offsets_collector: OffsetsCollector,
        sync: TopicSync,
        requests: RequestMetrics,
        rng: random.Random,
        read_bytes: int,
    ) -> None:
        """`read_bytes` bounds one slice, whatever is asked for."""
        self._partitions = partitions
        self._cluster = cluster
        self._reads = reads
        self._offsets_collector = offsets_collector
        self._sync = sync
        self._requests = requests
        self._random_id = rng.getrandbits
        self._read_bytes = read_bytes
        self._in_flight = ProducersInFlight()
        self._sticky = StickyPartitions(partitions.forwarder.led_here, rng)

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
            self._requests.failed(topic, error.code, count, is_known=known)
            raise

    async def _append_in_order(
        self, topic: str, partition: int, batch: bytes, deadline_s: float, validated: bool
    ) -> AppendResult:
        partition_id = await self._partitions.named(topic, partition)
        with self._in_flight.entered(partition_id, batch) as flight:
            end_s = asyncio.get_running_loop().time() + deadline_s
            while True:
                left_s = end_s - asyncio.get_running_loop().time()
                try:
                    return await self._append(partition_id, batch, validated, left_s)
                except OutOfOrder:
                    if not flight.follows_another or left_s <= 0:
                        raise
                await asyncio.sleep(ORDER_PAUSE_S)  # the batch before it is still on its way

    async def _append(
        self, partition_id: PartitionId, batch: bytes, validated: bool, deadline_s: float
    ) -> AppendResult:
        request_id = self._random_id(64) or 1

        async def here(left_s: float) -> AppendResult:
            return await self._partitions.service.append(
                partition_id, batch, request_id=request_id, validated=validated, deadline_s=left_s
            )

        return await self._partitions.forwarder.call(
            partition_id,
            local=here,
            method=rpc.APPEND,
            payload=lambda _left_s: rpc.encode_append(partition_id, request_id, validated, batch),
            decode=rpc.decode_appended,
            deadline_s=deadline_s,
        )

    def append_here(
        self, topic: str, partition: int, batch: RecordBatch
    ) -> asyncio.Future[AppendResult]:
        """As `append` of a validated batch without a producer, at once, where this node leads the
        partition. Nothing is repeated, so it has no request id, and no deadline is kept. Raises
        NotLeader, with the outcome none, elsewhere, and as `PartitionHost.append`; the future's
        error may be one of those."""
        found = self._cluster.topic(topic)
        host = self._partitions.service.leading(PartitionId(found.id, partition))
        return host.append(batch, request_id=NO_REQUEST, validated=True)

    def pick_partition(self, topic: str, messages: int) -> int:
        found = self._cluster.topic(topic)
        now_s = asyncio.get_running_loop().time()
        return self._sticky.pick(found.id, len(found.partitions), messages, now_s)

    def leader_elsewhere(self, topic: str, partition: int) -> str | None:
        found = self._cluster.state.topics.get(topic)
        if found is None:
            return None
        return self._partitions.forwarder.leader_elsewhere(PartitionId(found.id, partition))

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
        partition_id = await self._partitions.named(topic, partition)
        max_bytes = min(max_bytes, self._read_bytes)
        request = rpc.ReadRequest(
            partition_id.pack(),
            offset,
            max_records,
            max_bytes,
            round(wait_s * 1000),
            to_time_ms,
            visible,
            current,
        )
        return await self._reads.read(partition_id, request)

    async def offset_at(self, topic: str, partition: int, time_ms: int) -> Offset:
        return await self._reads.offset_at(await self._partitions.named(topic, partition), time_ms)

    async def end_offsets(self, topic: str) -> dict[int, tuple[Offset, Offset]]:
        offsets = await self._offsets_collector.confirmed(await self._partitions.finder.find(topic))
        return {
            number: (Offset(found.earliest), Offset(found.next))
            for number, found in offsets.items()
        }

    async def flush(self, topic: str) -> None:
        await self._sync.flush(await self._partitions.finder.find(topic))

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


def _count(batch: bytes) -> int:
    """Messages in a batch that was refused, 1 where it can't be read."""
    try:
        return RecordBatch.parse(batch).count
    except GoQueueError:
        return 1

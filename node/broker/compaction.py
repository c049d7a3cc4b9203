"""Compaction asked for and told, at the leaders of a topic's partitions: a part of the broker."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

import msgspec

from coordinator.cluster.state import Topic
from goqueue.background import TaskSet
from goqueue.wire.errors import Conflict, GoQueueError, ServerError
from goqueue.wire.types import NodeId, PartitionId
from log.errors import StoreFailed
from node.api.compaction import CompactionRun, PartitionCompaction
from node.broker.partitions import Partitions
from node.partition.host import PartitionHost
from node.partition.retention.compaction import Findings
from node.rpc import partitions as rpc
from node.storage.flusher import Flusher

COMPACTION = "compaction"
TELL, RUN, DRY_RUN = range(3)
RUN_WAIT_S = 10.0
"""An answer does not wait longer for a run, which goes on."""
DRY_RUN_WAIT_S = 120.0
TELL_S = 5.0


class CompactionRequest(rpc.PartitionRequest, array_like=True, frozen=True):
    """What is asked of a partition's leader."""

    partition: bytes
    action: int

    def packed_partitions(self) -> tuple[bytes, ...]:
        return (self.partition,)


_decode = msgspec.msgpack.Decoder(PartitionCompaction).decode


class NodeCompactions:
    """Implements `node.api.compaction.Compactions`. Loop thread only."""

    def __init__(self, partitions: Partitions, flusher: Flusher) -> None:
        self._partitions = partitions
        self._flusher = flusher
        self._running = TaskSet("node", "compaction_failed")
        partitions.link.handle(COMPACTION, self._serve)

    async def compaction(self, topic: str) -> dict[int, PartitionCompaction | None]:
        return await self._ask_all(await self._partitions.finder.find(topic), TELL, TELL_S)

    async def compact(self, topic: str, *, dry_run: bool) -> dict[int, PartitionCompaction | None]:
        found = await self._partitions.finder.find(topic)
        if not found.config.is_compacted:
            raise Conflict(f"topic {topic} is not compacted: its cleanup is {found.config.cleanup}")
        if dry_run:
            return await self._ask_all(found, DRY_RUN, TELL_S + DRY_RUN_WAIT_S)
        return await self._ask_all(found, RUN, TELL_S + RUN_WAIT_S)

    async def _ask_all(
        self, topic: Topic, action: int, deadline_s: float
    ) -> dict[int, PartitionCompaction | None]:
        partition_ids = [PartitionId(topic.id, number) for number in range(len(topic.partitions))]
        views = await asyncio.gather(
            *(self._ask(partition_id, action, deadline_s) for partition_id in partition_ids)
        )
        return dict(enumerate(views))

    async def _ask(
        self, partition_id: PartitionId, action: int, deadline_s: float
    ) -> PartitionCompaction | None:
        async def here(_left_s: float) -> PartitionCompaction:
            return await self._act(partition_id, action)

        try:
            return await self._partitions.forwarder.call(
                partition_id,
                local=here,
                method=COMPACTION,
                payload=lambda _left_s: rpc.encode(CompactionRequest(partition_id.pack(), action)),
                decode=_decode,
                deadline_s=deadline_s,
            )
        except (GoQueueError, msgspec.DecodeError):
            return None

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, CompactionRequest)
        return rpc.encode(await self._act(PartitionId.unpack(request.partition), request.action))

    async def _act(self, partition_id: PartitionId, action: int) -> PartitionCompaction:
        host = self._partitions.service.leading(partition_id)
        if action == TELL:
            return _view(host, None)
        dry_run = action == DRY_RUN
        try:
            await self._flusher.spilled()  # a run looks at segments
        except StoreFailed as error:
            raise ServerError(f"not compacted: {error}") from error
        running = self._running.begin(host.compactor.run(force=True, dry_run=dry_run))
        await asyncio.wait([running], timeout=DRY_RUN_WAIT_S if dry_run else RUN_WAIT_S)
        return _view(host, running.result() if running.done() else Findings("running"))


def _view(host: PartitionHost, findings: Findings | None) -> PartitionCompaction:
    run = None if findings is None else CompactionRun(**asdict(findings))
    return PartitionCompaction(**asdict(host.compactor.standing()), run=run)

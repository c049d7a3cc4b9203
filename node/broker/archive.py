"""What archives report of a topic's partitions, put into their logs by their leaders: a part of the
broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from delivery.entries.ops import Archived, ArchivedResult
from delivery.history.archive import LOCATION_CHARACTERS_MAX
from goqueue.wire.errors import (
    BadRequest,
    OffsetOutOfRange,
    OtherArchive,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.types import NodeId, Offset, PartitionId
from node.api.archive import PartitionArchive
from node.broker.partitions import Partitions
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc

ARCHIVED = "archived"
DEADLINE_S = 10.0


class ArchivedRequest(rpc.PartitionRequest, array_like=True, frozen=True):
    """A report to a partition's leader."""

    partition: bytes
    topic: str
    location: str
    position: int
    anew: bool = False

    def packed_partitions(self) -> tuple[bytes, ...]:
        return (self.partition,)


class NodeArchives:
    """Implements `node.api.archive.Archives`. Loop thread only."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        partitions.link.handle(ARCHIVED, self._serve)

    async def archived(
        self,
        topic: str,
        location: str,
        positions: Mapping[int, Offset],
        *,
        topic_id: str | None,
        anew: bool,
    ) -> dict[int, PartitionArchive]:
        found = await self._partitions.finder.find(topic, max(positions, default=-1) + 1)
        if topic_id is not None and topic_id != str(found.id):
            raise UnknownTopic(f"{topic} of the id {topic_id[:80]}")
        for partition in positions:
            if not 0 <= partition < len(found.partitions):
                raise UnknownPartition(topic, partition)
        if len(location) > LOCATION_CHARACTERS_MAX:
            raise BadRequest(f"archive: longer than {LOCATION_CHARACTERS_MAX} characters")
        requests = [
            ArchivedRequest(PartitionId(found.id, number).pack(), topic, location, position, anew)
            for number, position in sorted(positions.items())
        ]
        views = await asyncio.gather(*map(self._tell, requests), return_exceptions=True)
        told: dict[int, PartitionArchive] = {}
        for request, view in zip(requests, views, strict=True):
            if isinstance(view, BaseException):
                raise view
            told[PartitionId.unpack(request.partition).partition] = view
        return told

    async def _tell(self, request: ArchivedRequest) -> PartitionArchive:
        async def here(_left_s: float) -> PartitionArchive:
            return await self._note(request)

        return await self._partitions.forwarder.call(
            PartitionId.unpack(request.partition),
            local=here,
            method=ARCHIVED,
            payload=lambda _left_s: rpc.encode(request),
            decode=lambda answer: queue_rpc.decode_answer(answer, PartitionArchive),
            deadline_s=DEADLINE_S,
            has_identity=not request.anew,  # which takes over from any archive told of since
        )

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self._note(rpc.decode_request(payload, ArchivedRequest)))

    async def _note(self, request: ArchivedRequest) -> PartitionArchive:
        """As leader: what is reported is in the log, applied, when this answers."""
        partition_id = PartitionId.unpack(request.partition)
        host = await self._partitions.service.confirmed(partition_id)
        end = host.end_offset
        if not 0 <= request.position <= end:
            raise OffsetOutOfRange(request.position, host.state.first_offset, end)
        archive, archiving = host.state.queue.archive, host.retention.archiving
        known = (request.location, request.position) == (archive.location, archive.position)
        if not known:
            op = Archived(request.location, request.position, request.anew)
            (result,) = await host.queue.submit([op])
            assert isinstance(result, ArchivedResult), "what a report results in"
            if not result.is_same:
                raise OtherArchive(request.topic, partition_id.partition, result.location)
        return archiving.standing(host.log_time_ms())

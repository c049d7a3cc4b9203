"""What is settled goes when that is asked for, at partitions' leaders: a part of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from coordinator.errors import UpgradeWaits
from goqueue.wire.errors import Conflict, ServerError
from goqueue.wire.types import Index, NodeId, PartitionId
from log.errors import LogError
from log.levels import Feature, Levels
from log.partition.log import PartitionLog
from log.segments.chain import SegmentInfo
from node.api.trims import PartitionTrim
from node.broker.partitions import Partitions
from node.partition.settled import SettledTrim
from node.queue.lag import TakingPart
from node.rpc import partitions as rpc
from node.storage.flusher import Flusher

TRIM = "trim_settled"
DEADLINE_S = 25.0


class TrimRequest(rpc.PartitionRequest, array_like=True, frozen=True):
    """What is asked of a partition's leader."""

    partition: bytes

    def packed_partitions(self) -> tuple[bytes, ...]:
        return (self.partition,)


_decode = msgspec.msgpack.Decoder(PartitionTrim).decode


class NodeTrims:
    """Implements `node.api.trims.Trims`. Loop thread only."""

    def __init__(
        self,
        partitions: Partitions,
        taking_part: TakingPart,
        flusher: Flusher,
        levels: Levels,
        snapshot: Callable[[PartitionId], Awaitable[None]],
        finish_level: Callable[[], Awaitable[object]] | None,
    ) -> None:
        """`snapshot` stores the state of a replica here, where it is another than was stored;
        `finish_level` is given where levels are finished unasked: a new cluster does so within some
        seconds, which nobody should have to wait for."""
        self._partitions = partitions
        self._taking_part = taking_part
        self._flusher = flusher
        self._levels = levels
        self._snapshot = snapshot
        self._finish_level = finish_level
        partitions.link.handle(TRIM, self._serve)

    async def trim_settled(self, topic: str) -> dict[int, PartitionTrim]:
        found = await self._partitions.finder.find(topic)
        if self._finish_level is not None and not self._levels.speaks(Feature.TRIMS_OF_SETTLED):
            with suppress(UpgradeWaits):
                await self._finish_level()
        self._levels.require(Feature.TRIMS_OF_SETTLED)
        if found.config.is_compacted:
            raise Conflict(
                f"topic {topic} keeps the last value of each key, done or not: `topic compact`"
                " drops those before",
                topic=topic,
            )
        partition_ids = [PartitionId(found.id, number) for number in range(len(found.partitions))]
        trims = await asyncio.gather(*map(self._ask, partition_ids), return_exceptions=True)
        told: dict[int, PartitionTrim] = {}
        for number, trim in enumerate(trims):
            if isinstance(trim, BaseException):
                raise trim
            told[number] = trim
        return told

    async def _ask(self, partition_id: PartitionId) -> PartitionTrim:
        async def here(_left_s: float) -> PartitionTrim:
            return await self._trim(partition_id)

        return await self._partitions.forwarder.call(
            partition_id,
            local=here,
            method=TRIM,
            payload=lambda _left_s: rpc.encode(TrimRequest(partition_id.pack())),
            decode=_decode,
            deadline_s=DEADLINE_S,
        )

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, TrimRequest)
        return rpc.encode(await self._trim(PartitionId.unpack(request.partition)))

    async def _trim(self, partition_id: PartitionId) -> PartitionTrim:
        """As leader: trim, then give back what that leaves of files."""
        self._levels.require(Feature.TRIMS_OF_SETTLED)
        host = self._partitions.service.leading(partition_id)
        log = host.log

        async def snapshot() -> None:
            await self._flusher.sync()
            await self._snapshot(partition_id)

        try:
            await self._flusher.spilled()
            segments = _by_first(log)
            groups = lambda: self._taking_part.groups_in(host)  # noqa: E731
            settled = await SettledTrim(host, groups, snapshot).run()
            await snapshot()
            segments |= _by_first(log)  # those that went by themselves are told as they were
            if any(s.last_index < host.state.log_start_index for s in segments.values()):
                await self._flusher.checkpointed()
        except (LogError, OSError) as error:
            raise ServerError(f"not trimmed: {error}") from error
        gone = sum(s.size_bytes for s in segments.values() if s.last_index < log.first_index)
        return PartitionTrim(settled.messages, gone, host.state.log_start_offset, settled.kept_for)


def _by_first(log: PartitionLog) -> dict[Index, SegmentInfo]:
    return {segment.first_index: segment for segment in log.segments()}

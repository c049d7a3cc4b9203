"""What a leader tells of how far groups have come in its partitions.

A group that is not open in a partition is looked at as it would begin there; nothing is opened for
a question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from delivery.config import bounded
from delivery.group.lag import delayed_count, lag_count, lag_ms, would_seek
from delivery.group.state import GroupState
from goqueue.wire.errors import GoQueueError
from goqueue.wire.types import NodeId, Offset, PartitionId
from log.errors import LogError
from node.partition.host import PartitionHost
from node.peers.link import PeerLink
from node.queue.lag import standing
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc
from node.rpc import positions as position_rpc
from node.rpc.positions import LagAnswer, LagRequest, LagRow, ResetAnswer, ResetRequest
from node.rpc.queue import GroupRef


class PositionViews:
    """Answers for partitions led here, each no older than the question."""

    def __init__(self, partitions: PartitionService, link: PeerLink) -> None:
        self._partitions = partitions
        link.handle(position_rpc.LAG, self._serve_lag)
        link.handle(position_rpc.WOULD_RESET, self._serve_reset)

    async def lag(self, request: LagRequest) -> LagAnswer:
        """Of those led here; the others are left out."""
        answer = LagAnswer([], [])
        wanted = list(map(PartitionId.unpack, request.partitions))
        for partition in map(PartitionId.unpack, request.others):
            closed = self._is_closed(partition, request.group)
            if closed:
                answer.closed.append(partition.pack())
            elif closed is False:
                wanted.append(partition)
        for host in await self._confirmed(wanted):
            answer.rows.append(lag_row(host, request.group, request.created_ms))
        return answer

    async def would_reset(self, request: ResetRequest) -> ResetAnswer:
        """Raises `NotLeader`."""
        host = await self._partitions.confirmed(PartitionId.unpack(request.partition))
        group = standing(host, request.group, request.created_ms)
        target = _target(host, group, request)
        move = would_seek(group, target)
        return ResetAnswer(
            target,
            move.before,
            move.after,
            move.replayed,
            move.skipped,
            group.owner.member,
            group.owner.generation,
        )

    # private

    def _is_closed(self, partition: PartitionId, ref: GroupRef) -> bool | None:
        """None where the partition is not led here."""
        try:
            host = self._partitions.leading(partition)
        except GoQueueError:
            return None
        return ref.id not in host.state.queue.groups

    async def _confirmed(self, partitions: Sequence[PartitionId]) -> list[PartitionHost]:
        found = await asyncio.gather(
            *map(self._partitions.confirmed, partitions), return_exceptions=True
        )
        for fault in found:
            if isinstance(fault, BaseException) and not isinstance(fault, GoQueueError):
                raise fault
        return [host for host in found if not isinstance(host, BaseException)]

    # for peers

    async def _serve_lag(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.lag(rpc.decode_request(payload, LagRequest)))

    async def _serve_reset(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.would_reset(rpc.decode_request(payload, ResetRequest)))


def lag_row(host: PartitionHost, ref: GroupRef, created_ms: int) -> LagRow:
    """How far a group has come in a partition."""
    group = standing(host, ref, created_ms)
    return LagRow(
        partition=host.id.pack(),
        is_open=ref.id in host.state.queue.groups,
        committed=group.committed_offset,
        end=host.end_offset,
        lag=lag_count(group),
        lag_ms=lag_ms(group, host.log_time_ms(), _stored_at(host)),
        in_flight=len(group.leases),
        delayed=delayed_count(group),
        dead=len(group.dead),
        owner=group.owner.member,
        generation=group.owner.generation,
    )


def _stored_at(host: PartitionHost) -> Callable[[int], int | None]:
    def stored_at(offset: int) -> int | None:
        try:
            return host.reader.time_at(Offset(offset))
        except LogError:  # damaged here
            return None

    return stored_at


def _target(host: PartitionHost, group: GroupState, request: ResetRequest) -> int:
    """The offset that is meant, no further than the end. At or before the log's start it is 0: what
    outlived the log comes as well."""
    end = host.end_offset
    if request.at == "earliest":
        wanted = 0
    elif request.offset is not None:
        wanted = request.offset
    elif request.shift is not None:
        wanted = group.committed_offset + request.shift
    elif request.time_ms is not None or request.duration_ms is not None:
        time_ms = request.time_ms
        if time_ms is None:
            time_ms = max(0, host.log_time_ms() - (request.duration_ms or 0))
        found = host.reader.offset_at(time_ms)
        wanted = end if found is None else found
    else:
        wanted = end
    return 0 if wanted <= host.state.log_start_offset else bounded(wanted, 0, end)

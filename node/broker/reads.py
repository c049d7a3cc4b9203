"""Reading a partition from any node: from its own replica as far as that goes, and from the leader
where the end is concerned.

Only a leader that a majority still follows knows an end. Where none tells in time, what this node
has applied is the answer, and it is stale: more may have been acknowledged.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress

from msgspec import structs

from goqueue.wire.errors import NoQuorum, NotLeader, OffsetOutOfRange, Timeout
from goqueue.wire.types import Offset, PartitionId
from log.errors import LogError
from node.api.records import Slice
from node.partition.host import PartitionHost
from node.partition.offset_lookup import time_at_hand
from node.peers.forwarding import Forwarder
from node.replicas.local import Replicas
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc

READ_DEADLINE_S = 10.0
READ_PATIENCE_S = 0.3
"""How long a read looks for a leader without a majority before it settles for what is here,"""
CONFIRM_S = 5.0
"""and how long it waits for a leader that a majority may follow: well below what clients wait."""


class PartitionReads:
    """Loop thread only."""

    def __init__(self, replicas: Replicas, service: PartitionService, forwarder: Forwarder) -> None:
        self._replicas = replicas
        self._service = service
        self._forwarder = forwarder

    async def read(self, partition_id: PartitionId, request: rpc.ReadRequest) -> Slice:
        """See `node.api.records.Records.read`. Raises `NoQuorum`, `Timeout` where no leader answers
        and this node has nothing at the offset."""
        host = self._replicas.find(partition_id)
        if host is not None and not (host.is_leader or request.current) and _is_current(host):
            local = await self._read_applied(host, request)
            if local is not None and not local.is_at_end:
                return _told_of(partition_id, local)
        try:
            return _told_of(partition_id, await self._read_at_leader(partition_id, request, host))
        except (NoQuorum, Timeout, NotLeader):
            local = None if host is None else await self._read_applied(host, request)
            if local is None:
                raise
            return _told_of(partition_id, local, stale=request.current or local.is_at_end)

    async def offset_at(self, partition_id: PartitionId, time_ms: int) -> Offset:
        """See `node.api.records.Records.offset_at`."""
        host = self._replicas.find(partition_id)
        if host is not None:
            with suppress(LogError):  # damaged, or not known here: the leader may know
                await time_at_hand(host.log, time_ms)
                found = host.offset_at(time_ms)
                if found is not None:
                    return found

        async def here(_left_s: float) -> Offset:
            return await self._service.offset_at(partition_id, time_ms)

        return await self._forwarder.call(
            partition_id,
            local=here,
            method=rpc.OFFSET_AT,
            payload=lambda _left_s: rpc.encode(rpc.OffsetRequest(partition_id.pack(), time_ms)),
            decode=lambda answer: Offset(int.from_bytes(answer, "little")),
            deadline_s=CONFIRM_S,
            patience_s=READ_PATIENCE_S,
        )

    async def _read_applied(self, host: PartitionHost, request: rpc.ReadRequest) -> Slice | None:
        """What this replica has applied; None where it lags behind the offset, or where what it
        holds is damaged: another one may serve it."""
        if host.raft_group.is_learner:
            return None
        try:
            return await self._service.read_here(host, request)
        except (OffsetOutOfRange, LogError):
            return None

    async def _read_at_leader(
        self, partition_id: PartitionId, request: rpc.ReadRequest, host: PartitionHost | None
    ) -> Slice:
        answer_s = READ_DEADLINE_S if host is None else CONFIRM_S

        def with_wait(left_s: float) -> rpc.ReadRequest:
            left_ms = round(max(0.0, left_s - answer_s) * 1000)
            return structs.replace(request, wait_ms=min(request.wait_ms, left_ms))

        return await self._forwarder.call(
            partition_id,
            local=lambda left_s: self._service.read(with_wait(left_s)),
            method=rpc.READ,
            payload=lambda left_s: rpc.encode(with_wait(left_s)),
            decode=rpc.decode_slice,
            deadline_s=answer_s + request.wait_ms / 1000,
            patience_s=READ_PATIENCE_S if host is not None else None,
        )


def _is_current(host: PartitionHost) -> bool:
    """Whether the replica has applied what it knows to be committed. One that was just started or
    copied has much to apply, and would tell of an end that was passed long ago."""
    return host.raft_group.applied_index >= host.raft_group.commit_index


def _told_of(partition_id: PartitionId, found: Slice, *, stale: bool = False) -> Slice:
    return dataclasses.replace(found, topic_id=partition_id.topic, stale=stale)

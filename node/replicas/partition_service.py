"""What this node does for a partition's requests, its own and those its peers send on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from goqueue.wire.errors import NotLeader, OffsetOutOfRange, Timeout, Unavailable
from goqueue.wire.types import NodeId, Offset, PartitionId
from log.errors import Damaged, EntryDamaged
from node.api.records import AppendResult, Slice, StoredBatch
from node.partition.host import PartitionHost
from node.partition.offset_lookup import offset_at_hand, time_at_hand
from node.partition.trace import trace_message
from node.peers.link import PeerLink
from node.replicas.local import Replicas
from node.rpc import partitions as rpc

READ_STEP_BYTES = 512 << 10
"""Stored bytes read at once: what the loop may stall for when they come from the disk."""
READ_INDEX_TIMEOUT_S = 2.0
ENDS_TIMEOUT_S = 0.7
"""When ends are told without those that no majority has confirmed by then: well before the second
that who asks has for it."""


class PartitionService:
    """Requests to leaders of partitions on this node; each raises `NotLeader` elsewhere."""

    def __init__(self, node: NodeId, replicas: Replicas, link: PeerLink) -> None:
        self._node = node
        self.replicas = replicas
        link.handle(rpc.APPEND, self._append)
        link.handle(rpc.READ, self._read)
        link.handle(rpc.OFFSET_AT, self._offset_at)
        link.handle(rpc.ENDS, self._offsets)
        link.handle(rpc.TRACE, self._trace)

    # for this node's own front

    async def append(
        self,
        partition_id: PartitionId,
        batch: bytes,
        *,
        request_id: int,
        validated: bool,
        deadline_s: float,
    ) -> AppendResult:
        """Append as leader. `Timeout` (outcome unknown) where the entry didn't apply in time."""
        done = self._host(partition_id).append(batch, request_id=request_id, validated=validated)
        try:
            async with asyncio.timeout(deadline_s):
                return await done
        except TimeoutError:
            raise Timeout("the replicas did not confirm in time") from None

    async def read(self, request: rpc.ReadRequest) -> Slice:
        """Read as leader, waiting for an append where nothing is there yet.

        Where that reaches the end, or the end is asked for, this node is known to have led after
        the call, and the end is no older. Raises `NotLeader` where no majority says so.
        """
        host = self._host(PartitionId.unpack(request.partition))
        self._require_leader(host)
        with _mended_soon(host):
            try:
                found = await self._read_or_wait(host, request)
            except OffsetOutOfRange:  # a leader that was replaced knows no end
                await self._confirm(host)
                return await self.read_here(host, request)
            if found.is_at_end or request.current:
                found = await self._with_confirmed_end(host, request, found)
            return found

    async def _with_confirmed_end(
        self, host: PartitionHost, request: rpc.ReadRequest, found: Slice
    ) -> Slice:
        await self._confirm(host)
        if host.end_offset == found.end_offset:
            return found
        if not found.batches:
            return await self.read_here(host, request)
        return replace(found, end_offset=host.end_offset)

    async def _read_or_wait(self, host: PartitionHost, request: rpc.ReadRequest) -> Slice:
        found = await self.read_here(host, request)
        if found.batches or request.wait_ms <= 0 or not found.is_at_end:
            return found
        wait_s = request.wait_ms / 1000
        if request.to_time_ms is not None:
            wait_s = min(wait_s, (request.to_time_ms - host.raft_group.log_time.now_ms()) / 1000)
            if wait_s <= 0:  # whatever comes now is at or after the end that was asked for
                return found
        if not await host.wait_for_records(found.next_offset, wait_s):
            self._require_leader(host)
        return await self.read_here(host, request)

    async def read_here(self, host: PartitionHost, request: rpc.ReadRequest) -> Slice:
        """What this replica has applied, leader or not. A large read is made in steps, between
        which the loop does other things."""
        offset, batches = Offset(request.offset), list[StoredBatch]()
        records, size = request.max_records, request.max_bytes
        while True:
            await offset_at_hand(host.log, offset)
            found = host.read(
                offset,
                max_records=records,
                max_bytes=min(size, READ_STEP_BYTES),
                to_time_ms=request.to_time_ms,
            )
            batches += found.batches
            records -= found.next_offset - max(offset, found.log_start)
            size -= sum(len(stored.batch) for stored in found.batches)
            offset = found.next_offset
            if not found.batches or records <= 0 or size <= 0 or offset >= found.end_offset:
                first = batches[0].base_offset if batches else offset
                seen = host.visibility(first, offset) if request.visible else None
                return Slice(batches, offset, found.log_start, found.end_offset, seen)
            await asyncio.sleep(0)

    async def offset_at(self, partition_id: PartitionId, time_ms: int) -> Offset:
        """First offset at or after the time, as leader; the end where there is none."""
        host = self._host(partition_id)
        await self._confirm(host)
        with _mended_soon(host):
            await time_at_hand(host.log, time_ms)
            found = host.reader.offset_at(time_ms)
        return host.end_offset if found is None else found

    async def offsets(
        self, partition_ids: list[PartitionId], *, linear: bool
    ) -> list[rpc.PartitionOffsets]:
        """What is known here of each partition; with `linear`, only of those led here, as of a
        moment after the question: what is not confirmed in time holds up no other."""
        if not linear:
            return [self._describe(host) for host in self._hosts(partition_ids)]
        return [self._describe(host) for host in await self.all_confirmed(partition_ids)]

    async def trace(self, partition_id: PartitionId, offset: Offset) -> rpc.TraceAnswer:
        """The message's timeline, as leader. Raises `NotFound`."""
        host = self._host(partition_id)
        await self._confirm(host)
        with _mended_soon(host):
            return await trace_message(host, offset)

    def leading(self, partition_id: PartitionId) -> PartitionHost:
        """The partition's replica here, which leads as far as it knows. Raises `NotLeader`."""
        host = self.replicas.find(partition_id)
        if host is None or not host.is_leader:
            raise NotLeader(None if host is None else host.raft_group.leader)
        return host

    async def confirmed(self, partition_id: PartitionId) -> PartitionHost:
        """The partition's replica here once it is known to lead: what it has applied then is no
        older than the question. Raises `NotLeader`."""
        host = self._host(partition_id)
        await self._confirm(host)
        return host

    async def all_confirmed(self, partition_ids: Iterable[PartitionId]) -> list[PartitionHost]:
        """As `confirmed`, those of which a majority says so in time."""
        asked = {
            asyncio.ensure_future(self._confirm(host)): host
            for host in self._hosts(partition_ids)
            if host.is_leader
        }
        if not asked:
            return []
        try:
            done, _ = await asyncio.wait(asked, timeout=ENDS_TIMEOUT_S)
        finally:
            for task in asked:
                task.cancel()
        return [asked[task] for task in asked if task in done and task.exception() is None]

    # for peers

    async def _append(self, _peer: NodeId, payload: bytes) -> bytes:
        partition_id, request_id, validated, batch = rpc.decode_append(payload)
        result = await self._host(partition_id).append(
            batch, request_id=request_id, validated=validated
        )
        return rpc.encode_appended(result)

    async def _read(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode_slice(await self.read(rpc.decode_request(payload, rpc.ReadRequest)))

    async def _offset_at(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, rpc.OffsetRequest)
        offset = await self.offset_at(PartitionId.unpack(request.partition), request.value)
        return offset.to_bytes(8, "little")

    async def _offsets(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, rpc.PartitionsRequest)
        partition_ids = [PartitionId.unpack(partition) for partition in request.partitions]
        return rpc.encode(
            rpc.PartitionOffsetsAnswer(await self.offsets(partition_ids, linear=request.linear))
        )

    async def _trace(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, rpc.OffsetRequest)
        return rpc.encode(
            await self.trace(PartitionId.unpack(request.partition), Offset(request.value))
        )

    # private

    def _hosts(self, partition_ids: Iterable[PartitionId]) -> list[PartitionHost]:
        return [host for host in map(self.replicas.find, partition_ids) if host is not None]

    def _host(self, partition_id: PartitionId) -> PartitionHost:
        host = self.replicas.find(partition_id)
        if host is None:
            raise NotLeader(None)
        return host

    @staticmethod
    def _require_leader(host: PartitionHost) -> None:
        if not host.is_leader:
            raise NotLeader(host.raft_group.leader)

    async def _confirm(self, host: PartitionHost) -> None:
        """Return once this node is known to have led after the call: what it has applied then is
        no older than the question. Raises `NotLeader`."""
        self._require_leader(host)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answered(ok: bool, _index: int) -> None:
            if not done.done():
                done.set_result(ok)

        host.raft_group.reads.ask(answered)
        try:
            async with asyncio.timeout(READ_INDEX_TIMEOUT_S):
                confirmed = await done
        except TimeoutError:
            confirmed = False
        if not confirmed:
            raise NotLeader(None)

    @staticmethod
    def _describe(host: PartitionHost) -> rpc.PartitionOffsets:
        return rpc.PartitionOffsets(
            host.id.pack(),
            host.state.first_offset,
            host.state.next_offset,
            host.raft_group.leader,
            host.in_sync(),
            host.log.size_bytes,
            host.is_leader,
            host.archived(),
        )


@contextmanager
def _mended_soon(host: PartitionHost) -> Iterator[None]:
    """What is damaged here only is asked for again: it is mended from the others, or one of them
    leads. Raises `Unavailable`; of the only replica the damage itself."""
    try:
        yield
    except (Damaged, EntryDamaged) as error:
        if len(host.voters) < 2:
            raise
        raise Unavailable(f"damaged at the leader, until it is mended: {error.message}") from error

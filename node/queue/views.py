"""What a leader tells of its partitions' queues, and the operations it takes for them.

Every look is no older than the question: leadership is confirmed first.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

from delivery.config import LANES_COUNT
from delivery.group.failures import DeadLetter
from delivery.group.lag import delayed_count, lag_count, lag_ms
from delivery.group.leases import Lease
from delivery.group.state import GroupState
from goqueue.wire.errors import NotFound
from goqueue.wire.types import NodeId, Offset, PartitionId
from node.api.delays import DelayedView
from node.api.figures import GroupPartitionView, PartitionQueueStats
from node.partition.host import PartitionHost
from node.partition.reading.message_reader import row_bytes
from node.peers.link import PeerLink
from node.queue.lag import TakingPart
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import (
    DeadAnswer,
    DeadRequest,
    DeadRow,
    DelayedAnswer,
    DelayedRequest,
    FiguresAnswer,
    MessageRow,
    PeekAnswer,
    PeekRequest,
    PendingAnswer,
    PendingRequest,
    PendingRow,
)

ROWS_A_STEP, STEP_BYTES = 256, 1 << 20
"""Messages read, and held in memory, before the loop is given back; one at least."""
OFFSETS_MAX = 100_000
"""Offsets in one answer: as many as a group may have dead letters in a partition."""
VIEWS_MAX = 10_000
"""Delayed messages in one answer."""
PENDING_MAX = 1000
"""Messages in flight in one answer."""
PARKED_SHOWN_MAX = 1000

_STATES = {"due": "delivered"}


class QueueViews:
    """Answers for partitions led here; raises `NotLeader` elsewhere."""

    def __init__(
        self, partitions: PartitionService, taking_part: TakingPart, link: PeerLink
    ) -> None:
        self._partitions = partitions
        self._taking_part = taking_part
        link.handle(queue_rpc.PEEK, self._serve_peek)
        link.handle(queue_rpc.DEAD, self._serve_dead)
        link.handle(queue_rpc.PENDING, self._serve_pending)
        link.handle(queue_rpc.DELAYED, self._serve_delayed)
        link.handle(queue_rpc.FIGURES, self._serve_figures)

    async def peek(self, request: PeekRequest) -> PeekAnswer:
        """What the group would be given next."""
        host = await self._partitions.confirmed(PartitionId.unpack(request.partition))
        await host.queue.opened(request.group)
        group = host.state.queue.groups.get(request.group.id)
        if group is None:
            return PeekAnswer([], [])
        offsets = group.peek(request.limit, host.log_time_ms())
        rows = host.messages.rows([Offset(offset) for offset in offsets], request.max_bytes)
        found = [row for row in rows if row is not None]
        return PeekAnswer([group.attempts(row.offset) + 1 for row in found], found)

    async def dead(self, request: DeadRequest) -> DeadAnswer:
        """Dead letters that match, in the order of offsets."""
        host = await self._partitions.confirmed(PartitionId.unpack(request.partition))
        group = host.state.queue.groups.get(request.group)
        if group is None:
            return DeadAnswer([], -1, 0, {})
        candidates = _candidates(group, request)
        limit = min(request.limit, OFFSETS_MAX)
        reads = request.whole or request.key is not None or bool(request.headers)
        rows: list[DeadRow] = []
        following, left = -1, request.max_bytes
        async for offset, message in _messages(host, candidates, reads=reads):
            letter = group.dead.get(offset)
            if letter is None or not _matches(message, request):
                continue
            size = row_bytes(message) if request.whole else 0
            if len(rows) >= limit or (rows and size > left):
                following = offset
                break
            left -= size
            rows.append(_dead_row(offset, letter, message if request.whole else None))
        return DeadAnswer(rows, following, len(group.dead), dict(group.dead_by_reason))

    async def pending(self, request: PendingRequest) -> PendingAnswer:
        """What is in flight, in the order of offsets."""
        host = await self._partitions.confirmed(PartitionId.unpack(request.partition))
        group = host.state.queue.groups.get(request.group)
        if group is None:
            return PendingAnswer([], -1, {}, -1, -1)
        leased, now_ms = sorted(group.leases), host.log_time_ms()
        wanted = sorted(_in_flight(group, request, leased, now_ms))
        rows: list[PendingRow] = []
        following, left = -1, request.max_bytes
        page = wanted[: min(request.limit, PENDING_MAX) + 1]
        async for offset, message in _messages(host, page):
            lease, size = group.leases.get(offset), row_bytes(message) if message else 0
            if len(rows) >= min(request.limit, PENDING_MAX) or (rows and size > left):
                following = offset
                break
            left -= size
            if lease is not None:  # it may have ended while others were read
                attempt, idle_ms = group.attempts(offset), _idle_ms(group, lease, now_ms)
                rows.append(
                    PendingRow(
                        offset,
                        lease.delivery,
                        lease.member,
                        lease.deadline_ms,
                        attempt,
                        idle_ms,
                        message,
                    )
                )
        members = Counter(one.member for one in map(group.leases.get, leased) if one is not None)
        first, last = (leased[0], leased[-1]) if leased else (-1, -1)
        return PendingAnswer(rows, following, dict(members), first, last)

    async def delayed(self, request: DelayedRequest) -> DelayedAnswer:
        """Delayed messages, soonest first; or the one at an offset. Raises `NotFound` for one that
        never had a delay."""
        host = await self._partitions.confirmed(PartitionId.unpack(request.partition))
        queue = host.state.queue
        if request.offset >= 0:
            return DelayedAnswer([_find(host, Offset(request.offset))], len(queue.hidden))
        pending = queue.pending_delays(min(request.limit, VIEWS_MAX), 0)
        due_ms = {offset: at_ms for at_ms, offset in pending}
        views = [
            _delayed_view(host, offset, due_ms[offset], row)
            async for offset, row in _messages(host, list(due_ms))
        ]
        return DelayedAnswer(views, len(queue.hidden))

    async def figures(self, partitions: Iterable[PartitionId]) -> FiguresAnswer:
        """Of those led here."""
        answer = FiguresAnswer([], [])
        for host in await self._partitions.all_confirmed(partitions):
            answer.partitions.append(partition_stats(host, self._taking_part.groups_in(host)))
            dead = {g.name: dict(g.dead_by_reason) for g in host.state.queue.groups.values()}
            answer.dead.append((host.id.pack(), {name: why for name, why in dead.items() if why}))
        return answer

    def unconfirmed(self, topic: str, partition: PartitionId) -> PartitionQueueStats:
        """What this node knows of a partition whose leader does not tell: its replica's figures,
        or none."""
        host = self._partitions.replicas.find(partition)
        if host is None:
            none = [0] * LANES_COUNT
            return PartitionQueueStats(
                topic, partition.partition, none, 0, 0, 0, 0, 0, 0, 0, 0, stale=True
            )
        found = partition_stats(host, self._taking_part.groups_in(host))
        groups = {name: replace(view, stale=True) for name, view in found.groups.items()}
        return replace(found, groups=groups, stale=True)

    # for peers

    async def _serve_peek(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.peek(rpc.decode_request(payload, PeekRequest)))

    async def _serve_dead(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.dead(rpc.decode_request(payload, DeadRequest)))

    async def _serve_pending(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.pending(rpc.decode_request(payload, PendingRequest)))

    async def _serve_delayed(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.delayed(rpc.decode_request(payload, DelayedRequest)))

    async def _serve_figures(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, rpc.PartitionsRequest)
        return rpc.encode(await self.figures(map(PartitionId.unpack, request.partitions)))


def partition_stats(host: PartitionHost, groups: Iterable[GroupState]) -> PartitionQueueStats:
    """A partition's queue as its replica here knows it, for these groups."""
    queue, dedup = host.state.queue, host.state.message_ids
    return PartitionQueueStats(
        topic=host.topic,
        partition=host.id.partition,
        stored_by_lane=list(queue.stored_by_lane),
        delayed=len(queue.hidden),
        delayed_next_ms=next((due_ms for due_ms, _ in queue.pending_delays(1, 0)), 0),
        scheduled=queue.scheduled,
        released=queue.released,
        cancelled=queue.cancelled_count,
        expired=queue.expired_count,
        dedup_tracked=len(dedup),
        dedup_hits=host.duplicates,
        groups={group.name: _group_view(host, group) for group in groups},
        delay_ms_sum=queue.delay_ms_sum,
    )


def _group_view(host: PartitionHost, group: GroupState) -> GroupPartitionView:
    counters, now_ms = group.counters, host.log_time_ms()
    ready = group.ready_count()
    return GroupPartitionView(
        topic=host.topic,
        partition=host.id.partition,
        committed_offset=Offset(group.committed_offset),
        end=host.end_offset,
        ready=ready,
        in_flight=len(group.leases),
        waiting=group.waiting_count(),
        dead=len(group.dead),
        acked=counters.acked,
        nacked=counters.nacked,
        rejected=counters.rejected,
        expired=counters.expired,
        redelivered=counters.redelivered,
        delivered=counters.delivered,
        fallen=counters.fallen,
        halted=group.halted,
        lane_pending=list(group.ready.counts()),
        lane_wait_ms=group.lane_heads(now_ms),
        lane_wait_ms_max=list(counters.wait_ms_max),
        lane_wait_ms_sum=list(counters.wait_ms_sum),
        lane_waits=list(counters.waits),
        extended=counters.extended,
        died=counters.dead,
        parked=_parked(host, group),
        lag=lag_count(group),
        lag_ms=lag_ms(group, now_ms),
        delayed=delayed_count(group),
        owner=group.owner.member,
        generation=group.owner.generation,
    )


def _parked(host: PartitionHost, group: GroupState) -> list[tuple[bytes, int]]:
    """(key, how many wait); a key that its poisoned message parked is read from that message."""
    found: list[tuple[bytes, int]] = []
    for key, waiting, head in group.parked()[:PARKED_SHOWN_MAX]:
        if not key and head is not None:
            row = host.messages.rows([Offset(head)], 1)[0]
            key = row.key or b"" if row is not None else b""
        found.append((key, waiting))
    return found


async def _messages(
    host: PartitionHost, offsets: list[int], *, reads: bool = True
) -> AsyncIterator[tuple[int, MessageRow | None]]:
    """Each offset with its message, few of which are held at a time; None for one that can't be
    read, or where none is."""
    at = 0
    while at < len(offsets):
        step = offsets[at : at + ROWS_A_STEP]
        rows: list[MessageRow | None] = [None] * len(step)
        if reads:
            rows = host.messages.rows(map(Offset, step), STEP_BYTES)
        for pair in zip(step, rows, strict=False):
            yield pair
        at += len(rows)
        await asyncio.sleep(0)


def _in_flight(
    group: GroupState, request: PendingRequest, leased: list[int], now_ms: int
) -> Iterable[int]:
    """What of it was asked for."""
    if not request.limit:
        return
    offsets = request.offsets
    if offsets is None:
        begin, end = bisect_left(leased, request.start), bisect_right(leased, request.end)
        offsets = leased[begin:end]
    for offset in set(offsets):
        lease = group.leases.get(offset)
        if lease is None or request.member not in (None, lease.member):
            continue
        if _idle_ms(group, lease, now_ms) >= request.idle_ms_min:
            yield offset


def _idle_ms(group: GroupState, lease: Lease, now_ms: int) -> int:
    """For how long its consumer has had it, as leases of the group's visibility tell; 0 of one that
    has no deadline."""
    if not lease.deadline_ms:
        return 0
    return max(0, now_ms - (lease.deadline_ms - group.config.visibility_ms))


def _candidates(group: GroupState, request: DeadRequest) -> list[int]:
    """What can be judged without reading a message."""
    wanted = None if request.offsets is None else set(request.offsets)
    return sorted(
        offset
        for offset, letter in group.dead.items()
        if offset >= request.start
        and (wanted is None or offset in wanted)
        and (request.reason is None or request.reason in letter.reason)
        and (request.from_ms is None or letter.died_ms >= request.from_ms)
        and (request.to_ms is None or letter.died_ms < request.to_ms)
    )


def _matches(message: MessageRow | None, request: DeadRequest) -> bool:
    if request.key is None and not request.headers:
        return True
    if message is None or (request.key is not None and message.key != request.key):
        return False
    given = {(name, value) for name, value in message.headers}
    return all((name, value.encode()) in given for name, value in request.headers.items())


def _dead_row(offset: int, letter: DeadLetter, message: MessageRow | None) -> DeadRow:
    return DeadRow(
        offset,
        letter.died_ms,
        letter.attempts,
        letter.reason,
        list(letter.history),
        letter.redrives,
        message,
    )


def _find(host: PartitionHost, offset: Offset) -> DelayedView:
    state = host.state.queue.state_of(offset)
    row = host.messages.rows([offset], 1)[0]
    due_ms = None if row is None else row.deliver_at_ms
    if due_ms is None:
        raise NotFound(
            f"no delayed message at offset {offset}",
            topic=host.topic,
            partition=host.id.partition,
            offset=offset,
        )
    return _delayed_view(host, offset, due_ms, row, _STATES.get(state, state))


def _delayed_view(
    host: PartitionHost,
    offset: int,
    due_ms: int,
    row: MessageRow | None,
    state: str = "pending",
) -> DelayedView:
    return DelayedView(
        topic=host.topic,
        partition=host.id.partition,
        offset=Offset(offset),
        deliver_at_ms=due_ms,
        remaining_ms=max(0, due_ms - host.log_time_ms()) if state == "pending" else 0,
        state=state,
        lane=host.state.queue.lane_of(offset),
        key=None if row is None else row.key,
        message_id=None if row is None else row.message_id,
    )

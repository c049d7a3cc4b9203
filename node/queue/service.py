"""Taking messages as the leader: leases for consumers, and waiting for something to lease."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from delivery.config import LANES_COUNT
from delivery.entries.ops import RELEASE, Granted, Result, Settled, StreamId
from delivery.leader.dispatcher import Want
from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, NotLeader, StaleGeneration
from goqueue.wire.types import NodeId, Offset, PartitionId
from node.partition.host import PartitionHost
from node.partition.reading.message_reader import row_bytes
from node.peers.link import PeerLink
from node.replicas.local import Replicas
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import (
    GroupRef,
    MessageRow,
    StreamTakeRequest,
    TakeAnswer,
    Taken,
    TakeRequest,
    WaitAnswer,
    WaitRequest,
)

UNREADABLE_RETRY_MS = 10_000
"""A message that is damaged here is tried again later: its neighbours go on, and damage is mended
from the other replicas meanwhile. It is no failure of its consumer's, and counts as no attempt."""


RECALLED_MAX = 10_000
"""Request ids that are remembered as recalled, the newest."""


@dataclass(slots=True)
class _Taking:
    """One request as it is served."""

    request: TakeRequest
    left: int
    bytes_left: int
    answer: TakeAnswer = field(default_factory=lambda: TakeAnswer([], [], [], []))
    grants: list[tuple[PartitionHost, Granted]] = field(
        default_factory=list[tuple[PartitionHost, Granted]]
    )

    @property
    def is_begun(self) -> bool:
        """Whether there is a message in the answer."""
        return self.left < self.request.limit


class QueueService:
    """Receives of partitions that this node leads, for its own front and its peers'."""

    def __init__(
        self,
        node: NodeId,
        replicas: Replicas,
        link: PeerLink,
        confirm: Callable[[PartitionId], Awaitable[object]],
        tasks: TaskSet,
    ) -> None:
        """`confirm` returns once this node is known to lead the partition still, and to have
        applied all that was committed before; it raises `NotLeader`."""
        self._node = node
        self._replicas = replicas
        self._confirm = confirm
        self._waits: dict[int, asyncio.Future[None]] = {}
        self._tasks = tasks
        self._recalled: dict[int, None] = {}
        """Request ids whose callers have given up, oldest first."""
        link.handle(queue_rpc.TAKE, self._serve_take)
        link.handle(queue_rpc.WAIT, self._serve_wait)
        link.handle(queue_rpc.LEAVE, self._serve_leave)

    async def take(self, request: TakeRequest) -> TakeAnswer:
        """Lease what is ready now, from as many of the partitions as it takes.

        With a limit of 0 the request is recalled: see `TakeRequest`. A caller that is cancelled has
        leased nothing: what was granted is given back.
        """
        if request.limit == 0:
            return self._recall(request)
        taking = _Taking(request, request.limit, request.max_bytes)
        for packed, _request_id in request.partitions:
            host = self._led(packed)
            if host is not None:
                host.queue.reopen(request.group)
                host.queue.consumer_activity.asked(
                    request.group.id, request.member, host.log_time_ms()
                )
        partitions = deque(await self._known(taking))
        try:
            while partitions and taking.left > 0 and taking.bytes_left > 0:
                await self._round(taking, partitions)
        except asyncio.CancelledError:
            for host, granted in taking.grants:
                host.queue.give_back(request.group.id, granted)
            raise
        for packed, _request_id in request.partitions:
            host = self._led(packed)
            if host is not None and host.unreadable.concerns(request.group.id, host.log_time_ms()):
                taking.answer.unread.append(packed)
        return taking.answer

    async def wait(self, request: WaitRequest) -> WaitAnswer:
        """Return once something is ready, leadership of a partition is elsewhere, the group halts
        in one, or in time."""
        answer = self._ready(request)
        if answer.ready or answer.moved or request.wait_ms <= 0:
            return answer
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hosts = [self._led(packed) for packed in request.partitions]
        self._waits[request.ticket] = waiter
        for host in hosts:
            if host is not None:
                host.queue.watch(request.group, waiter, request.lowest_lane)
        try:
            async with asyncio.timeout(request.wait_ms / 1000):
                await waiter
        except TimeoutError:
            return WaitAnswer([], [])
        finally:
            self._waits.pop(request.ticket, None)
            for host in hosts:
                if host is not None:
                    host.queue.unwatch(request.group, waiter)
        answer = self._ready(request)
        if not answer.ready:  # everyone who waits is to look again, here
            answer.moved.extend((packed, self._node) for packed in self._halted(request))
        return answer

    def leave(self, ticket: int) -> None:
        """Nobody is interested in that wait any more."""
        waiter = self._waits.get(ticket)
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    # taking

    async def _round(self, taking: _Taking, partitions: deque[tuple[bytes, int]]) -> None:
        """Ask as many partitions at once as seem to have what is left to take, and room for."""
        wanted: list[tuple[PartitionHost, bytes, Want]] = []
        left, room = taking.left, taking.bytes_left
        while partitions and left > 0 and min(room, taking.bytes_left) > 0:
            packed, request_id = partitions.popleft()
            host = self._led(packed)
            if host is None:
                taking.answer.moved.append((packed, self._leader(packed)))
                continue
            if request_id in self._recalled:
                taking.answer.empty.append(packed)
                continue
            known = host.state.queue.results.of(request_id)
            if isinstance(known, Granted):  # the answer was lost on its way
                self._granted(taking, host, packed, _standing(host, taking.request.group, known))
                left = min(left, taking.left)
                continue
            share = self._share(taking, host, packed, left, room)
            if share:
                want = Want(
                    taking.request.group.id,
                    taking.request.member,
                    share,
                    taking.request.visibility_ms,
                    request_id,
                    taking.request.generation,
                    taking.request.lowest_lane,
                    _stream_of(taking.request),
                )
                wanted.append((host, packed, want))
                left -= share
                room -= share * _average_bytes(host)
        if len(wanted) == 1:
            await self._receive(taking, *wanted[0])
        elif wanted:
            await self._receive_all(taking, wanted)

    async def _known(self, taking: _Taking) -> list[tuple[bytes, int]]:
        """The partitions to ask. A claim that is newer than the owner here may be one that this
        node has missed: a leader that stood still, and was replaced, refuses nobody for it."""
        request, found = taking.request, list[tuple[bytes, int]]()
        for packed, request_id in request.partitions:
            host = self._led(packed)
            group = None if host is None else host.state.queue.groups.get(request.group.id)
            is_newer = group is not None and request.generation > group.owner.generation
            if (
                group is not None
                and is_newer
                and not group.is_owned_by(request.member, request.generation)
            ):
                try:
                    await self._confirm(PartitionId.unpack(packed))
                except NotLeader:
                    taking.answer.moved.append((packed, self._leader(packed)))
                    continue
            found.append((packed, request_id))
        return found

    def _recall(self, request: TakeRequest) -> TakeAnswer:
        answer = TakeAnswer([], [], [], [])
        for packed, request_id in request.partitions:
            self._recalled[request_id] = None
            if len(self._recalled) > RECALLED_MAX:
                del self._recalled[next(iter(self._recalled))]
            host = self._led(packed)
            if host is None:
                answer.moved.append((packed, self._leader(packed)))
                continue
            if not host.queue.recall(request_id):
                answer.moved.append((packed, self._node))
                continue
            known = host.state.queue.results.of(request_id)
            left = _standing(host, request.group, known) if isinstance(known, Granted) else None
            if left is None or not left.grants:
                answer.empty.append(packed)
            else:
                taken = Taken(packed, left.delivery, left.deadline_ms, left.grants, [])
                answer.taken.append(taken)
        return answer

    def _share(
        self, taking: _Taking, host: PartitionHost, packed: bytes, left: int, room: int
    ) -> int:
        """How many messages to ask of a partition: 0 where it has nothing to give, or likely too
        much for what is left of the answer."""
        answer, ref = taking.answer, taking.request.group
        group = host.state.queue.groups.get(ref.id)
        if group is None or group.version < ref.version:
            return left
        request = taking.request
        if not group.is_owned_by(request.member, request.generation):
            answer.blocked.append((packed, queue_rpc.STALE, str(group.owner.generation)))
        elif group.halted:
            answer.blocked.append((packed, queue_rpc.HALTED, group.halted))
        elif group.is_full:
            answer.blocked.append((packed, queue_rpc.FULL, str(group.config.in_flight_max)))
        else:
            ready = 0
            if request.lowest_lane == LANES_COUNT - 1:
                ready = group.ready_count()
            ready = ready or len(group.select(left, host.log_time_ms(), request.lowest_lane))
            if ready or host.queue.is_due:
                fitting = room // _average_bytes(host)
                if fitting or room == request.max_bytes:
                    return min(left, ready or left, max(1, fitting))
                return 0
            answer.empty.append(packed)
        return 0

    async def _receive_all(
        self, taking: _Taking, wanted: list[tuple[PartitionHost, bytes, Want]]
    ) -> None:
        tasks = [asyncio.ensure_future(self._receive(taking, *one)) for one in wanted]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _receive(
        self, taking: _Taking, host: PartitionHost, packed: bytes, want: Want
    ) -> None:
        began_s = asyncio.get_running_loop().time()
        try:
            granted = await host.queue.receive(want, taking.request.group)
        except StaleGeneration as error:
            since = str(error.data.get("generation", 0))
            taking.answer.blocked.append((packed, queue_rpc.STALE, since))
            return
        except GoQueueError as error:
            leader = error.data.get("leader") if isinstance(error, NotLeader) else None
            taking.answer.moved.append((packed, leader if isinstance(leader, str) else None))
            return
        if messages := self._granted(taking, host, packed, granted):
            took_s = asyncio.get_running_loop().time() - began_s
            size = sum(len(row.value) for row in messages)
            host.figures.taken(taking.request.group.name, size, took_s)

    def _granted(
        self, taking: _Taking, host: PartitionHost, packed: bytes, result: Result
    ) -> list[MessageRow]:
        """Read what was leased; what does not fit into the answer is given back, all of it where
        other partitions have filled the answer."""
        if not isinstance(result, Granted) or not result.grants:
            taking.answer.empty.append(packed)
            return []
        grants, group = result.grants, taking.request.group.id
        offsets, least = [Offset(grant.offset) for grant in grants], int(not taking.is_begun)
        rows = host.messages.rows(offsets, taking.bytes_left, least=least)
        host.queue.give_back(group, result, len(rows))
        lost = [grant.offset for grant, row in zip(grants, rows, strict=False) if row is None]
        if lost:
            host.unreadable.note(group, lost, host.log_time_ms() + UNREADABLE_RETRY_MS)
            host.queue.put(
                Settled(
                    group,
                    RELEASE,
                    [(result.delivery, lost)],
                    delay_ms=UNREADABLE_RETRY_MS,
                    to_back=True,
                )
            )
        kept = [(g, row) for g, row in zip(grants, rows, strict=False) if row is not None]
        messages = [row for _grant, row in kept]
        taking.grants.append((host, result))
        taking.left -= len(kept)
        taking.bytes_left -= sum(map(row_bytes, messages))
        taking.answer.taken.append(
            Taken(packed, result.delivery, result.deadline_ms, [g for g, _ in kept], messages)
        )
        return messages

    # private

    def _ready(self, request: WaitRequest) -> WaitAnswer:
        answer = WaitAnswer([], [])
        for packed in request.partitions:
            host = self._led(packed)
            if host is None:
                answer.moved.append((packed, self._leader(packed)))
            elif host.queue.is_ready(request.group, request.lowest_lane):
                answer.ready.append(packed)
        return answer

    def _halted(self, request: WaitRequest) -> list[bytes]:
        """Partitions in which the group has halted."""
        hosts = ((packed, self._led(packed)) for packed in request.partitions)
        return [p for p, host in hosts if host is not None and host.queue.is_halted(request.group)]

    def _led(self, packed: bytes) -> PartitionHost | None:
        host = self._replicas.find(PartitionId.unpack(packed))
        return host if host is not None and host.is_leader else None

    def _leader(self, packed: bytes) -> str | None:
        """Who leads, as a hint: never this node, which has just said that it does not."""
        host = self._replicas.find(PartitionId.unpack(packed))
        leader = None if host is None else host.raft_group.leader
        return None if leader == self._node else leader

    async def _serve_take(self, _peer: NodeId, payload: bytes) -> bytes:
        """A link that breaks takes nothing back: the peer asks again under the same ids, or gives
        back what it was granted; else the leases run out."""
        taking = self._tasks.begin(self.take(rpc.decode_request(payload, StreamTakeRequest)))
        return rpc.encode(await asyncio.shield(taking))

    async def _serve_wait(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.wait(rpc.decode_request(payload, WaitRequest)))

    async def _serve_leave(self, _peer: NodeId, payload: bytes) -> bytes:
        self.leave(int.from_bytes(payload, "little"))
        return b""


def _stream_of(request: TakeRequest) -> StreamId | None:
    return request.stream if isinstance(request, StreamTakeRequest) else None


def _standing(host: PartitionHost, ref: GroupRef, granted: Granted) -> Granted:
    """What is left of a grant: not what was given back, or ran out, since."""
    group = host.state.queue.groups.get(ref.id)
    standing = set() if group is None else set(group.leases.of_delivery(granted.delivery))
    left = [grant for grant in granted.grants if grant.offset in standing]
    return Granted(granted.delivery, granted.deadline_ms, left)


def _average_bytes(host: PartitionHost) -> int:
    """What a message takes in a partition's log, which holds more than messages: as much as one
    may at most."""
    stored = host.end_offset - host.state.log_start_offset
    bound = host.config.max_message_bytes
    return max(1, min(bound, host.log.size_bytes // stored)) if stored > 0 else bound

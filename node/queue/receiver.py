"""Receiving from partitions led by several nodes, without leasing what can't be answered.

First each leader is asked once for what is ready, until there is enough. Where nothing is, each
is asked to tell when something is ready, which leases nothing; then it is taken from there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from delivery.entries.ops import RELEASE, Settled
from goqueue.background import TaskSet
from goqueue.wire.errors import (
    GoQueueError,
    GroupHalted,
    NoQuorum,
    StaleGeneration,
    TooManyInFlight,
    Unavailable,
    UnknownTopic,
)
from goqueue.wire.types import NodeId, PartitionId
from node.api.receiving import TAKING, WAITING
from node.metrics import Metrics
from node.peers.link import PeerLink
from node.queue.calls import QueueCalls
from node.queue.leader_waits import LOOK_S, PAUSE_MAX_S, LeaderWaits
from node.queue.poll import Poll
from node.queue.service import QueueService
from node.queue.waiting_lines import Place, WaitingLines, Wanted
from node.replicas.topology import Topology
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import (
    STALE,
    TakeAnswer,
    Taken,
    TakeRequest,
)
from raft.link import RemoteError

TAKE_TIMEOUT_S = 5.0
LEADERLESS_S = 5.0
"""How long a receive looks for a leader at least, before it says that there is none."""
PAUSE_S = 0.005
LOOKS_PER_S = 1000
"""Of all receives that wait, and of which a leader did not answer. More of them look less often:
thousands that ask again every 0.25 s leave a node no time to answer any of them."""
PLENTY_MAX = 10_000
RECOVER_S = 30.0
RECOVER_PAUSE_MAX_S = 2.0
"""For how long, and at least how often, a node retries to release leases whose grant was lost on
the way: nodes that restart are back by then. Leases that end before need no release."""


_Asked = tuple[NodeId, list[PartitionId]]
"""A leader, and its partitions that are asked for."""


@dataclass(slots=True)
class _Round:
    """What asking every leader once came to."""

    taken: list[Taken] = field(default_factory=list[Taken])
    blocked: list[tuple[bytes, str, str]] = field(default_factory=list[tuple[bytes, str, str]])
    unanswered: set[PartitionId] = field(default_factory=set[PartitionId])
    count: int = 0
    size: int = 0
    """Messages, and bytes of their values."""

    @property
    def is_halted(self) -> bool:
        """Whether a partition gives nothing because the group has halted there."""
        return any(kind == queue_rpc.HALTED for _packed, kind, _why in self.blocked)


class QueueReceiver:
    """The front's side of receiving. Loop thread only."""

    def __init__(
        self,
        node: NodeId,
        *,
        service: QueueService,
        calls: QueueCalls,
        topology: Topology,
        link: PeerLink,
        background_tasks: TaskSet,
        rng: random.Random,
        metrics: Metrics,
    ) -> None:
        self._node = node
        self._service = service
        self._calls = calls
        self._topology = topology
        self._link = link
        self._background_tasks = background_tasks
        self._asking = TaskSet(None)
        """Each is waited for by a poll, or by an errand."""
        self._waiting = 0
        """Receives that wait for messages."""
        self._rng = rng
        self._metrics = metrics
        waits = LeaderWaits(node, service, topology, link, background_tasks, rng)
        self._lines = WaitingLines(waits.ask)
        self._plenty: dict[int, None] = {}
        """Groups whose last receive found all that it asked for, the latest last."""

    async def receive(self, poll: Poll, wait_s: float) -> list[Taken]:
        """Leases of up to `limit` messages; waits for the first one.

        A caller that is cancelled has leased nothing for good, and what was granted in an answer
        that was lost is given back. Raises `GroupHalted` or `TooManyInFlight` where no partition
        may deliver, `NoQuorum` where none can be asked, `StaleGeneration` where one is not the
        member's and nothing was leased.
        """
        try:
            return await self._receive(poll, wait_s)
        finally:
            poll.leave()
            if poll.doubtful:
                self._touch(poll, poll.doubtful, None)
                self._background_tasks.send(self._recover(poll, poll.doubtful))

    async def _receive(self, poll: Poll, wait_s: float) -> list[Taken]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        end = started + wait_s
        partitions: Sequence[PartitionId] = poll.partitions
        pause = PAUSE_S
        taking, bytes_max, waiting = TAKING.get(), poll.max_bytes, WAITING.get()
        while True:
            if taking is not None:
                poll.max_bytes = await taking.begin(bytes_max)
            if waiting is not None:
                waiting.begin()
            found = await self._take(poll, partitions)
            poll.leave()
            if found.taken:
                return found.taken
            if waiting is not None:
                waiting.rest()
            if taking is not None:
                taking.end()
            _raise_if_blocked(poll, found.blocked)
            if found.is_halted and len(partitions) < len(poll.partitions):
                partitions = poll.partitions  # whether all are is told by all of them
                continue
            now = loop.time()
            nobody = len(found.unanswered) == len(poll.partitions)
            late = now >= max(end, started + LEADERLESS_S)
            if nobody and (late or not any(map(self._topology.replicas, poll.partitions))):
                raise self._unreachable(poll)
            if now >= end and not nobody:
                return []
            if nobody:
                partitions = poll.partitions
                await self._topology.changed(poll.partitions[0], pause)
            else:
                is_whole = not found.unanswered
                del found  # thousands wait, and each would keep it
                partitions = await self._wait(poll, end - now, is_whole=is_whole)
            if nobody or loop.time() - now < PAUSE_S:  # what was ready is others' by now
                await asyncio.sleep(self._rng.uniform(0, pause))
                pause = min(2 * pause, PAUSE_MAX_S)

    # taking

    async def _take(self, poll: Poll, partitions: Sequence[PartitionId]) -> _Round:
        """Ask all leaders at once, each for its part of the limit, and then those that have more
        for what the others did not have. While a group finds all that it asks for, one leader after
        another is asked for all of it: that is one entry, instead of one a leader."""
        found = _Round()
        asked = self._by_leader(partitions, found.unanswered)
        try:
            if poll.group.id in self._plenty:
                first = self._topology.leader(partitions[0])
                asked.sort(key=lambda one: one[0] != first)
                await self._take_in_turn(poll, found, asked[:1])
                asked = asked[1:]
            if len(asked) == 1 or poll.limit - found.count < len(asked):
                await self._take_in_turn(poll, found, asked)
            elif asked:
                await self._take_in_turn(poll, found, await self._take_at_once(poll, found, asked))
        except asyncio.CancelledError:
            self.release(poll.group.id, found.taken)
            raise
        self._note_plenty(poll, found)
        return found

    def _note_plenty(self, poll: Poll, found: _Round) -> None:
        self._plenty.pop(poll.group.id, None)
        if found.count >= poll.limit:
            self._plenty[poll.group.id] = None
            if len(self._plenty) > PLENTY_MAX:
                del self._plenty[next(iter(self._plenty))]

    async def _take_at_once(self, poll: Poll, found: _Round, asked: list[_Asked]) -> list[_Asked]:
        """The leaders that gave all they were asked for."""
        share, rest = divmod(poll.limit - found.count, len(asked))
        limits = [share + (row < rest) for row in range(len(asked))]
        size = (poll.max_bytes - found.size) // len(asked)
        if size <= 0:
            return []
        takes = [
            asyncio.ensure_future(self._take_from(poll, found, one, limit, size))
            for one, limit in zip(asked, limits, strict=True)
        ]
        try:
            gave = await asyncio.gather(*takes)
        finally:
            for take in takes:
                take.cancel()
            await asyncio.wait(takes)
        return [one for one, limit, n in zip(asked, limits, gave, strict=True) if n >= limit]

    async def _take_in_turn(self, poll: Poll, found: _Round, asked: list[_Asked]) -> None:
        for one in asked:
            left, bytes_left = poll.limit - found.count, poll.max_bytes - found.size
            if left <= 0 or bytes_left <= 0:
                return
            await self._take_from(poll, found, one, left, bytes_left)

    async def _take_from(
        self, poll: Poll, found: _Round, asked: _Asked, limit: int, bytes_max: int
    ) -> int:
        """How many messages one leader gave."""
        node, partition_ids = asked
        wanted = [
            (partition_id.pack(), self._request_id(poll, partition_id))
            for partition_id in partition_ids
        ]
        request = poll.request(wanted, limit, bytes_max)
        try:
            answer = await self._ask(poll, asked, request)
        except (GoQueueError, RemoteError):
            found.unanswered.update(partition_ids)
            poll.doubtful.update(partition_ids)
            return 0
        self._note(poll, found, answer, node)
        return sum(len(taken.grants) for taken in answer.taken)

    def _request_id(self, poll: Poll, partition_id: PartitionId) -> int:
        known = poll.requests.get(partition_id)
        if known is None:
            known = poll.requests[partition_id] = self._rng.getrandbits(63) or 1
        return known

    def _note(self, poll: Poll, found: _Round, answer: TakeAnswer, asked: NodeId) -> None:
        self._touch(poll, [PartitionId.unpack(taken.partition) for taken in answer.taken], asked)
        found.taken += [taken for taken in answer.taken if taken.grants]
        found.count += sum(len(taken.grants) for taken in answer.taken)
        found.size += sum(len(row.value) for taken in answer.taken for row in taken.messages)
        found.blocked += answer.blocked
        answered = [taken.partition for taken in answer.taken] + answer.empty
        for partition_id in map(PartitionId.unpack, answered):
            poll.requests.pop(partition_id, None)
            poll.doubtful.discard(partition_id)
        poll.unread.update(map(PartitionId.unpack, answer.unread))
        for packed, leader in answer.moved:
            partition_id = PartitionId.unpack(packed)
            found.unanswered.add(partition_id)
            poll.doubtful.add(partition_id)
            self._topology.learn(partition_id, None if leader is None else NodeId(leader), asked)

    async def _ask(self, poll: Poll, asked: _Asked, request: TakeRequest) -> TakeAnswer:
        """A caller that leaves does not end it: what is granted to it then is given back."""
        node, partition_ids = asked
        if node == self._node:  # it gives back what it knows of
            try:
                return await self._service.take(request)
            except asyncio.CancelledError:
                self._touch(poll, partition_ids, None)
                self._background_tasks.send(self._recover(poll, partition_ids))
                raise
        asking = self._asking.begin(self._send(node, request))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            self._touch(poll, partition_ids, None)
            self._background_tasks.send(self._release_late(poll, partition_ids, asking))
            raise

    async def _send(self, node: NodeId, request: TakeRequest) -> TakeAnswer:
        if node == self._node:
            return await self._service.take(request)
        payload = await self._link.request(
            node, queue_rpc.TAKE, rpc.encode(request), TAKE_TIMEOUT_S
        )
        return queue_rpc.decode_answer(payload, TakeAnswer)

    async def _release_late(
        self, poll: Poll, asked: Iterable[PartitionId], asking: asyncio.Future[TakeAnswer]
    ) -> None:
        """The answer comes after its caller has left."""
        left = asked
        try:
            answer = await asking
        except (GoQueueError, RemoteError):
            pass
        else:
            self.release(poll.group.id, answer.taken)
            left = {PartitionId.unpack(packed) for packed, _leader in answer.moved}
        await self._recover(poll, left)

    async def _recover(self, poll: Poll, partitions: Iterable[PartitionId]) -> None:
        """Recall what was granted in answers that were lost, and give it back: nobody waits for it
        any more. Nothing else is taken for it: others would be given what comes after."""
        left, now = sorted(partitions), asyncio.get_running_loop().time
        endless = poll.stream is not None and not poll.visibility_ms
        lasts_s = RECOVER_S if endless else min(RECOVER_S, poll.visibility_ms / 1000)
        end, pause = now() + lasts_s, PAUSE_MAX_S
        while left:
            await asyncio.sleep(pause)
            left = [
                partition_id
                for partition_id in left
                if not await self._recovered(poll, partition_id)
            ]
            if now() >= end:
                return
            pause = min(2 * pause, RECOVER_PAUSE_MAX_S)

    @staticmethod
    def _touch(poll: Poll, partitions: Iterable[PartitionId], leader: NodeId | None) -> None:
        """A stream's end is told there, too: what is not given back by then ends with it."""
        if poll.stream is not None:
            poll.stream.touch(poll.group.id, partitions, leader)

    async def _recovered(self, poll: Poll, partition_id: PartitionId) -> bool:
        node = self._topology.leader(partition_id)
        if node is None:
            return False
        wanted = [(partition_id.pack(), poll.requests[partition_id])]
        request = poll.request(wanted, 0, poll.max_bytes)
        try:
            answer = await self._send(node, request)
        except (GoQueueError, RemoteError):
            return False
        self.release(poll.group.id, answer.taken)
        for packed, leader in answer.moved:
            known = None if leader is None else NodeId(leader)
            self._topology.learn(PartitionId.unpack(packed), known, node)
        return not answer.moved

    def release(self, group: int, taken: Sequence[Taken]) -> None:
        """Give leases back that nobody will be told of: their attempt does not count."""
        for one in taken:
            offsets = [grant.offset for grant in one.grants]
            if offsets:
                op = Settled(group, RELEASE, [(one.delivery, offsets)])
                partition = PartitionId.unpack(one.partition)
                again = self._calls.operations.put(
                    partition, [op], deadline_s=RECOVER_S, patience_s=RECOVER_S
                )
                self._background_tasks.send(again)

    # waiting

    async def _wait(self, poll: Poll, left_s: float, *, is_whole: bool) -> Sequence[PartitionId]:
        """The partitions to take from next: those told ready, or all. `is_whole`: every leader has
        answered."""
        self._metrics.queue.waiting_receives.inc()
        self._waiting += 1
        places: list[Place] = []
        try:
            if not self._join(poll, left_s, places) or not is_whole:
                left_s = min(left_s, self._look_s())
            if places:
                await asyncio.wait(
                    [place.told for place in places],
                    timeout=left_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            else:
                await asyncio.sleep(left_s)
            woken = [place for place in places if place.told.done()]
            ready = [partition_id for place in woken for partition_id in place.told.result()]
            poll.woken = woken
            return ready or poll.partitions
        finally:
            self._metrics.queue.waiting_receives.dec()
            self._waiting -= 1
            for place in places:
                if place not in poll.woken:
                    place.leave()

    def _look_s(self) -> float:
        """After so long whoever waits asks leaders again that did not answer, or were not known."""
        return max(LOOK_S, self._waiting / LOOKS_PER_S * self._rng.uniform(0.5, 1.5))

    def _join(self, poll: Poll, left_s: float, places: list[Place]) -> bool:
        """Stand in a line at each leader; whether every partition has one."""
        until_s = asyncio.get_running_loop().time() + left_s
        leaderless: set[PartitionId] = set()
        for node, asked in self._by_leader(poll.partitions, leaderless):
            wanted = Wanted(poll.group.id, node, frozenset(asked), poll.lowest_lane)
            places.append(self._lines.join(wanted, until_s))
        return not leaderless

    # private

    def _by_leader(
        self, partitions: Sequence[PartitionId], leaderless: set[PartitionId]
    ) -> list[tuple[NodeId, list[PartitionId]]]:
        """Leaders with their partitions, this node first, then in the order of preference."""
        by_leader: dict[NodeId, list[PartitionId]] = {}
        for partition_id in partitions:
            leader = self._topology.leader(partition_id)
            if leader is None:
                leaderless.add(partition_id)
            else:
                by_leader.setdefault(leader, []).append(partition_id)
        return sorted(by_leader.items(), key=lambda item: item[0] != self._node)

    def _unreachable(self, poll: Poll) -> GoQueueError:
        """Why nobody could be asked."""
        partition_id = poll.partitions[0]
        replicas, reachable = (
            self._topology.replicas(partition_id),
            self._topology.reachable(partition_id),
        )
        if not replicas:
            return UnknownTopic(str(partition_id.topic))
        if reachable * 2 <= len(replicas):
            return NoQuorum(
                f"{reachable} of {len(replicas)} replicas can be reached",
                reachable=reachable,
                replicas=len(replicas),
                retry_after_s=1,
            )
        return Unavailable("no leader of these partitions answers", retry_after_s=1)


def _raise_if_blocked(poll: Poll, blocked: list[tuple[bytes, str, str]]) -> None:
    """Where no partition may deliver, whoever asks should know why; else the others go on. That one
    is another's is told at once."""
    stale = [
        (PartitionId.unpack(packed), int(why)) for packed, kind, why in blocked if kind == STALE
    ]
    if stale:
        raise StaleGeneration(
            generation=max(generation for _id, generation in stale),
            partitions=[str(id) for id, _generation in stale],
        )
    if len(blocked) < len(poll.partitions):
        return
    group = poll.group.name
    for _packed, kind, why in blocked:
        if kind == queue_rpc.FULL:
            raise TooManyInFlight(
                f"group {group} has {why} messages in flight in a partition: settle some first",
                group=group,
                limit=int(why),
                retry_after_s=1,
            )
    raise GroupHalted(
        f"group {group} is halted: {blocked[0][2]}", group=group, reason=blocked[0][2]
    )

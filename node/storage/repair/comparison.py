"""Replicas compared by hashes of what they hold: frames are encoded once, so they must be equal.

A checksum tells of bytes that changed. It does not tell of a replica that holds other, sound bytes:
a write that went elsewhere, an old file that came back, a fault of this program. A group's leader
asks the others for the hashes of what is committed. Whoever differs from a majority of the voters
is told, stops serving, and is copied anew; where there is no majority, people are told. A learner
has no say: what it holds may be a copy of the one replica that is wrong.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from weakref import WeakKeyDictionary

import msgspec

from goqueue.wire.errors import BadRequest, GoQueueError, NotFound, Unavailable
from goqueue.wire.types import NodeId, PartitionId
from log.partition.log import PartitionLog
from log.partition.range_hashes import Range, RangeHashes, hash_range
from log.store.directory import Store
from node.metrics import Metrics
from node.peers.link import PeerLink
from node.rpc import partitions as rpc
from node.rpc.scrub import DIVERGED, HASHES, DivergedRequest, HashesAnswer, HashesRequest
from node.runtime.logger import get_logger
from raft.group import RaftGroup
from raft.host import RaftHost
from raft.link import RemoteError

RANGES_A_REQUEST = 32
BYTES_A_REQUEST = 32 << 20
"""Or one range: a peer that has not hashed them yet reads them at the rate of its scrub."""
ASK_TIMEOUT_S = 120.0
RANGE_ENTRIES_MAX = 8192
"""A request for more in one range is refused."""

_answers = msgspec.msgpack.Decoder(HashesAnswer)
_log = get_logger("scrub")


class Comparison:
    """`on_diverged` is called with a group whose replica here is not to be believed, and why; `pay`
    holds back what is read for it."""

    def __init__(
        self,
        me: NodeId,
        store: Store,
        link: PeerLink,
        raft: RaftHost,
        workers: Executor,
        metrics: Metrics,
        *,
        pay: Callable[[int], Awaitable[None]],
        on_diverged: Callable[[PartitionId, str], None],
    ) -> None:
        self._me = me
        self._store = store
        self._link = link
        self._raft = raft
        self._workers = workers
        self._metrics = metrics
        self._pay = pay
        self._on_diverged = on_diverged
        self._known: WeakKeyDictionary[PartitionLog, tuple[int, dict[Range, bytes]]]
        self._known = WeakKeyDictionary()
        self._diverged: dict[PartitionId, str] = {}
        self._is_stopped = False
        link.handle(HASHES, self._serve_hashes)
        link.handle(DIVERGED, self._told_diverged)

    def stop(self) -> None:
        """Other nodes are refused from now on: the threads that hash are about to end."""
        self._is_stopped = True

    def diverged(self) -> list[str]:
        """Of which groups here replicas differ, as was found when they were led here, and nobody
        can say which are right."""
        here = {replica.id for replica in self._raft.raft_groups()} if self._diverged else ()
        return [text for partition_id, text in self._diverged.items() if partition_id in here]

    def replica(self, partition_id: PartitionId) -> RaftGroup | None:
        """The running replica of a group, if there is one."""
        try:
            return self._raft.raft_group(partition_id)
        except KeyError:
            return None

    async def compare(self, partition_id: PartitionId, hashes: RangeHashes) -> int:
        """Notes what was found here; where this node leads, asks the others. Ranges compared."""
        found = hashes.found
        log = self._store.partition_log(partition_id)
        self._known[log] = (log.disk_segments.generation, found)
        replica = self.replica(partition_id)
        if replica is None or not replica.is_ready_leader:
            self._diverged.pop(partition_id, None)
            return 0
        differing: list[Range] = []
        compared = 0
        for some in _requests(hashes.sizes):
            told = await self._ask_all(replica, some, fresh=False)
            for number, range_ in enumerate(some):
                others = [theirs[number] for theirs in told.values() if theirs[number]]
                compared += bool(others)
                if any(other != found[range_] for other in others):
                    differing.append(range_)
        if not differing:
            self._diverged.pop(partition_id, None)
        for range_ in differing:
            await self._judge(replica, range_)
        return compared

    # -- private

    async def _ask_all(
        self, replica: RaftGroup, ranges: Sequence[Range], *, fresh: bool
    ) -> dict[NodeId, list[bytes]]:
        nodes = [node for node, peer in replica.peers.items() if peer.connected]
        request = rpc.encode(HashesRequest(replica.id.pack(), list(ranges), fresh))
        told: dict[NodeId, list[bytes]] = {}
        for node in nodes:
            try:
                answer = await self._link.request(node, HASHES, request, ASK_TIMEOUT_S)
                hashes = _answers.decode(answer).hashes
            except (GoQueueError, RemoteError, msgspec.DecodeError) as error:
                _log.debug("not_compared", group=str(replica.id), node=node, problem=str(error))
                continue
            if len(hashes) == len(ranges):
                told[node] = hashes
        return told

    async def _judge(self, replica: RaftGroup, range_: Range) -> None:
        """Reads it again everywhere; tells those that differ from a majority, or people."""
        partition_id = replica.id
        if self.replica(partition_id) is not replica:
            return
        log = self._store.partition_log(partition_id)
        told = await self._ask_all(replica, [range_], fresh=True)
        hashes = {node: found[0] for node, found in told.items() if found[0]}
        hashes[self._me] = await self._hash(log, range_)
        if len({*hashes.values()} - {b""}) < 2 or self.replica(partition_id) is not replica:
            return
        voters = {voter.node for voter in replica.membership.voters}
        told_by = Counter(hashes[node] for node in sorted(voters & {*hashes}))
        del told_by[b""]
        most, number = next(iter(told_by.most_common(1)), (b"", 0))
        text = f"entries {range_[0]} to {range_[1]} of {partition_id} differ between replicas"
        self._metrics.storage.scrub_diverged.inc()
        if number <= len(replica.membership.voters) // 2:
            self._diverged[partition_id] = (
                f"{text}, and no majority agrees: {', '.join(sorted(hashes))}"
            )
            _log.error(
                "replicas_diverged", group=str(partition_id), range=range_, nodes=sorted(hashes)
            )
            return
        wrong = [node for node, found in hashes.items() if found not in (most, b"")]
        _log.error("replicas_diverged", group=str(partition_id), range=range_, wrong=wrong)
        if self._me in wrong:
            self._on_diverged(
                partition_id, f"entries {range_[0]} to {range_[1]} differ from the others'"
            )
        for node in wrong:
            if node != self._me:
                await self._tell(node, partition_id, range_, most)

    async def _tell(
        self, node: NodeId, partition_id: PartitionId, range_: Range, most: bytes
    ) -> None:
        request = rpc.encode(DivergedRequest(partition_id.pack(), *range_, most))
        try:
            await self._link.request(node, DIVERGED, request, ASK_TIMEOUT_S)
        except (GoQueueError, RemoteError) as error:
            _log.warning(
                "divergence_not_told", group=str(partition_id), node=node, problem=str(error)
            )

    async def _serve_hashes(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, HashesRequest)
        partition_id = PartitionId.unpack(request.partition)
        log = self._log(partition_id)
        replica = self.replica(partition_id)
        committed = 0 if replica is None else min(replica.commit_index, log.spilled_index)
        too_long = any(last - first >= RANGE_ENTRIES_MAX for first, last in request.ranges)
        if too_long or len(request.ranges) > RANGES_A_REQUEST:
            raise BadRequest("too much is to be hashed at once")
        known = {} if request.fresh else self._found(log)
        hashes: list[bytes] = []
        for first, last in request.ranges:
            usable = last <= committed and log.damaged is None
            hash_ = known.get((first, last), b"") if usable else b""
            hashes.append(hash_ or (await self._hash(log, (first, last)) if usable else b""))
        return rpc.encode(HashesAnswer(hashes))

    async def _told_diverged(self, peer: NodeId, payload: bytes) -> bytes:
        """Believed of the leader that is followed here, and after a look of one's own."""
        request = rpc.decode_request(payload, DivergedRequest)
        partition_id = PartitionId.unpack(request.partition)
        log, replica = self._log(partition_id), self.replica(partition_id)
        if replica is None or replica.leader != peer:
            raise NotFound(f"{peer} does not lead {partition_id} as seen from here")
        mine = await self._hash(log, (request.first, request.last))
        if self.replica(partition_id) is not replica:
            raise NotFound(f"the replica of {partition_id} that was looked at has gone")
        if mine and mine != request.hash:
            text = f"entries {request.first} to {request.last} differ from those of {peer}"
            self._on_diverged(partition_id, text)
        return b""

    def _found(self, log: PartitionLog) -> dict[Range, bytes]:
        generation, found = self._known.get(log, (None, {}))
        return found if generation == log.disk_segments.generation else {}

    def _log(self, partition_id: PartitionId) -> PartitionLog:
        if not self._store.has_log(partition_id):
            raise NotFound(f"no replica of {partition_id} here")
        return self._store.partition_log(partition_id)

    async def _hash(self, log: PartitionLog, range_: Range) -> bytes:
        if self._is_stopped:
            raise Unavailable("this node is stopping")
        loop = asyncio.get_running_loop()
        hash_, size = await loop.run_in_executor(self._workers, hash_range, log, *range_)
        await self._pay(size)
        return hash_


def _requests(sizes: dict[Range, int]) -> list[list[Range]]:
    """The ranges, as many in each request as may be asked at once."""
    requests: list[list[Range]] = []
    total = 0
    for range_, size in sizes.items():
        total += size
        if not requests or total > BYTES_A_REQUEST or len(requests[-1]) == RANGES_A_REQUEST:
            requests.append([])
            total = size
        requests[-1].append(range_)
    return requests

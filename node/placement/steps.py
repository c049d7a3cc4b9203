"""How the replicas of a partition are, and single steps that change them: asked of its leader.

Any node may ask; this one answers for the partitions that it leads. A leader tells only what has
committed, and judges each step by what it sees when the step arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from coordinator.placement.steps import ADD_LEARNER, CONFIRM, PROMOTE, REMOVE, Seen, Step, refusal
from coordinator.topics.partitions import Configuration
from goqueue.wire.errors import BadRequest, GoQueueError, NotLeader, OutcomeUnknown, Timeout
from goqueue.wire.types import Index, NodeId, PartitionId, Voter
from node.cluster.host import ClusterHost
from node.metrics import Metrics
from node.partition.host import PartitionHost
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.replicas.damaged import is_damaged
from node.replicas.partition_service import PartitionService
from node.rpc import moves as move_rpc
from node.rpc import partitions as rpc
from node.rpc.moves import SeenRequest, StepRequest
from node.runtime.logger import get_logger
from node.storage.disks import REPLAYING
from node.storage.space_watch import ROOM_BYTES
from raft.configuration import AddLearner, Change, Confirm, Promote, Remove
from raft.errors import Outcome
from raft.group import RaftGroup

ASK_DEADLINE_S = 3.0
STEP_DEADLINE_S = 8.0
COMMIT_S = 5.0
"""A change that has not committed by then goes on; whoever asked looks again later."""

_CHANGES: Mapping[str, Callable[[Voter], Change]] = {
    ADD_LEARNER: AddLearner,
    PROMOTE: lambda voter: Promote(voter.node),
    REMOVE: lambda voter: Remove(voter.node),
    CONFIRM: lambda _voter: Confirm(),
}

_log = get_logger("moves")


class MovingPartitions:
    """Serves the node's peers, too. Loop thread only."""

    def __init__(
        self,
        cluster: ClusterHost,
        partitions: PartitionService,
        forwarder: Forwarder,
        link: PeerLink,
        metrics: Metrics,
        me: Voter,
        copied_from_here: Callable[
            [PartitionId, NodeId], int | None
        ] = lambda _partition_id, _node: None,
    ) -> None:
        """`copied_from_here` tells what a node has yet to copy of a replica here, if it does."""
        self._copied_from_here = copied_from_here
        self._cluster = cluster
        self._partitions = partitions
        self._forwarder = forwarder
        self._metrics = metrics
        self._me = me
        link.handle(move_rpc.SEEN, self._serve_seen)
        link.handle(move_rpc.STEP, self._serve_step)

    async def ask(self, partition_id: PartitionId) -> Seen:
        """What the partition's leader sees. Raises GoQueueError."""
        request = rpc.encode(SeenRequest(partition_id.pack()))
        return await self._call(
            partition_id, move_rpc.SEEN, request, lambda: self._look(partition_id), ASK_DEADLINE_S
        )

    async def step(self, step: Step) -> Seen:
        """Have the partition's leader take a step; how the partition is after it, also where it
        was refused. Taken twice, it is refused once. Raises GoQueueError."""
        request = rpc.encode(move_rpc.step_request(step))
        return await self._call(
            step.partition_id, move_rpc.STEP, request, lambda: self.take(step), STEP_DEADLINE_S
        )

    def seen(self, host: PartitionHost, asked: Voter | None = None) -> Seen:
        """What this node, which leads the partition, sees of its replicas, and of the one that it
        is asked about, which it may not know to be wanted yet."""
        raft_group = host.raft_group
        known = raft_group.membership.before
        now = Configuration(known.index, known.voters, known.learners, known.epoch)
        lagging = [
            learner for learner in now.learners if not self._is_caught_up(raft_group, learner)
        ]
        return Seen(
            now,
            self._me.node,
            frozenset(voter.node for voter in now.voters if self._is_in_sync(raft_group, voter)),
            frozenset(one.node for one in now.learners if one not in lagging),
            not (raft_group.membership.is_committed and raft_group.is_ready_leader),
            sum(self._left_bytes(host, learner.node) for learner in lagging),
            frozenset(self._full(host, asked)),
            raft_group.term,
        )

    async def take(self, step: Step) -> Seen:
        """As the partition's leader: the step, or not, and what is seen then. Raises NotLeader,
        OutcomeUnknown, Timeout."""
        host = self._partitions.leading(step.partition_id)
        seen = self.seen(host, step.voter)
        problem = refusal(step, seen)
        if problem is None and step.voter.node == self._me.node and step.kind not in _CHANGES:
            return seen  # it leads
        if problem is None:
            problem = await self._do(host.raft_group, step)
        if problem is not None:
            self._metrics.cluster.move_steps_refused.inc()
            _log.debug(
                "step_refused", group=str(step.partition_id), step=step.kind, problem=problem
            )
        else:
            self._metrics.cluster.move_steps.labels(step.kind).inc()
        return self.seen(self._partitions.leading(step.partition_id))

    # private

    async def _call(
        self,
        partition_id: PartitionId,
        method: str,
        request: bytes,
        here: Callable[[], Awaitable[Seen]],
        deadline_s: float,
    ) -> Seen:
        return await self._forwarder.call(
            partition_id,
            local=lambda _left_s: here(),
            method=method,
            payload=lambda _left_s: request,
            decode=move_rpc.decode_seen,
            deadline_s=deadline_s,
        )

    async def _look(self, partition_id: PartitionId) -> Seen:
        return self.seen(self._partitions.leading(partition_id))

    async def _do(self, raft_group: RaftGroup, step: Step) -> str | None:
        """Why it was not done."""
        if step.kind not in _CHANGES:
            if self._cluster.hellos.get(step.voter.node, {}).get(REPLAYING) is True:
                return f"{step.voter.node} still applies its log, and what it led would wait"
            if await transferred(raft_group, step.voter.node):
                raise NotLeader(step.voter.node)
            return "leadership was not taken over"
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def ended(outcome: Outcome, _result: object, _index: Index) -> None:
            if not done.done():
                done.set_result(outcome)

        try:
            raft_group.changes.change(_CHANGES[step.kind](step.voter), ended, epoch=step.epoch)
        except NotLeader:
            raise
        except GoQueueError as error:
            return error.message
        try:
            async with asyncio.timeout(COMMIT_S):
                outcome = await done
        except TimeoutError:
            raise Timeout("the change of replicas has not committed yet") from None
        if outcome is Outcome.UNKNOWN:
            raise OutcomeUnknown
        if outcome is Outcome.NONE:
            raise NotLeader(raft_group.leader)
        _log.info(
            "replicas_changed", group=str(step.partition_id), step=step.kind, broker=step.voter.node
        )
        return None

    def _is_there(self, voter: Voter) -> bool:
        """Whether it is connected with the very data directory that is meant."""
        if voter.node == self._me.node:
            return voter == self._me
        hello = self._cluster.hellos.get(voter.node)
        return hello is not None and int(hello["incarnation"]) == voter.incarnation

    def _is_in_sync(self, raft_group: RaftGroup, voter: Voter) -> bool:
        return (
            self._is_there(voter)
            and raft_group.replication.in_step(voter.node)
            and not self._is_damaged(raft_group, voter.node)
        )

    def _is_caught_up(self, raft_group: RaftGroup, learner: Voter) -> bool:
        return (
            self._is_there(learner)
            and raft_group.replication.caught_up(learner.node)
            and not self._is_damaged(raft_group, learner.node)
        )

    def _is_damaged(self, raft_group: RaftGroup, node: NodeId) -> bool:
        """Whether it has told so. That comes with its next hello, a moment after it knows; what
        nobody has read since it was damaged, nobody knows. Of itself Raft knows at once."""
        hello = self._cluster.hellos.get(node)
        return hello is not None and is_damaged(hello, raft_group.id)

    def _left_bytes(self, host: PartitionHost, node: NodeId) -> int:
        """What a learner has yet to get. While it copies, it holds nothing as far as Raft knows."""
        left = self._copied_from_here(host.id, node)
        return _behind_bytes(host, node) if left is None else left

    def _full(self, host: PartitionHost, asked: Voter | None) -> list[NodeId]:
        """Brokers that are to get a replica, and have no room for what they lack of it."""
        placement = self._cluster.state.placement(host.id)
        wanted = [] if placement is None else list(placement.replicas)
        if asked is not None:
            wanted.append(asked)
        return [
            voter.node
            for voter in wanted
            if voter not in host.raft_group.membership.voters
            and _behind_bytes(host, voter.node) > _room_bytes(self._cluster.hellos.get(voter.node))
        ]

    # for peers

    async def _serve_seen(self, _peer: NodeId, payload: bytes) -> bytes:
        request = rpc.decode_request(payload, SeenRequest)
        partition_id = PartitionId.unpack(request.partition)
        return rpc.encode(move_rpc.seen_row(partition_id, await self._look(partition_id)))

    async def _serve_step(self, _peer: NodeId, payload: bytes) -> bytes:
        step = move_rpc.step_of(rpc.decode_request(payload, StepRequest))
        if step.kind not in (*_CHANGES, "transfer"):
            raise BadRequest(f"a peer asks for an unknown step {step.kind[:64]!r}")
        return rpc.encode(move_rpc.seen_row(step.partition_id, await self.take(step)))


async def transferred(raft_group: RaftGroup, to: NodeId | None) -> bool:
    """Hand leadership over; whether that was done."""
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def ended(ok: bool) -> None:
        if not done.done():
            done.set_result(ok)

    raft_group.transfer.start(to, ended)
    return await done


def _behind_bytes(host: PartitionHost, node: NodeId) -> int:
    """About how much of the log a replica has yet to get."""
    match, left = host.raft_group.replication.match_of(node), 0
    if match < host.log.first_index:
        return host.log.size_bytes
    for segment in host.log.segments():
        if segment.last_index <= match:
            continue
        entries = segment.last_index - segment.first_index + 1
        missing = segment.last_index - max(match, segment.first_index - 1)
        left += segment.size_bytes * missing // max(entries, 1)
    return left


def _room_bytes(hello: Mapping[str, Any] | None) -> int:
    """What a broker may be given, as it said last; one that is not there is asked later."""
    told = None if hello is None else hello.get(ROOM_BYTES)
    return told if isinstance(told, int) else 1 << 62

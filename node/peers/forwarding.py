"""Any node serves any topic: a request finds the leader of its partition, here or over the link.

An attempt ends in an answer, in a refusal that changed nothing (`none`), or in doubt (`unknown`).
A refusal is tried again within the deadline, at the leader it hints at. Doubt is resolved by
sending the same request again under the same identity: what had happened is answered as a
duplicate, with the original offset.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from goqueue.wire.errors import (
    Busy,
    GoQueueError,
    NoQuorum,
    NotLeader,
    Outcome,
    OutcomeUnknown,
    Timeout,
    Unavailable,
    UnknownTopic,
)
from goqueue.wire.types import CLUSTER_GROUP, NodeId, PartitionId
from node.metrics import Metrics
from node.peers.repetition import FORGOTTEN, may_repeat_method
from raft.link import LinkDown, RemoteError

T = TypeVar("T")

ATTEMPT_PAUSE_S = 0.01
ATTEMPT_PAUSE_MAX_S = 0.2
WITHOUT_QUORUM_S = 2.0
"""How long a majority must be out of reach before a request is refused for it: a broken link that
comes back at once, or an election, is no reason."""
RETRY_AFTER_S = 1
PASSING = "passing"
"""The name in a `Busy` error's data that says: over in a moment, worth waiting for."""
HINTS_MAX = 3
"""Hints followed without a pause; more than this is nodes that point at each other."""


class Leadership(Protocol):
    """What a node knows of one Raft group's leader and members."""

    def leader(self, partition_id: PartitionId) -> NodeId | None:
        """The leader as this node last heard; may be wrong."""
        ...

    def learn(self, partition_id: PartitionId, leader: NodeId | None, asked: NodeId) -> None:
        """Who was asked does not lead, and said who does, if it knows."""
        ...

    def replicas(self, partition_id: PartitionId) -> tuple[NodeId, ...]: ...

    def reachable(self, partition_id: PartitionId) -> int:
        """How many of the replicas can be reached from here, this node included."""
        ...

    async def changed(self, partition_id: PartitionId, timeout_s: float) -> None:
        """Return when the leader may have changed, or after the time."""
        ...


class Requester(Protocol):
    """The peer link's requests."""

    async def request(
        self, node: NodeId, method: str, payload: bytes, timeout_s: float
    ) -> bytes: ...


class Forwarder:
    """Sends requests to leaders, and again where that is safe."""

    def __init__(
        self,
        node: NodeId,
        leadership: Leadership,
        mesh: Requester,
        rng: random.Random,
        metrics: Metrics,
    ) -> None:
        self._node = node
        self._leadership = leadership
        self._mesh = mesh
        self._rng = rng
        self._metrics = metrics
        self._waiting: dict[PartitionId, dict[asyncio.Timeout, NodeId]] = {}

    async def call(
        self,
        partition_id: PartitionId,
        *,
        local: Callable[[float], Awaitable[T]],
        method: str,
        payload: Callable[[float], bytes],
        decode: Callable[[bytes], T],
        deadline_s: float,
        has_identity: bool | None = None,
        patience_s: float | None = None,
        on_doubt: Callable[[], object] = lambda: None,
    ) -> T:
        """The leader's answer. `local` and `payload` are told the seconds that are left, `on_doubt`
        that an attempt may have happened: what comes after is a repeat.

        `has_identity`: repeating the request can't make it happen twice (it carries a request id,
        a producer's sequence, or changes nothing); as `node.peers.repetition` says of the method,
        where it is not given. Raises what the leader refuses with for good;
        `NoQuorum` where a majority is out of reach; `Timeout` at the deadline. Their `outcome` is
        `unknown` once any attempt may have happened.
        """
        if has_identity is None:
            has_identity = may_repeat_method(method)
        loop = asyncio.get_running_loop()
        started = loop.time()
        patience = WITHOUT_QUORUM_S if patience_s is None else patience_s
        end = started + deadline_s
        in_doubt = False
        hint: NodeId | None = None
        hops = 0
        pause = ATTEMPT_PAUSE_S
        while True:
            left = end - loop.time()
            target = hint or self._leadership.leader(partition_id)
            hint = None
            reason: GoQueueError = NotLeader(None)
            if target is not None and left > 0:
                try:
                    if target == self._node:
                        return await local(left)
                    return await self._remote(
                        partition_id, target, method, payload(left), decode, left
                    )
                except GoQueueError as error:
                    if not _is_passing(error):
                        error.outcome = "unknown" if in_doubt else error.outcome
                        raise
                    reason = error
                    in_doubt = in_doubt or error.outcome == "unknown"
                    if error.outcome == "unknown":
                        if not has_identity:
                            raise
                        on_doubt()
                    hint = _hint(error, target) if hops < HINTS_MAX else None
                    hops += 1
                    if hint is not None or _knows_none(error, target, self._node):
                        self._leadership.learn(partition_id, hint, target)
            self._metrics.http.retried.inc()
            left = end - loop.time()
            self._give_up(partition_id, reason, in_doubt, left, loop.time() - started - patience)
            if hint is None:
                hops = 0
                wait = min(pause * self._rng.uniform(0.5, 1.5), left)
                await self._leadership.changed(partition_id, wait)
                pause = min(pause * 2, ATTEMPT_PAUSE_MAX_S)

    def led_here(self, partition_id: PartitionId) -> bool | None:
        """Whether this node leads, as far as it knows; None where it knows of no leader."""
        leader = self._leadership.leader(partition_id)
        return None if leader is None else leader == self._node

    def leader_elsewhere(self, partition_id: PartitionId) -> NodeId | None:
        """Whom a request would be sent on to now; None where it would not be."""
        leader = self._leadership.leader(partition_id)
        return None if leader == self._node else leader

    def leader_changed(self, partition_id: PartitionId, leader: NodeId) -> None:
        """What waits for another node's answer is asked again, of the new leader: the old one may
        be paused, or cut off, and its link not yet known to be dead."""
        now = asyncio.get_running_loop().time()
        for scope, target in self._waiting.get(partition_id, {}).items():
            if target != leader and not scope.expired():
                scope.reschedule(now)

    async def _remote(
        self,
        partition_id: PartitionId,
        target: NodeId,
        method: str,
        payload: bytes,
        decode: Callable[[bytes], T],
        left_s: float,
    ) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._metrics.http.forwarded.labels(method).inc()
        waiting = self._waiting.setdefault(partition_id, {})
        scope = asyncio.timeout(None)
        try:
            async with scope:
                waiting[scope] = target
                answer = await self._mesh.request(target, method, payload, left_s)
        except TimeoutError:
            raise OutcomeUnknown(f"{target} was silent, and leads no longer") from None
        except LinkDown as error:
            if error.outcome == "unknown":
                raise OutcomeUnknown(f"the link to {target} broke") from error
            raise Unavailable(f"no link to {target}") from error
        except RemoteError as error:
            raise error.error from error
        finally:
            waiting.pop(scope, None)
            if not waiting:
                self._waiting.pop(partition_id, None)
        self._metrics.http.forward_latency.observe(loop.time() - began)
        return decode(answer)

    def _give_up(
        self,
        partition_id: PartitionId,
        reason: GoQueueError,
        in_doubt: bool,
        left_s: float,
        over_s: float,
    ) -> None:
        """Raise when waiting is pointless: the topic is gone, no majority for longer than is
        patient, or no time."""
        replicas = self._leadership.replicas(partition_id)
        reachable = self._leadership.reachable(partition_id)
        without_quorum = reachable * 2 <= len(replicas)
        outcome: Outcome = "unknown" if in_doubt else "none"
        if not replicas and partition_id != CLUSTER_GROUP:
            gone = UnknownTopic(str(partition_id.topic))
            gone.outcome = outcome
            raise gone from reason
        if without_quorum and (over_s >= 0 or left_s <= 0):
            raise NoQuorum(
                f"{reachable} of {len(replicas)} replicas can be reached: "
                "a majority must hold what is written",
                outcome=outcome,
                retry_after_s=RETRY_AFTER_S,
                reachable=reachable,
                replicas=len(replicas),
            ) from reason
        if left_s <= 0:
            raise Timeout(
                f"not done before the deadline: {reason.message}",
                outcome=outcome,
                retry_after_s=RETRY_AFTER_S,
            ) from reason


def _is_passing(error: GoQueueError) -> bool:
    """Whether another attempt may fare better: there is, or will be, another leader."""
    if isinstance(error, Busy):
        return error.data.get(PASSING) is True
    if isinstance(error, OutcomeUnknown):
        return error.data.get(FORGOTTEN) is not True
    return isinstance(error, NotLeader) or type(error) is Unavailable


def _knows_none(error: GoQueueError, asked: NodeId, me: NodeId) -> bool:
    return isinstance(error, NotLeader) and asked != me and error.data.get("leader") is None


def _hint(error: GoQueueError, asked: NodeId) -> NodeId | None:
    leader = error.data.get("leader") if isinstance(error, NotLeader) else None
    return NodeId(leader) if isinstance(leader, str) and leader != asked else None

"""Operations on their way into a partition's log: from any node, to the leader, and what they
came to."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Iterable, Sequence
from typing import TypeVar

from msgspec import structs

from delivery.entries.ops import Op, Settled
from goqueue.wire.errors import Timeout
from goqueue.wire.types import NodeId, PartitionId
from node.partition.host import PartitionHost
from node.peers.forwarding import Forwarder
from node.peers.link import PeerLink
from node.peers.repetition import forgotten, is_remembered, may_repeat_ops
from node.replicas.partition_service import PartitionService
from node.rpc import partitions as rpc
from node.rpc import queue as queue_rpc
from node.rpc.queue import GroupRef, OpsAnswer, OpsRequest

DEADLINE_S = 15.0

A = TypeVar("A")


class Operations:
    """Loop thread only. Serves peers, too, as the leader of partitions."""

    def __init__(
        self,
        partitions: PartitionService,
        forwarder: Forwarder,
        link: PeerLink,
        rng: random.Random,
    ) -> None:
        self._partitions = partitions
        self._forwarder = forwarder
        self._rng = rng
        link.handle(queue_rpc.OPS, self._serve)

    async def put(
        self,
        partition: PartitionId,
        ops: Sequence[Op],
        opens: GroupRef | None = None,
        deadline_s: float = DEADLINE_S,
        patience_s: float | None = None,
    ) -> OpsAnswer:
        """Put operations into a partition's log. They are sent again where an answer was lost: so
        each carries a request id, or comes to the same when it happens twice
        (`node.peers.repetition`). `patience_s` as in `Forwarder.call`."""
        named = list(map(self._named, ops))
        attempts = _Attempts(OpsRequest(partition.pack(), named, opens))

        async def here(left_s: float) -> OpsAnswer:
            return await within(left_s, self.take(attempts.request))

        return await self._forwarder.call(
            partition,
            local=here,
            method=queue_rpc.OPS,
            payload=lambda _left_s: rpc.encode(attempts.request),
            decode=lambda answer: queue_rpc.decode_answer(answer, OpsAnswer),
            deadline_s=deadline_s,
            has_identity=may_repeat_ops(named),
            patience_s=patience_s,
            on_doubt=attempts.in_doubt,
        )

    def are_led_here(self, partition: PartitionId) -> bool:
        """Whether those of this partition come to this node, as far as it knows."""
        return self._forwarder.led_here(partition) is True

    async def take(self, request: OpsRequest) -> OpsAnswer:
        """As leader: put operations into the partition's log; what they came to once they are
        applied. Raises `NotLeader`, and `OutcomeUnknown` where they may have been applied by an
        earlier attempt that is forgotten."""
        host = self._partitions.leading(PartitionId.unpack(request.partition))
        ops = request.ops
        if request.again:
            _check_remembered(host, ops)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        results = await host.queue.submit(ops, request.opens)
        host.figures.settled(ops, loop.time() - began_s)
        group = host.state.queue.groups.get(getattr(ops[0], "group", 0)) if ops else None
        return OpsAnswer(results, 0 if group is None else group.committed_offset)

    async def _serve(self, _peer: NodeId, payload: bytes) -> bytes:
        return rpc.encode(await self.take(rpc.decode_request(payload, OpsRequest)))

    def _named(self, op: Op) -> Op:
        """What would do something else the second time gets a request id."""
        if is_remembered(op) and not getattr(op, "request", 0):
            return structs.replace(op, **{"request": self._rng.getrandbits(63) or 1})
        return op


class _Attempts:
    """One call's request, as each attempt sends it."""

    def __init__(self, first: OpsRequest) -> None:
        self.request = first
        """The next attempt's."""

    def in_doubt(self) -> None:
        """An attempt may have been applied; one that was refused changes nothing for the next."""
        self.request = structs.replace(self.request, again=True)


async def within(left_s: float, work: Awaitable[A]) -> A:
    """Raises `Timeout`, the outcome of which is not known."""
    try:
        async with asyncio.timeout(left_s):
            return await work
    except TimeoutError:
        raise Timeout("the partition's replicas did not confirm in time") from None


def _check_remembered(host: PartitionHost, ops: Iterable[Op]) -> None:
    results, now_ms = host.state.queue.results, host.log_time_ms()
    for op in ops:
        request = getattr(op, "request", 0)
        settles = isinstance(op, Settled)
        if request and results.may_have_forgotten(request, now_ms, settles=settles):
            raise forgotten()

"""The link to other nodes as production parts of a simulated node use it: who is connected, and
requests: answered, refused where the link is down, or lost with it at any point of the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from goqueue.wire.errors import GoQueueError, Timeout
from goqueue.wire.types import NodeId, PartitionId
from node.peers.link import Handler
from node.rpc.queue import TAKE
from raft.link import Address, FailedHandshakes, LinkDown, RemoteError, Traffic

if TYPE_CHECKING:
    from tests.sim.process import Process

HOP_S = 0.001
SLOW = 0.1
SLOW_S = 1.2
"""One in so many takes up to so long, while faults strike."""
RESET_S = 0.1
"""So often it is looked whether who was asked is there still: a dead process resets its links."""
LOST = 0.04
LOST_GRANTS = 0.2
"""How many answers are lost, beside those of links that faults break, while faults strike; and how
many of those that lease messages."""
RESET, SOON_S = 0.15, 0.01
"""How many links break so soon after a request for messages, which comes again meanwhile."""
SILENT = 0.3
"""How many requests and answers that are lost are not noticed: their links are silent."""


class Link:
    """A `node.peers.link.PeerLink` of one process; frames of Raft go another way."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._handlers: dict[str, Handler] = {}
        self._waiting: dict[NodeId, dict[asyncio.Future[bytes], None]] = {}
        """For answers of a node."""

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    def send(
        self, node: NodeId, partition_id: PartitionId, parts: Sequence[bytes | memoryview]
    ) -> bool:
        return self._process.network.send(node, partition_id, [bytes(part) for part in parts])

    def backlog_bytes(self, node: NodeId) -> int:
        return 0

    @property
    def traffic(self) -> Mapping[NodeId, Traffic]:
        return {}

    @property
    def failed_handshakes(self) -> FailedHandshakes:
        return FailedHandshakes()

    def set_peers(self, peers: dict[NodeId, Address]) -> None:
        return None

    def connected(self) -> Mapping[NodeId, Mapping[str, Any]]:
        world, me = self._process.world, self._process.node
        return {node: {} for node in world.others(me) if world.net.is_up(me, node)}

    def closed(self, node: NodeId) -> None:
        """The link to a node is down: it answers nothing any more."""
        for answer in list(self._waiting.get(node, ())):
            if not answer.done():
                answer.set_exception(LinkDown(node, sent=True))

    def handle(self, method: str, handler: Handler) -> None:
        self._handlers[method] = handler

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        """Raises LinkDown, Timeout or RemoteError, as `raft.link` does."""
        source, world = self._process, self._process.world
        if not world.net.reaches(source.node, node):
            await asyncio.sleep(HOP_S)
            raise LinkDown(node, sent=False)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(node, {})
        waiting[answer] = None
        _Request(source, node, method, payload, answer).begin()
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise Timeout(f"{node} did not answer {method} in time") from None
        finally:
            waiting.pop(answer, None)

    def serve(
        self,
        source: NodeId,
        method: str,
        payload: bytes,
        reply: Callable[[bytes | GoQueueError], object],
    ) -> None:
        """Answer a peer's request with bytes, or with the error to be raised there."""

        async def work() -> bytes | GoQueueError:
            handler = self._handlers.get(method)
            if handler is None:
                return GoQueueError(f"{method} is not served")
            try:
                return await handler(source, payload)
            except GoQueueError as error:
                return error
            except OSError as error:
                return GoQueueError(str(error))

        self._process.coroutines.start(work(), reply)


class _Request:
    """One request on its way there, and its answer on the way back."""

    def __init__(
        self,
        source: Process,
        node: NodeId,
        method: str,
        payload: bytes,
        answer: asyncio.Future[bytes],
    ) -> None:
        self._source = source
        self._node = node
        self._method = method
        self._payload = payload
        self._answer = answer
        self._rng = source.world.rng("link")

    def begin(self) -> None:
        world = self._source.world
        slow = not world.is_quiet and self._rng.random() < SLOW
        hop_s = self._rng.uniform(HOP_S, SLOW_S) if slow else HOP_S
        world.loop.call_later(hop_s, self._arrive)

    def _arrive(self) -> None:
        source, world = self._source, self._source.world
        target = world.machines.process(self._node)
        if target is None or not world.net.reaches(source.node, self._node):
            self._lost()
            return

        def reply(result: bytes | GoQueueError) -> None:
            share = LOST_GRANTS if self._method == TAKE else LOST
            unlucky = not world.is_quiet and self._rng.random() < share
            alive = target.network.alive and world.net.reaches(self._node, source.node)
            if unlucky or not alive:
                self._lost()
            else:
                self._back(result)

        target.time.call_soon(target.link.serve, source.node, self._method, self._payload, reply)
        if self._method == TAKE and not world.is_quiet and self._rng.random() < RESET:
            world.calls["answers lost"] += 1
            reset_s = self._rng.uniform(0, SOON_S)
            source.time.call_later(reset_s, self._end, LinkDown(self._node, sent=True))
        source.time.call_later(RESET_S, self._look, target)

    def _look(self, target: Process) -> None:
        if self._answer.done():
            return
        if target.network.alive:
            self._source.time.call_later(RESET_S, self._look, target)
        else:
            self._source.world.calls["answers lost"] += 1
            self._end(LinkDown(self._node, sent=True))

    def _back(self, result: bytes | GoQueueError) -> None:
        told: bytes | Exception = (
            result
            if isinstance(result, bytes)
            else RemoteError(GoQueueError.from_body(result.to_body()))
        )
        self._source.world.loop.call_later(HOP_S, self._source.time.call_soon, self._end, told)

    def _lost(self) -> None:
        source = self._source
        source.world.calls["answers lost"] += 1
        if self._rng.random() > SILENT:
            delay_s = self._rng.uniform(0, RESET_S)
            source.time.call_later(delay_s, self._end, LinkDown(self._node, sent=True))

    def _end(self, result: bytes | Exception) -> None:
        if self._answer.done():
            return
        if isinstance(result, Exception):
            self._answer.set_exception(result)
        else:
            self._answer.set_result(result)

"""The link to other nodes as production parts of a simulated node use it: requests, and who is
connected."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from goqueue.wire.errors import GoQueueError, Timeout
from goqueue.wire.types import GroupId, NodeId
from node.peer_link import Handler
from raft.link import Address, LinkDown, RemoteError, Traffic
from tests.sim import rpc

if TYPE_CHECKING:
    from tests.sim.process import Process


class SimLink:
    """A `node.peer_link.PeerLink` of one process; frames of Raft go another way."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._handlers: dict[str, Handler] = {}
        self._waiting: dict[NodeId, dict[asyncio.Future[object], None]] = {}
        """For answers of a node."""

    async def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    def send(self, node: NodeId, group: GroupId, parts: Sequence[bytes | memoryview]) -> bool:
        return self._process.network.send(node, group, [bytes(part) for part in parts])

    def backlog_bytes(self, node: NodeId) -> int:
        return 0

    @property
    def traffic(self) -> Mapping[NodeId, Traffic]:
        return {}

    def set_peers(self, peers: dict[NodeId, Address]) -> None:
        return None

    def connected(self) -> Mapping[NodeId, Mapping[str, Any]]:
        world, me = self._process.world, self._process.node
        return {node: {} for node in world.others(me) if world.net.is_up(me, node)}

    def handle(self, method: str, handler: Handler) -> None:
        self._handlers[method] = handler

    async def request(self, node: NodeId, method: str, payload: bytes, timeout_s: float) -> bytes:
        process = self._process
        if node not in self.connected():
            raise LinkDown(node, sent=False)
        future: asyncio.Future[object] = process.coroutines.create_future()
        waiting = self._waiting.setdefault(node, {})
        waiting[future] = None

        def serve(peer: Process, reply: rpc.Reply) -> None:
            peer.link.serve(process.node, method, payload, reply)

        def ended(answer: object) -> None:
            if not future.done():
                future.set_result(answer)

        rpc.call(process, node, serve, ended, timeout_s)
        try:
            answer = await future
        finally:
            waiting.pop(future, None)
        if isinstance(answer, GoQueueError):
            raise RemoteError(answer)
        if not isinstance(answer, bytes):
            raise Timeout(f"{node} did not answer {method}")
        return answer

    def closed(self, node: NodeId) -> None:
        """The link to a node is down: it answers nothing any more."""
        for future in list(self._waiting.get(node, ())):
            if not future.done():
                future.set_exception(LinkDown(node, sent=True))

    def serve(self, peer: NodeId, method: str, payload: bytes, reply: rpc.Reply) -> None:
        """Answer a request with bytes, or with the error to be raised there."""
        self._process.coroutines.start(self._answer(peer, method, payload), reply)

    async def _answer(self, peer: NodeId, method: str, payload: bytes) -> object:
        handler = self._handlers.get(method)
        if handler is None:
            return GoQueueError(f"{method} is not served")
        try:
            return await handler(peer, payload)
        except GoQueueError as error:
            return error
        except OSError as error:
            return GoQueueError(str(error))

"""Accepts the connections of a listener that reads and writes bytes itself; sweeps overdue ones.

The caps are the node's, for all its listeners together; a TLS handshake is bounded in time; a
request that arrives too slowly and an answer that nobody takes end their connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from goqueue.background import TaskSet
from goqueue.wire.errors import Unavailable
from node.http.connections.listener import Listener as Port
from node.listeners.parts import ListenerParts, Tls
from node.listeners.wire import Wire

SWEEP_S = 0.5


class Connections:
    """One listener's. `serve` is a connection from its beginning to its end: it reads until there
    is no more, and the connection is closed once it returns. It raises nothing but ConnectionError
    and a cancellation, which is the node's: it stops.

    `refused` says, in the protocol's words, why a client is not served.
    """

    def __init__(
        self,
        protocol: str,
        parts: ListenerParts,
        serve: Callable[[Wire], Awaitable[None]],
        refused: Callable[[Unavailable], bytes],
        tls: Tls | None = None,
    ) -> None:
        self._protocol = protocol
        self._parts = parts
        self._serve = serve
        self._refused = refused
        self._open: set[Wire] = set()
        context = None if tls is None else tls.context
        self._port = Port(self._make, parts.crowd, context, parts.limits)
        self._port_number = 0
        self._serving = TaskSet("node", "connection_failed", grace_s=parts.limits.drain_s)
        self._sweeping = TaskSet("node", "sweep_failed")

    @property
    def port(self) -> int:
        """The real one; 0 before it listens."""
        self._port_number = self._port.port or self._port_number
        return self._port_number

    @property
    def open(self) -> frozenset[Wire]:
        """Those that are served now."""
        return frozenset(self._open)

    async def start(self, host: str, port: int) -> None:
        """Listens when it returns; raises OSError where the address is not to be had."""
        await self._port.start(host, port)
        self._sweeping.begin(self._sweep_forever(), f"{self._protocol}-sweeper")

    async def stop(self) -> None:
        """Stop listening; what has arrived is served, within `limits.drain_s`. Idempotent."""
        await self._port.stop()
        await self._sweeping.stop()
        for wire in list(self._open):
            wire.end_reading()
        await self._serving.stop()
        for wire in list(self._open):
            wire.abort()

    def sweep(self, now_s: float) -> None:
        """Cut those whose request, or whose taking of an answer, is overdue."""
        limits = self._parts.limits
        for wire in list(self._open):
            since_s = wire.partial_since_s
            allowed_s = limits.body_grace_s + wire.partial_bytes / limits.body_bytes_per_s_min
            if since_s and now_s - since_s > allowed_s:
                wire.abort()
                continue
            unsent, seen = wire.unsent_bytes, wire.unsent_seen_bytes
            wire.unsent_seen_bytes = unsent
            if not (unsent and unsent >= seen):
                wire.stalled_since_s = 0.0
            else:
                wire.stalled_since_s = wire.stalled_since_s or now_s
                if now_s - wire.stalled_since_s > limits.write_stall_s:
                    wire.abort()

    # private

    def _make(self) -> Wire:
        parts = self._parts
        return Wire(parts.crowd, parts.budgets, self._begin, self._refused, self._left)

    def _begin(self, wire: Wire) -> None:
        self._open.add(wire)
        self._parts.metrics.connected(self._protocol, len(self._open))
        self._serving.begin(self._served(wire), f"{self._protocol}-connection")

    async def _served(self, wire: Wire) -> None:
        try:
            await self._serve(wire)
            await wire.linger(self._parts.limits.lingering_s)
        except ConnectionError:
            wire.abort()
        finally:
            wire.close()

    def _left(self, wire: Wire) -> None:
        if wire in self._open:
            self._open.discard(wire)
            self._parts.metrics.connected(self._protocol, len(self._open))

    async def _sweep_forever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep(loop.time())

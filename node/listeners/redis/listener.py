"""The port for clients of Redis, and for miniqueue's."""

from __future__ import annotations

from itertools import count

from goqueue.wire.errors import GoQueueError
from node.listeners.connections import Connections
from node.listeners.parts import ListenerParts, Tls
from node.listeners.redis.client import Client
from node.listeners.redis.replies import encoded, failure_of
from node.listeners.redis.session import Session
from node.listeners.requests import Requests
from node.listeners.wire import Wire

PROTOCOL = "redis"


class RedisListener:
    """A `Listener`. Off loopback it asks for the same keys as HTTP, and has its certificates."""

    def __init__(self, parts: ListenerParts, host: str, port: int, tls: Tls | None = None) -> None:
        self._host = host
        self._asked_port = port
        self._requests = Requests(PROTOCOL, parts)
        self._connections = Connections(PROTOCOL, parts, self._serve, _refused, tls)
        self._numbers = count(1)

    @property
    def port(self) -> int:
        return self._connections.port

    async def start(self) -> None:
        await self._connections.start(self._host, self._asked_port)

    async def stop(self) -> None:
        await self._connections.stop()
        await self._requests.parts.turn.stop()

    async def _serve(self, wire: Wire) -> None:
        await Session(Client(next(self._numbers), wire, self._requests)).run()


def _refused(error: GoQueueError) -> bytes:
    return encoded(failure_of(error))

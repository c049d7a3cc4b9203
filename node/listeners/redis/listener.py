"""The port for clients of Redis."""

from __future__ import annotations

from goqueue.wire.errors import Unavailable
from node.listeners.connections import Connections
from node.listeners.parts import ListenerParts, Tls
from node.listeners.requests import Requests
from node.listeners.wire import Wire


class RedisListener:
    """A `Listener`."""

    def __init__(self, parts: ListenerParts, host: str, port: int, tls: Tls | None = None) -> None:
        self._host = host
        self._asked_port = port
        self._requests = Requests("redis", parts)
        self._connections = Connections("redis", parts, self._serve, _refused, tls)

    @property
    def port(self) -> int:
        return self._connections.port

    async def start(self) -> None:
        await self._connections.start(self._host, self._asked_port)

    async def stop(self) -> None:
        await self._connections.stop()

    async def _serve(self, wire: Wire) -> None:
        while await wire.read():
            await wire.write(b"-ERR no commands yet\r\n")


def _refused(error: Unavailable) -> bytes:
    return f"-ERR {error.message}\r\n".encode()

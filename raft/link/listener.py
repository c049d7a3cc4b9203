"""The port that peers dial: accepts sockets, and bounds those whose TLS is not done."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

import structlog

from goqueue.background import TaskSet
from raft.link.config import LinkLimits
from raft.link.failed import FailedHandshakes, Failure

_log = structlog.get_logger("link")
_BACKLOG = 1024
_NO_DESCRIPTOR_PAUSE_S = 0.1


class Listener:
    """One listening socket. At most `unauthenticated_max` accepted sockets are being prepared at
    once; one more drops the oldest, so a flood can't keep an honest peer out."""

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        limits: LinkLimits,
        failed: FailedHandshakes,
    ) -> None:
        self._failed = failed
        self._make = make
        self._context = context
        self._limits = limits
        self._socket: socket.socket | None = None
        self._is_accepting = False
        self._tasks = TaskSet("link", "accept_failed")
        self._preparing: dict[asyncio.Task[None], None] = {}

    @property
    def address(self) -> tuple[str, int] | None:
        """The real host and port while it listens."""
        if self._socket is None:
            return None
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    @property
    def preparing_count(self) -> int:
        return len(self._preparing)

    async def start(self, host: str, port: int) -> None:
        """Raises OSError when the address can't be resolved or is in use."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        self._socket = socket.create_server(
            (str(address[0]), int(address[1])), family=family, backlog=_BACKLOG
        )
        self._socket.setblocking(False)
        self._is_accepting = True
        self._tasks.begin(self._accept(self._socket))

    async def stop(self) -> None:
        """Idempotent."""
        self._is_accepting = False
        await self._tasks.stop()
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                _log.warning("accept_failed", reason=str(error))
                await asyncio.sleep(_NO_DESCRIPTOR_PAUSE_S)
                continue
            if len(self._preparing) >= self._limits.unauthenticated_max:
                next(iter(self._preparing)).cancel()
            task = self._tasks.begin(self._prepare(accepted, address))
            self._preparing[task] = None
            task.add_done_callback(lambda done: self._preparing.pop(done, None))

    async def _prepare(self, accepted: socket.socket, address: object) -> None:
        try:
            async with asyncio.timeout(self._limits.handshake_s):
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make, accepted, ssl=self._context
                )
        except (OSError, ssl.SSLError, TimeoutError) as error:
            accepted.close()
            self._failed.add(Failure.TLS, str(error) or "it took too long", address)
        except asyncio.CancelledError:
            accepted.close()
            if self._is_accepting:
                self._failed.add(Failure.UNFINISHED, "too many open handshakes", address)
            raise

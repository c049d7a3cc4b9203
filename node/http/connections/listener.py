"""The port for clients: with TLS, a connection counts from accept on, not from its handshake's end.

An event loop's own TLS server tells of a connection once its handshake is done, and holds those
that never end one without bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable

import structlog

from goqueue.background import TaskSet
from node.api.auth.hosts import bucket
from node.http.budget.limits import HttpLimits
from node.http.connections.crowd import Crowd

BACKLOG = 1024
TOLD_AT_ONCE = 16
"""Beyond the caps, so that a client's handshake may end and it is told 503."""
NO_FILE_PAUSE_S = 0.1

_log = structlog.get_logger("node")


class Listener:
    """Hands connections to who serves them: plain ones as they come, others once their TLS is done.

    At a cap a new one takes the place of the oldest whose handshake is not done, of its own address
    where that is at its cap; where all are done it is closed, and nobody else is.
    """

    def __init__(
        self,
        make: Callable[[], asyncio.Protocol],
        crowd: Crowd,
        context: ssl.SSLContext | None,
        limits: HttpLimits,
    ) -> None:
        """`make` makes what serves one connection, which enters the crowd once it is made."""
        self._make = make
        self._crowd = crowd
        self._context = context
        self._limits = limits
        self._plain: asyncio.Server | None = None
        self._sockets: list[socket.socket] = []
        self._tasks = TaskSet("node", "accept_failed")

    @property
    def port(self) -> int | None:
        """The real one, while it listens."""
        sockets = self._plain.sockets if self._plain is not None else self._sockets
        return int(sockets[0].getsockname()[1]) if sockets else None

    async def start(self, host: str, port: int) -> None:
        """Listens when it returns; raises OSError where the address is not to be had."""
        if self._context is None:
            self._plain = await asyncio.get_running_loop().create_server(
                self._make, host, port, backlog=BACKLOG, reuse_address=True
            )
            return
        self._sockets = await _bound(host, port)
        for listening in self._sockets:
            self._tasks.begin(self._accept(listening), "http-accept")

    async def stop(self) -> None:
        """Connections whose handshake is not done are closed, others are not. Idempotent."""
        if self._plain is not None:
            self._plain.close()
        await self._tasks.stop()
        for listening in self._sockets:
            listening.close()
        self._plain, self._sockets = None, []

    # private

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        is_failing = False
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                if not is_failing:
                    _log.warning("accept_failed", reason=str(error))
                is_failing = True
                await asyncio.sleep(NO_FILE_PAUSE_S)
                continue
            is_failing = False
            address = bucket(str(peer[0]))
            if self._has_room(address):
                self._begin(accepted, address)
            else:
                accepted.close()
            await asyncio.sleep(0)  # what was closed is gone before the next one is taken

    def _has_room(self, address: str) -> bool:
        """Whether one more may come from this address, now that an older one made room for it."""
        crowd, limits = self._crowd, self._limits
        if crowd.count_from(address) >= limits.connections_per_address_max + TOLD_AT_ONCE:
            return crowd.handshakes.give_up_oldest(address) or crowd.make_room(address)
        if crowd.open_count >= limits.connections_max + TOLD_AT_ONCE:
            return crowd.handshakes.give_up_oldest() or crowd.make_room()
        return True

    def _begin(self, accepted: socket.socket, address: str) -> None:
        connection, handshakes = self._make(), self._crowd.handshakes
        task = self._tasks.begin(self._shake(accepted, connection), "http-handshake")
        handshakes.begin(connection, address, task)

        def end(done: asyncio.Task[None]) -> None:
            handshakes.end(connection)
            if done.cancelled():  # before its first step, maybe
                accepted.close()

        task.add_done_callback(end)

    async def _shake(self, accepted: socket.socket, connection: asyncio.Protocol) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.tls_handshake_s,
                ssl_shutdown_timeout=self._limits.lingering_s,
            )
        except OSError as error:  # ssl.SSLError is one
            accepted.close()
            _log.debug("handshake_failed", reason=repr(error))
        except Exception:  # noqa: BLE001 - the task's outermost guard
            accepted.close()
            _log.exception("handshake_failed")


async def _bound(host: str, port: int) -> list[socket.socket]:
    """Listening at all addresses of the host that this system can have. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    with contextlib.ExitStack() as undo:
        bound = []
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                listening = socket.create_server(address, family=family, backlog=BACKLOG)
            except OSError as error:
                if error.errno == errno.EAFNOSUPPORT and len(found) > 1:
                    continue
                raise
            undo.callback(listening.close)
            listening.setblocking(False)
            bound.append(listening)
        undo.pop_all()
    return bound

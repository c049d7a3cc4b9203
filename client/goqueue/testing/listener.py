"""A broker's HTTP, on a free port of this machine: its sockets are real, and so is their time."""

from __future__ import annotations

import asyncio
import socket

from aiohttp import hdrs, web

from goqueue.blocking.loop_thread import LoopThread
from goqueue.local.engine import Ask
from goqueue.wire.errors import GoQueueError

HOST = "127.0.0.1"
_OWN = frozenset(
    {hdrs.CONTENT_LENGTH, hdrs.TRANSFER_ENCODING, hdrs.CONNECTION, hdrs.KEEP_ALIVE, hdrs.DATE}
)
"""Headers that are the connection's."""


class Listener:
    """Listens from `open` to `close`, in a thread of its own."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._thread = LoopThread()
        self._server: web.Server | None = None
        self._listener: asyncio.Server | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Where it listens, which it does when this returns."""
        if not self._url:
            self._url = self._thread.run(self._listen())
        return self._url

    def close(self) -> None:
        """Cut all connections. Idempotent."""
        if self._url:
            self._url = ""
            self._thread.run(self._leave())
            self._thread.stop()

    async def _listen(self) -> str:
        self._server = server = web.Server(self._serve, handler_cancellation=True)
        listening = socket.create_server((HOST, 0))
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(server, sock=listening)
        return f"http://{HOST}:{listening.getsockname()[1]}"

    async def _leave(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(0)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read()
        told = self._ask(request.method, request.raw_path, request.headers, body)
        try:
            answer = await asyncio.wrap_future(told)
        except GoQueueError:  # lost: as when a server is gone
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError from None
        headers = [(name, value) for name, value in answer.headers.items() if name not in _OWN]
        return web.Response(status=answer.status, headers=headers, body=answer.body)

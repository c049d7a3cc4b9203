"""The channel to servers: HTTP on connections of aiohttp's, which are kept for the next request."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import aiohttp

from goqueue.models.failures import Closed
from goqueue.transport.channel import Answer, Request, Streamed
from goqueue.transport.unreachable import connection_error, is_tls, speaks_tls
from goqueue.wire.errors import GoQueueError, OutcomeUnknown

CONNECT_TIMEOUT_S = 3.0
BROKEN = (aiohttp.ClientError, TimeoutError, OSError)


class HttpChannel:
    """Implements `Channel`. Opens connections when first used, on the running loop."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        connector: Callable[[], aiohttp.BaseConnector] | None = None,
    ) -> None:
        """`headers` go with every request. `connector` makes what connections come from: TCP, with
        `tls` where a server is asked by https, unless it is given."""
        self.servers = list(servers)
        self._headers = dict(headers or {})
        self._connector = connector or (lambda: aiohttp.TCPConnector(limit=0, ssl=tls or True))
        self._answered: set[str] = set()
        """The servers that have answered: they speak what they were spoken to in."""
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def connect(self) -> None:
        return None

    async def close(self) -> None:
        self._closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def ask(self, server: str, request: Request, timeout_s: float) -> Answer:
        try:
            async with self._open().request(
                request.method,
                server + request.path,
                params=request.params,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S)
                ),
            ) as response:
                answer = Answer(response.status, response.headers, await response.read())
        except BROKEN as error:
            raise await self._why(server, error) from error
        self._answered.add(server)
        return answer

    @asynccontextmanager
    async def stream(
        self, server: str, request: Request, quiet_s: float
    ) -> AsyncGenerator[Streamed, None]:
        try:
            response = await self._open().request(
                request.method,
                server + request.path,
                params=request.params,
                headers=request.headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=quiet_s
                ),
            )
        except BROKEN as error:
            raise await self._why(server, error) from error
        self._answered.add(server)
        try:
            yield _Streamed(server, response)
        finally:
            response.close()

    async def _why(self, server: str, error: Exception) -> GoQueueError:
        told = connection_error(server, error)
        is_new = server.startswith("http://") and server not in self._answered
        if isinstance(told, OutcomeUnknown) and is_new and await is_tls(server):
            return speaks_tls(server)
        return told

    def _open(self) -> aiohttp.ClientSession:
        if self._closed:
            raise Closed("the client is closed")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector(), headers=self._headers
            )
        return self._session


class _Streamed:
    """Implements `Streamed`."""

    def __init__(self, server: str, response: aiohttp.ClientResponse) -> None:
        self._server = server
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def pieces(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.content.iter_any():
                yield piece
        except BROKEN as error:
            raise connection_error(self._server, error) from error

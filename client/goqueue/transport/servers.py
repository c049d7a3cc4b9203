"""The channel to servers: HTTP on connections of aiohttp's, which are kept for the next request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import aiohttp

from goqueue.models.failures import Closed
from goqueue.transport.channel import Answer, Request, Socket, Streamed
from goqueue.transport.unreachable import connection_error, is_tls, speaks_tls
from goqueue.wire.errors import GoQueueError, OutcomeUnknown

CONNECT_TIMEOUT_S = 3.0
CLOSE_S = 6.0
"""So long the other side of a WebSocket has to close it, too. A node takes 5 s at most to give back
what it has leased."""
TEXT_BYTES_MAX = 256 * 1024 * 1024
"""More than any message comes to as JSON; a larger text ends its WebSocket."""
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
        self._upgrading: aiohttp.ClientSession | None = None
        """Its requests become WebSockets, and redirects end them."""
        self._closed = False

    async def connect(self) -> None:
        return None

    async def close(self) -> None:
        self._closed = True
        sessions = (self._session, self._upgrading)
        self._session = self._upgrading = None
        for session in sessions:
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

    @asynccontextmanager
    async def socket(
        self, server: str, request: Request, answer_s: float, quiet_s: float
    ) -> AsyncGenerator[Socket | Answer, None]:
        try:
            async with asyncio.timeout(answer_s):
                opened = await self._upgrade().ws_connect(
                    server + request.path,
                    params=request.params,
                    headers=request.headers,
                    heartbeat=quiet_s * 2 / 3,  # then a ping has half of that to be answered
                    max_msg_size=TEXT_BYTES_MAX,
                )
        except aiohttp.WSServerHandshakeError as error:
            self._answered.add(server)
            # 101 is of who says that it does, and does not.
            status = 400 if error.status < 300 else error.status
            yield Answer(status, error.headers or {}, b"")
            return
        except BROKEN as error:
            raise await self._why(server, error) from error
        self._answered.add(server)
        socket = _Socket(server, opened)
        try:
            yield socket
        finally:
            await socket.close()

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

    def _upgrade(self) -> aiohttp.ClientSession:
        if self._closed:
            raise Closed("the client is closed")
        if self._upgrading is None:
            redirects = aiohttp.TraceConfig()
            redirects.on_request_redirect.append(_not_followed)
            self._upgrading = aiohttp.ClientSession(
                connector=self._connector(), headers=self._headers, trace_configs=[redirects]
            )
        return self._upgrading


async def _not_followed(
    _session: aiohttp.ClientSession, _context: object, told: aiohttp.TraceRequestRedirectParams
) -> None:
    """No server of ours redirects, and a WebSocket is no exception to what requests do."""
    told.response.close()
    raise aiohttp.WSServerHandshakeError(
        told.response.request_info,
        told.response.history,
        status=told.response.status,
        headers=told.response.headers,
    )


class _Socket:
    """Implements `Socket`."""

    def __init__(self, server: str, opened: aiohttp.ClientWebSocketResponse) -> None:
        self._server = server
        self._opened = opened

    @property
    def close_code(self) -> int | None:
        return self._opened.close_code

    async def send(self, text: bytes) -> None:
        try:
            await self._opened.send_frame(text, aiohttp.WSMsgType.TEXT)
        except BROKEN as error:
            raise connection_error(self._server, error) from error

    async def receive(self) -> str | None:
        try:
            found = await self._opened.receive()
        except BROKEN as error:
            raise connection_error(self._server, error) from error
        if found.type is aiohttp.WSMsgType.TEXT:
            return str(found.data)
        if found.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSING):
            return None
        if isinstance(found.data, Exception):
            raise connection_error(self._server, found.data)
        raise OutcomeUnknown(f"{self._server} broke off", server=self._server)

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._opened.close()


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

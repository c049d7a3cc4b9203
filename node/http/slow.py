"""Connections that can't hold the server: deadlines, caps, and errors in our own shape.

aiohttp reads and writes; this adds what it leaves open. A client must finish its headers within a
deadline, must take its answer, and must not open connections without bound. The body's rate is
watched by `node.http.body`, which knows how much has arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp.web import BaseRequest, RequestHandler, Server, StreamResponse

from goqueue.wire.errors import BadRequest, GoQueueError, ServerError, Unavailable
from node.http.budgets import Held
from node.http.errors import RequestTimeout, encode_error, error_answer
from node.http.handshakes import Handshakes
from node.http.limits import HttpLimits

SWEEP_S = 0.5
READ_CHUNK_BYTES = 2**18

_REASONS = {408: "Request Timeout", 503: "Service Unavailable"}


class Connection(RequestHandler):
    """One client connection, with what its deadlines need to know."""

    __slots__ = (
        "_held",
        "_hung_up",
        "_limits",
        "address",
        "headers_since_s",
        "stalled_since_s",
        "taken_by_s",
    )

    def __init__(self, server: FrontServer, limits: HttpLimits) -> None:
        super().__init__(
            server,
            loop=server.loop,
            keepalive_timeout=limits.keepalive_s,
            access_log=None,  # type: ignore[arg-type]  # None turns it off
            max_field_size=limits.header_field_bytes_max,
            max_line_size=limits.header_field_bytes_max,
            max_headers=limits.headers_max,
            lingering_time=limits.lingering_s,
            read_bufsize=READ_CHUNK_BYTES,
            auto_decompress=False,
        )
        self.address = ""
        self.headers_since_s = 0.0
        self.stalled_since_s = 0.0
        self.taken_by_s = 0.0
        """When the client must have taken the next piece of its answer; 0 while none is sent."""
        self._limits = limits
        self._held: list[Held] = []
        self._hung_up: asyncio.Future[None] | None = None

    def hold(self, held: Held) -> None:
        """Give this back once the answer is sent, or nobody is there to take it."""
        if held not in self._held:
            self._held.append(held)

    def took(self, size: int) -> None:
        """The client has taken so much of its answer."""
        limits = self._limits
        if not self.taken_by_s:
            self.taken_by_s = self._loop.time() + limits.write_stall_s
        self.taken_by_s += size / limits.answer_bytes_per_s_min

    def let_go(self) -> None:
        """The answer is sent, or never will be."""
        self.taken_by_s = 0.0
        while self._held:
            self._held.pop().release()

    async def finish_response(
        self, request: BaseRequest, resp: StreamResponse, start_time: float | None
    ) -> tuple[StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self.let_go()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.headers_since_s = self._loop.time()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        if self._hung_up is not None and not self._hung_up.done():
            self._hung_up.set_result(None)

    def hung_up(self) -> asyncio.Future[None]:
        """Done once the client is gone. It is shared: don't cancel it."""
        if self._hung_up is None:
            self._hung_up = self._loop.create_future()
            if self.transport is None:
                self._hung_up.set_result(None)
        return self._hung_up

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages or self._request_in_progress:
            self.headers_since_s = 0.0
        elif not self.headers_since_s and self._waiter is not None:
            self.headers_since_s = self._loop.time()  # idle until now: a request begins

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> StreamResponse:
        """What the HTTP parser refused (400), and what escaped the front (500)."""
        if isinstance(exc, ConnectionError):  # it is gone: nobody is left to tell, nor at fault
            raise exc
        if request.writer.output_size > 0:
            raise ConnectionError("part of another answer was sent already")
        error: GoQueueError
        if status < 500:
            text = " ".join((message or "malformed HTTP").split())
            error = BadRequest(f"malformed HTTP request: {text[:200]}")
        else:
            self.logger.error("request failed outside its handler", exc_info=exc)
            error = ServerError()
        answer = error_answer(error)
        answer.force_close()
        return answer

    def refuse(self, error: GoQueueError) -> None:
        """Say why and hang up; what the client does not take is dropped."""
        transport = self.transport
        if transport is not None:
            body = encode_error(error.to_body())
            head = (
                f"HTTP/1.1 {error.http_status} {_REASONS[error.http_status]}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n"
            )
            transport.write(head.encode() + body)
        self.force_close()

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class FrontServer(Server):
    """Makes connections within the caps and sweeps the overdue ones away."""

    def __init__(
        self,
        handler: Callable[[BaseRequest], Awaitable[StreamResponse]],
        limits: HttpLimits,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(handler, loop=loop)
        self.loop = loop
        self._limits = limits
        self._per_address: Counter[str] = Counter()
        self.handshakes = Handshakes()
        """Of those that are no connections yet; in no other count."""

    def __call__(self) -> Connection:
        return Connection(self, self._limits)

    @property
    def open_count(self) -> int:
        """Connections from accept on, also those whose TLS is not done."""
        return len(self._connections) + len(self.handshakes)

    def count_from(self, address: str) -> int:
        """As `open_count`, from one address."""
        return self._per_address[address] + self.handshakes.count_from(address)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        assert isinstance(handler, Connection)
        self.handshakes.end(handler)
        peer = transport.get_extra_info("peername")
        handler.address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._per_address[handler.address] += 1
        limits = self._limits
        if (
            len(self._connections) > limits.connections_max
            or self._per_address[handler.address] > limits.connections_per_address_max
        ):
            self.loop.call_soon(handler.refuse, Unavailable("too many connections"))

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        assert isinstance(handler, Connection)
        self._per_address[handler.address] -= 1
        if not self._per_address[handler.address]:
            del self._per_address[handler.address]
        super().connection_lost(handler, exc)

    async def sweep_forever(self) -> None:
        """Runs until cancelled; the front owns the task."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.sweep(self.loop.time())

    def sweep(self, now_s: float) -> None:
        """Cut connections whose headers or whose taking of an answer is overdue."""
        limits = self._limits
        for connection in self.connections:
            assert isinstance(connection, Connection)
            since = connection.headers_since_s
            if since and now_s - since > limits.header_deadline_s:
                with contextlib.suppress(RuntimeError):  # the transport is closing already
                    connection.refuse(RequestTimeout("headers did not arrive in time"))
            if not connection.writing_paused:
                connection.stalled_since_s = 0.0
                continue
            connection.stalled_since_s = connection.stalled_since_s or now_s
            is_stalled = now_s - connection.stalled_since_s > limits.write_stall_s
            if is_stalled or 0 < connection.taken_by_s < now_s:
                connection.abort()

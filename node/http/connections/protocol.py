"""Connections that can't hold the server: deadlines, caps, and errors in our own shape.

aiohttp reads and writes; this adds what it leaves open. A client must finish its headers within a
deadline, must take its answer, and must not open connections without bound. The body's rate is
watched by `node.http.request.body`, which knows how much has arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import cast

from aiohttp import StreamReader
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web import BaseRequest, RequestHandler, Server, StreamResponse
from aiohttp.web_protocol import _ErrInfo
from aiohttp.web_ws import WebSocketResponse

from goqueue.wire.errors import BadRequest, GoQueueError, OverBudget, ServerError, Unavailable
from node.api.auth.hosts import bucket
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Budgets, Held
from node.http.connections.arrivals import (
    HEAD_END,
    Arrivals,
    Piece,
    head_cost,
    head_size,
    rest_after,
)
from node.http.connections.crowd import Crowd
from node.http.text.errors import HeadTooLarge, RequestTimeout, encode_error, error_answer

SWEEP_S = 0.5
STREAM_SWEEPS = 4
"""Streams are looked at in each fourth sweep: they are the many, and none of theirs that is due is
so within seconds."""
READ_CHUNK_BYTES = 2**18
UNSENT_BYTES_MAX = 2**14
"""Of one connection: beyond it writers wait. What is less is charged to nobody once the answer is
written: 128 MiB of as many connections as there may be."""

PING = b"\x89\x00"
"""A whole frame, with nothing in it (RFC 6455, 5.5.2)."""
PONG_HEAD, PONG_BYTES = b"\x8a\x80", 6
"""The answer to it: masked, as all that clients send is."""

_REASONS = {408: "Request Timeout", 429: "Too Many Requests", 503: "Service Unavailable"}


class Connection(RequestHandler):
    """One client connection, with what its deadlines need to know."""

    __slots__ = (
        "_head_bytes_max",
        "_held",
        "_hung_up",
        "_in_hand",
        "_is_chunked",
        "_is_refused",
        "_is_whole",
        "_limits",
        "_payload",
        "_unparsed",
        "_wire",
        "address",
        "arrivals",
        "frame_bytes",
        "headers_since_s",
        "heard_s",
        "is_known",
        "is_leaving",
        "overfull",
        "server",
        "stalled_since_s",
        "taken_by_s",
        "unsent_seen_bytes",
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
        self.server = server
        self.address = ""
        """Of an IPv6 site, its /64."""
        self.headers_since_s = 0.0
        self.stalled_since_s = 0.0
        self.taken_by_s = 0.0
        """When the client must have taken the next piece of its answer; 0 while none is sent."""
        self.unsent_seen_bytes = 0
        """What `unsent_bytes` was when the sweep came by."""
        self._wire: asyncio.WriteTransport | None = None
        """As `transport`, which is forgotten once it is to close: that may take what is unsent."""
        self._limits = limits
        self._held: list[Held] = []
        self.is_known = False
        """Whether its client has shown that it may come in."""
        self.is_leaving = False
        """Cut to make room, and counted no longer."""
        self.arrivals = Arrivals(server.budgets, "", self)
        self._head_bytes_max = limits.head_bytes_max
        self._payload: StreamReader = EMPTY_PAYLOAD
        """Of the request that arrived last."""
        self._is_chunked = False
        self._unparsed = 0
        """Bytes that the parser keeps while it is paused, and for what it keeps of them then."""
        self._in_hand = 0
        """Bytes of a body that were read, and wait for room."""
        self._is_whole = True
        """Whether they end with the end of a head."""
        self._is_refused = False
        self._hung_up: asyncio.Future[None] | None = None
        self.heard_s = self._loop.time()
        """Of a WebSocket, when something arrived last."""
        self.frame_bytes = 0
        """Of frames of a WebSocket that have arrived and were not read."""
        self.overfull: Callable[[OverBudget], None] | None = None
        """Is told where there is no room for more of them."""

    def hold(self, held: Held) -> None:
        """Give this back once the answer is sent, or nobody is there to take it."""
        if held not in self._held:
            self._held.append(held)

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def took(self, size: int) -> None:
        """The client has taken so much of its answer."""
        limits = self._limits
        if not self.taken_by_s:
            self.taken_by_s = self._loop.time() + limits.write_stall_s
        self.taken_by_s += size / limits.answer_bytes_per_s_min

    def went_on(self) -> None:
        """The client has taken some of an answer without end."""
        self.stalled_since_s = 0.0

    def waited(self, seconds: float) -> None:
        """The client had to wait for the next piece: that is not its time."""
        self.taken_by_s += seconds

    async def is_taken(self) -> None:
        """Return when no more than `UNSENT_BYTES_MAX` is unsent. Raises ConnectionError."""
        if self.writing_paused:
            await self._drain_helper()

    def let_go(self) -> None:
        """The answer is sent, or never will be."""
        self.taken_by_s = 0.0
        while self._held:
            self._held.pop().release()

    async def finish_response(
        self, request: BaseRequest, resp: StreamResponse, start_time: float | None
    ) -> tuple[StreamResponse, bool]:
        try:
            if isinstance(resp, WebSocketResponse):  # what is sent behind the request is frames
                try:
                    await resp.prepare(request)
                except ConnectionError:
                    return resp, True
            return await super().finish_response(request, resp, start_time)
        finally:
            self.let_go()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._wire = cast("asyncio.WriteTransport", transport)
        self._wire.set_write_buffer_limits(UNSENT_BYTES_MAX)
        self.headers_since_s = self._loop.time()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._wire = None
        self.arrivals.release()
        if self._hung_up is not None and not self._hung_up.done():
            self._hung_up.set_result(None)

    def come_from(self, transport: asyncio.Transport) -> None:
        peer = transport.get_extra_info("peername")
        self.address = bucket(str(peer[0])) if isinstance(peer, tuple) else ""
        self.arrivals = Arrivals(self.server.budgets, self.address, self)

    def hung_up(self) -> asyncio.Future[None]:
        """Done once the client is gone. It is shared: don't cancel it."""
        if self._hung_up is None:
            self._hung_up = self._loop.create_future()
            if self.transport is None:
                self._hung_up.set_result(None)
        return self._hung_up

    @property
    def is_reading_paused(self) -> bool:
        """Whether what the client sends waits until what came before is read."""
        return self._reading_paused or self._buffer_paused

    def frame_read(self, size: int) -> None:
        """A frame of a WebSocket with so much in it was read."""
        head = 6 if size < 126 else 8 if size < 1 << 16 else 14
        self.frame_bytes = max(0, self.frame_bytes - size - head)
        self.settle()

    @property
    def is_stream(self) -> bool:
        """Whether it is a WebSocket by now."""
        return self._payload_parser is not None

    @property
    def is_still(self) -> bool:
        """Whether nothing is on its way in either direction, nor was when the sweep came by: most
        connections of streams that wait are."""
        return not (
            self.headers_since_s
            or self.stalled_since_s
            or self.taken_by_s
            or self.unsent_seen_bytes
            or self.writing_paused
            or self.arrivals.is_charged
            or self.unsent_bytes
        )

    def ping(self) -> None:
        """Ask the client of a WebSocket for a sign of life. Never waits."""
        if self.transport is not None:
            self.transport.write(PING)

    def _frames_arrive(self, data: bytes) -> None:
        self.heard_s = self._loop.time()
        if len(data) == PONG_BYTES and not self.frame_bytes and data.startswith(PONG_HEAD):
            return  # that is all it says: who waits for frames is not woken for it
        self.frame_bytes += len(data)
        try:
            self.arrivals.unread(self.frame_bytes)
        except OverBudget as error:
            self._is_refused = True
            if self.overfull is not None:
                self.overfull(error)
            return
        super().data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        if self._payload_parser is not None:
            self._frames_arrive(data)
            return
        count, payload = self._request_count, self._payload
        in_body, is_chunked = not payload.is_eof(), self._is_chunked
        body_bytes = payload.total_bytes
        begins_anew = not in_body and not self.arrivals.head_bytes and not self._unparsed
        super().data_received(data)
        new = self._request_count - count
        body_size = payload.total_bytes - body_bytes if in_body else 0
        try:
            if new and self.arrivals.head_bytes + len(data) + self._unparsed > self._head_bytes_max:
                self._measure(new)
            if not self._is_refused:
                pieces: list[Piece] = []
                if in_body and payload.is_eof():
                    pieces.append(Piece(body_size, is_chunked, has_head=False))
                self._count_head(data, new, pieces)
            parsed = 0 if new else body_size
            if new == 1 and begins_anew and not self._payload.is_eof():
                parsed = data.find(HEAD_END) + len(HEAD_END) + self._payload.total_bytes
            self._note_unparsed(data, parsed)
            self.arrivals.unread(self._unread_bytes())
        except (OverBudget, HeadTooLarge) as error:
            self._turn_away(error)
        if self._messages or self._request_in_progress:
            self.headers_since_s = 0.0
            self.server.crowd.idle.remove(self)
        elif not self.headers_since_s and self._waiter is not None:
            self.headers_since_s = self._loop.time()  # idle until now: a request begins

    def end(self) -> None:
        """A request was handled."""
        if not (self.is_known or self._messages or self.transport is None):
            self.server.crowd.idle.add(self, self.address)
        self.settle()

    def settle(self) -> None:
        """What was read of bodies is given back."""
        if self.arrivals.is_charged:
            with contextlib.suppress(OverBudget):  # it shrinks
                self.arrivals.unread(self._unread_bytes())

    def have_in_hand(self, size: int) -> None:
        """So much was read of a body, and is not charged to who sends it: it counts as unread."""
        self._in_hand = size
        if size or self.arrivals.is_charged:
            with contextlib.suppress(OverBudget):  # as much was charged just now
                self.arrivals.unread(self._unread_bytes())

    def _count_head(self, data: bytes, new: int, pieces: list[Piece]) -> None:
        """How much there is of a head that is not done. Raises OverBudget, HeadTooLarge."""
        arrivals = self.arrivals
        for message, payload in islice(self._messages, len(self._messages) - new, None):
            self._payload = payload
            self._is_chunked = getattr(message, "chunked", False)
            pieces.append(Piece(payload.total_bytes, self._is_chunked))
        if not self._payload.is_eof() or self._keeps_some:
            arrivals.head_is_done()
            return
        if pieces:
            data = data[rest_after(data, pieces, arrivals.tail) :]
            arrivals.head_is_done()
        if data:
            arrivals.head_goes_on(data)
            if arrivals.head_bytes > self._head_bytes_max:
                raise HeadTooLarge(self._head_bytes_max)

    @property
    def _keeps_some(self) -> bool:
        """Whether the parser has paused: for an unread body, or with as many requests as wait."""
        return self._reading_paused or len(self._messages) >= self._max_msg_queue_size

    def _note_unparsed(self, data: bytes, parsed: int) -> None:
        """While the parser is paused it keeps what was received last; a head that ends within that
        is not told of once it goes on. `parsed`: at least so much was done with just now."""
        if data and self._keeps_some:
            self._unparsed, self._is_whole = len(data) - parsed, data.endswith(HEAD_END)
        elif data or (self._is_whole and not self._keeps_some):
            self._unparsed = 0
        else:
            self._unparsed = max(0, self._unparsed - parsed)

    def _measure(self, new: int) -> None:
        """Refuse the first of the new requests whose head is too large, and all after it."""
        first = len(self._messages) - new
        for at, (message, _) in enumerate(islice(self._messages, first, None), first):
            if head_size(message) > self._head_bytes_max:
                while len(self._messages) > at:
                    self._messages.pop()
                self._answer_instead(HeadTooLarge(self._head_bytes_max))
                return

    def _turn_away(self, error: GoQueueError) -> None:
        """There is no room for more of what arrives."""
        if self._payload.is_eof():
            self._answer_instead(error)
        elif self._messages:
            self._messages.pop()  # the request has not begun
            self._answer_instead(error)
        else:
            self.refuse(error)

    def _answer_instead(self, error: GoQueueError) -> None:
        """As the last answer, after those to requests that came before."""
        self._is_refused = True
        self._payload = EMPTY_PAYLOAD
        self.arrivals.head_is_done()
        self._messages.append((_ErrInfo(error.http_status, error, error.message), EMPTY_PAYLOAD))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _unread_bytes(self) -> int:
        """Of bodies, of requests that wait for their turn, and of what is not parsed yet."""
        size = len(self._message_tail) + self._unparsed + self._in_hand + self.frame_bytes
        is_behind = self._request_in_progress or len(self._messages) > 1
        for message, payload in self._messages:
            size += getattr(payload, "_size", 0) + (head_cost(message) if is_behind else 0)
        if self._current_request is not None:
            size += getattr(self._current_request.content, "_size", 0)
        return size

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
        if isinstance(exc, GoQueueError):
            error = exc
        elif status < 500:
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

    @property
    def unsent_bytes(self) -> int:
        """What was written and the system has not taken."""
        return 0 if self._wire is None else self._wire.get_write_buffer_size()

    def abort(self) -> None:
        if self._wire is not None:
            self._wire.abort()


class FrontServer(Server):
    """Makes connections within the caps of the crowd, and sweeps the overdue ones away."""

    def __init__(
        self,
        handler: Callable[[BaseRequest], Awaitable[StreamResponse]],
        limits: HttpLimits,
        loop: asyncio.AbstractEventLoop,
        budgets: Budgets,
        crowd: Crowd | None = None,
    ) -> None:
        super().__init__(handler, loop=loop)
        self.loop = loop
        self.budgets = budgets
        self.crowd = crowd or Crowd(limits)
        """Of all listeners of this node."""
        self._limits = limits

    def __call__(self) -> Connection:
        return Connection(self, self._limits)

    def connection_made(self, handler: RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        assert isinstance(handler, Connection)
        handler.come_from(transport)
        if not self.crowd.enter(handler):
            self.loop.call_soon(handler.refuse, Unavailable("too many connections"))

    def connection_lost(self, handler: RequestHandler, exc: BaseException | None = None) -> None:
        assert isinstance(handler, Connection)
        self.crowd.leave(handler)
        super().connection_lost(handler, exc)

    async def sweep_forever(self) -> None:
        """Runs until cancelled; the front owns the task."""
        sweeps = 0
        while True:
            await asyncio.sleep(SWEEP_S)
            sweeps += 1
            self.sweep(self.loop.time(), streams=sweeps % STREAM_SWEEPS == 0)

    def sweep(self, now_s: float, *, streams: bool = True) -> None:
        """Cut connections whose headers or whose taking of an answer is overdue, also of one that
        is written, or that nothing follows; of `streams` only if that is said."""
        limits = self._limits
        for connection in self.connections:
            assert isinstance(connection, Connection)
            if (connection.is_stream and not streams) or connection.is_still:
                continue
            connection.settle()
            since = connection.headers_since_s
            if since and now_s - since > limits.header_deadline_s:
                with contextlib.suppress(RuntimeError):  # the transport is closing already
                    connection.refuse(RequestTimeout("headers did not arrive in time"))
            unsent, seen = connection.unsent_bytes, connection.unsent_seen_bytes
            connection.unsent_seen_bytes = unsent
            if not (connection.writing_paused or (unsent and unsent == seen)):
                connection.stalled_since_s = 0.0
                continue
            connection.stalled_since_s = connection.stalled_since_s or now_s
            is_stalled = now_s - connection.stalled_since_s > limits.write_stall_s
            if is_stalled or 0 < connection.taken_by_s < now_s:
                connection.abort()

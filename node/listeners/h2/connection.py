"""One client's connection: its requests, each in a task of its own, and what they wait for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from h2.errors import ErrorCodes

from goqueue.background import TaskSet
from goqueue.wire.errors import BadRequest, GoQueueError, OverBudget
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Budgets, Kind, Owner
from node.http.text.errors import RequestTimeout, encode_error
from node.listeners.h2.bounds import H2Bounds
from node.listeners.h2.exchange import Exchange
from node.listeners.h2.fields import Fields
from node.listeners.h2.frame_checks import Broken
from node.listeners.h2.heads import Head, head_of
from node.listeners.h2.multiplexer import (
    PREFACE,
    Asked,
    Came,
    Eased,
    Ended,
    Gone,
    Left,
    Multiplexer,
    Told,
)

PIECE_BYTES = 1 << 14
"""Of what has arrived, between which others have their turn."""

log = logging.getLogger(__name__)


class Wire(Protocol):
    """A socket: `node.listeners.wire`."""

    partial_since_s: float

    async def read(self) -> bytes: ...

    def send(self, data: bytes) -> None: ...

    async def drained(self) -> None: ...

    def end_reading(self) -> None: ...

    def abort(self) -> None: ...

    @property
    def unsent_bytes(self) -> int: ...

    @property
    def has_unread(self) -> bool: ...

    @property
    def is_waiting(self) -> bool: ...

    @property
    def owner(self) -> Owner: ...


class NotHttp2(BadRequest):
    """A client speaks another protocol."""

    code = "not_http2"
    text = (
        "this port speaks HTTP/2 only: over TLS a client asks for h2 (ALPN), without it begins"
        " with HTTP/2's preface (curl --http2-prior-knowledge)"
    )


class Connection:
    """Of one client; `run` it once. Loop thread only. It is its exchanges' `Line`."""

    def __init__(
        self,
        wire: Wire,
        serve: Callable[[Exchange], Awaitable[None]],
        limits: HttpLimits,
        bounds: H2Bounds,
        budgets: Budgets,
    ) -> None:
        """`serve` answers one request; what it raises but ConnectionError is a fault."""
        self._wire = wire
        self._serve = serve
        self._limits = limits
        self._bounds = bounds
        self._budgets = budgets
        self._owner = replace(wire.owner, connection=self)
        self._frames = Multiplexer(bounds)
        self._exchanges: dict[int, Exchange] = {}
        self._fields: Fields = ()
        self._head: Head | None = None
        self._tasks = TaskSet("node", "h2_request_failed")
        self._loop = asyncio.get_running_loop()
        self._is_flushing = False
        self._is_leaving = False
        self._is_over = False
        self._unsent_bytes = 0
        self._pinged_s = 0.0
        self.heard_s = self._idle_since_s = self._loop.time()

    def __len__(self) -> int:
        """Requests under way."""
        return len(self._exchanges)

    async def run(self) -> None:
        """Serve the client until one of both ends it. Raises ConnectionError, and a cancellation,
        which is the node's: it stops."""
        try:
            self._wire.partial_since_s = self._loop.time()
            data = await self._preface()
            while data:
                for at in range(0, len(data), PIECE_BYTES):
                    if at:
                        await asyncio.sleep(0)
                    self._receive(data[at : at + PIECE_BYTES])
                    if self._is_over:
                        return
                await self._wire.drained()
                data = await self._wire.read()
                self.heard_s = self._loop.time()
        except OverBudget as error:
            self._end(ErrorCodes.ENHANCE_YOUR_CALM, error.message)
        finally:
            for exchange in list(self._exchanges.values()):
                exchange.gone()
            try:
                await self._tasks.settled()
            finally:
                await self._tasks.stop()

    def look(self, now_s: float) -> None:
        """From time to time, some ten times within `stream_silence_s`: cut off what is overdue, and
        a client that is gone without a word."""
        for exchange in list(self._exchanges.values()):
            if 0 < exchange.taken_by_s < now_s:
                self.reset(exchange.stream, ErrorCodes.ENHANCE_YOUR_CALM)
                exchange.gone()
            elif 0 < exchange.arrives_by_s < now_s and not self._arrives(exchange, now_s):
                exchange.fail(RequestTimeout("the body arrives too slowly"))
            elif exchange.lasting is not None:
                exchange.lasting.look(now_s)
        if self._exchanges:
            self._look_for_life(now_s)
        elif now_s - self._idle_since_s > self._limits.keepalive_s:
            self._go("nothing was asked for a while")

    def begin_stop(self) -> None:
        """Answers that last end."""
        for exchange in list(self._exchanges.values()):
            if exchange.lasting is not None:
                exchange.lasting.stop()

    def leave(self) -> None:
        """Close once nothing is under way; what is asked from now on is not done. Idempotent."""
        self._is_leaving = True
        if not self._exchanges:
            self._go("this node stops")

    # as exchanges use it

    def abort(self) -> None:
        """End it now, whatever is under way."""
        self._wire.abort()

    def room(self, stream: int) -> int:
        return self._frames.room(stream)

    async def drained(self) -> None:
        await self._wire.drained()

    def begin(self, stream: int, fields: list[tuple[bytes, bytes]], *, is_last: bool) -> None:
        self._frames.begin(stream, fields, is_last=is_last)
        self._soon()

    def send(self, stream: int, data: bytes | memoryview, *, is_last: bool) -> None:
        self._frames.send(stream, data, is_last=is_last)
        self._soon()

    def took(self, stream: int, size: int) -> None:
        if not self._is_over:
            self._frames.took(stream, size)
            self._soon()

    def reset(self, stream: int, code: ErrorCodes) -> None:
        if not self._is_over:
            self._frames.reset(stream, code)
            self._soon()

    def earn(self) -> None:
        """See `Multiplexer.earn`."""
        self._frames.earn()

    # private

    async def _preface(self) -> bytes:
        """What has come once the preface is here; b"" where it never will be."""
        data = b""
        while len(data) < len(PREFACE):
            piece = await self._wire.read()
            data += piece
            if not piece or not PREFACE.startswith(data[: len(PREFACE)]):
                if data:
                    self._refuse_other_protocol()
                return b""
        return data

    def _refuse_other_protocol(self) -> None:
        body = encode_error(NotHttp2().to_body())
        head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self._wire.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def _receive(self, data: bytes) -> None:
        try:
            for told in self._frames.receive(data, self._loop.time()):
                self._take(told)
        except Broken as error:
            log.debug("h2_connection_ended", extra={"problem": error.message})
            self._end(error.goaway, error.message)
            return
        self._wire.partial_since_s = self._frames.partial_since_s
        self._flush()

    def _take(self, told: Told) -> None:
        if isinstance(told, Asked):
            self._ask(told)
        elif isinstance(told, Left):
            self._end(ErrorCodes.NO_ERROR, "")
        elif isinstance(told, Eased) and not told.stream:
            for exchange in self._exchanges.values():
                exchange.ease()
        else:
            self._pass_on(told, self._exchanges.get(told.stream))

    def _pass_on(self, told: Came | Ended | Gone | Eased, exchange: Exchange | None) -> None:
        """To its exchange, which may be over."""
        if exchange is None:
            if isinstance(told, Came):
                self._frames.took(told.stream, told.size)
        elif isinstance(told, Came):
            exchange.came(told.data, told.size)
        elif isinstance(told, Ended):
            exchange.ended()
        elif isinstance(told, Gone):
            exchange.gone()
        else:
            exchange.ease()

    def _ask(self, asked: Asked) -> None:
        if self._is_leaving or len(self._exchanges) >= self._bounds.streams_max:
            self._frames.reset(asked.stream, ErrorCodes.REFUSED_STREAM)
            return
        limits = self._limits
        exchange = Exchange(
            asked.stream,
            self._head_of(asked.fields),
            self,
            self._budgets.hold(Kind.BODIES, self._owner),
            limits.write_stall_s,
            limits.answer_bytes_per_s_min,
        )
        self._exchanges[asked.stream] = exchange
        self._tasks.begin(self._served(exchange), "h2-request")

    def _head_of(self, fields: Fields) -> Head | GoQueueError:
        """Most often it is the one before."""
        if fields != self._fields or self._head is None:
            limits = self._limits
            try:
                head = head_of(fields, limits.head_bytes_max, limits.headers_max)
            except GoQueueError as error:
                return error
            self._fields, self._head = fields, head
        return self._head

    async def _served(self, exchange: Exchange) -> None:
        try:
            await self._serve(exchange)
        except ConnectionError:
            pass
        except Exception:
            log.exception("request failed")
        finally:
            exchange.close()
            del self._exchanges[exchange.stream]
            self._idle_since_s = self._loop.time()
            self._soon()
            if self._is_leaving and not self._exchanges:
                self._go("this node stops")

    def _arrives(self, exchange: Exchange, now_s: float) -> bool:
        """Whether a body comes fast enough, on average."""
        limits = self._limits
        due_s = limits.body_grace_s + exchange.received_bytes / limits.body_bytes_per_s_min
        return now_s - exchange.began_s <= due_s

    def _look_for_life(self, now_s: float) -> None:
        """What the client takes, and what it sends, also where it is not read, are signs of it."""
        unsent = self._wire.unsent_bytes
        if unsent < self._unsent_bytes or self._wire.has_unread:
            self.heard_s = now_s
        self._unsent_bytes = unsent
        silent_s, most_s = now_s - self.heard_s, self._limits.stream_silence_s
        is_deaf = self._wire.is_waiting or self._is_over
        if silent_s >= most_s:
            self._wire.abort()
        elif silent_s >= most_s / 2 and self._pinged_s <= self.heard_s and not is_deaf:
            self._pinged_s = now_s
            self._frames.ping()
            self._soon()

    def _end(self, code: int, text: str) -> None:
        """The last that is said; what is read next is the end."""
        if self._is_over:
            return
        self._frames.end(code, text)
        self._flush()
        self._is_over = True

    def _go(self, text: str) -> None:
        """The connection ends in order, whoever waits for what."""
        self._end(ErrorCodes.NO_ERROR, text)
        self._wire.end_reading()

    def _soon(self) -> None:
        """What is said in this turn of the loop goes together."""
        if not (self._is_flushing or self._is_over):
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        data = b"" if self._is_over else self._frames.output()
        if not data:
            return
        try:
            self._wire.send(data)
        except ConnectionError:
            self._is_over = True
        except OverBudget:
            self._is_over = True
            self._wire.abort()

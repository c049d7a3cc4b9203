"""The port for HTTP/2, and what becomes of each request that comes by it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial

from h2.errors import ErrorCodes

from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, Unavailable
from node.http.budget.memory import Kind, Reserved
from node.http.text.errors import error_answer
from node.listeners.connections import Connections
from node.listeners.h2 import publishing
from node.listeners.h2.bounds import H2Bounds
from node.listeners.h2.connection import Connection
from node.listeners.h2.exchange import Exchange
from node.listeners.h2.heads import OPERATIONS, Asks, Head, Wanted, wanted_of
from node.listeners.h2.multiplexer import Multiplexer
from node.listeners.h2.subscription import Subscription
from node.listeners.parts import ListenerParts, Tls
from node.listeners.requests import Caller, Observed, Requests
from node.listeners.topics import MINIQUEUE_SETTINGS, ensure_topic
from node.listeners.wire import Wire

PROTOCOL = "h2"
UNMATCHED = "unmatched"
"""What is none of what may be asked, as metrics name it."""
LOOK_S = 1.0
"""How often connections are looked after; more often where silence is short: a tenth of it."""


class H2Listener:
    """Serves miniqueue's API over HTTP/2, with TLS or without it. A `Listener`."""

    def __init__(
        self,
        parts: ListenerParts,
        host: str,
        port: int,
        tls: Tls | None = None,
        bounds: H2Bounds | None = None,
    ) -> None:
        self._parts = parts
        self._host = host
        self._asked_port = port
        self._bounds = bounds or H2Bounds()
        self._requests = Requests(PROTOCOL, parts)
        own = None if tls is None else replace(tls, context=tls.for_h2)
        self._connections = Connections(PROTOCOL, parts, self._serve, _refused, own)
        self._open: set[Connection] = set()
        self._tasks = TaskSet("node", "h2_failed")
        self._left = asyncio.Event()
        """A connection was."""
        self._is_leaving = False

    @property
    def port(self) -> int:
        return self._connections.port

    async def start(self) -> None:
        await self._connections.start(self._host, self._asked_port)
        self._tasks.begin(self._look_after(), "h2-look")
        self._tasks.begin(self._watch_stopping(), "h2-stopping")

    async def stop(self) -> None:
        self._begin_stop()
        self._is_leaving = True
        for connection in list(self._open):
            connection.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._parts.limits.drain_s):
                while self._open:
                    self._left.clear()
                    await self._left.wait()
        for connection in list(self._open):
            connection.abort()
        await self._connections.stop()
        await self._tasks.stop()

    def look(self, now_s: float) -> None:
        """Look after all connections, as if it was so late by the loop's clock."""
        for connection in list(self._open):
            connection.look(now_s)

    # private

    async def _serve(self, wire: Wire) -> None:
        if self._is_leaving:
            return
        parts = self._parts
        answer = partial(self._answer, wire)
        connection = Connection(wire, answer, parts.limits, self._bounds, parts.budgets)
        self._open.add(connection)
        try:
            await connection.run()
        finally:
            self._open.discard(connection)
            self._left.set()

    async def _watch_stopping(self) -> None:
        await self._parts.stopping.wait()
        self._begin_stop()

    def _begin_stop(self) -> None:
        """Subscriptions end, and give back."""
        for connection in list(self._open):
            connection.begin_stop()

    async def _look_after(self) -> None:
        loop = asyncio.get_running_loop()
        look_s = min(LOOK_S, self._parts.limits.stream_silence_s / 10)
        while True:
            await asyncio.sleep(look_s)
            self.look(loop.time())

    async def _answer(self, wire: Wire, exchange: Exchange) -> None:
        """One request. Raises ConnectionError."""
        caller = self._requests.caller(wire.peer, exchange)
        wanted = _wanted(exchange)
        name, operation, target = UNMATCHED, "", ""
        if isinstance(wanted, Wanted):
            name, operation, target = wanted.asks.value, OPERATIONS[wanted.asks], wanted.topic
        answer: tuple[int, dict[str, str]] | None = None
        try:
            with self._requests.observed(caller, name, operation, target) as seen:
                if isinstance(wanted, GoQueueError):
                    raise wanted
                assert isinstance(exchange.head, Head)
                caller.token = exchange.head.token
                await self._requests.admit(caller, operation, wanted.topic)
                exchange.is_of(caller.owner.holder)
                if caller.principal is not None or not self._parts.admission.is_locked:
                    wire.is_known()
                if wanted.asks is Asks.PUBLISH:
                    answer = await self._publish(exchange, caller, wanted, seen)
                elif wanted.asks is Asks.DELETE:
                    answer = await self._delete(caller, wanted)
                else:
                    await self._subscribe(exchange, caller, wanted)
        except GoQueueError as error:
            told = error_answer(error)
            exchange.begin(told.status, dict(told.headers))
            assert isinstance(told.body, bytes)
            await exchange.say(told.body, is_last=True)
            return
        if answer is not None:
            exchange.begin(*answer, is_last=True)

    async def _publish(
        self, exchange: Exchange, caller: Caller, wanted: Wanted, seen: Observed
    ) -> tuple[int, dict[str, str]]:
        assert isinstance(exchange.head, Head)
        topic, trace, limits = wanted.topic, exchange.head.trace, self._parts.limits
        await ensure_topic(caller.broker, topic)
        bytes_max = min(
            publishing.value_bytes_max(caller.broker, topic), self._parts.limits.body_bytes_max
        )
        announced = exchange.head.body_bytes or 0
        if announced > bytes_max:
            raise publishing.too_large(announced, bytes_max)
        with Reserved(await self._requests.room(caller, Kind.BODIES, announced)) as held:
            exchange.hurry(limits.body_grace_s)
            value = await publishing.whole_body(exchange, bytes_max, held)
            partition, offset = await publishing.append(self._requests, caller, topic, value, trace)
        seen.tell_span("publish", topic, 1, places=((topic, partition, offset),), request=trace)
        return 201, {"x-message-id": f"{topic}:{partition}:{offset}"}

    async def _delete(self, caller: Caller, wanted: Wanted) -> tuple[int, dict[str, str]]:
        await caller.broker.topics.delete_topic(wanted.topic)
        return 200, {}

    async def _subscribe(self, exchange: Exchange, caller: Caller, wanted: Wanted) -> None:
        if self._parts.stopping.is_set():
            raise Unavailable("this node stops: subscribe at another one", retry_after_s=1)
        await ensure_topic(caller.broker, wanted.topic)
        stream = await caller.broker.streams.open(wanted.group, settings=MINIQUEUE_SETTINGS)
        try:
            subscription = Subscription(exchange, self._requests, caller, stream, wanted)
            exchange.begin(200, {"content-type": "application/x-ndjson"})
        except BaseException:
            await stream.end(returned=True)
            raise
        await subscription.run()


def _wanted(exchange: Exchange) -> Wanted | GoQueueError:
    try:
        return wanted_of(exchange.head) if isinstance(exchange.head, Head) else exchange.head
    except GoQueueError as error:
        return error


def _refused(error: GoQueueError) -> bytes:
    """What a client is told that is not served: that its connection ends, and why."""
    is_full = isinstance(error, Unavailable)
    code = ErrorCodes.ENHANCE_YOUR_CALM if is_full else ErrorCodes.INADEQUATE_SECURITY
    frames = Multiplexer(H2Bounds())
    frames.end(code, error.message)
    return frames.output()

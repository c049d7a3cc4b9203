"""The streams of one front: who is let in, who is still there, and who must go.

One round looks after all of them, so that a stream that waits costs no timer of its own.
"""

from __future__ import annotations

import asyncio
from typing import cast

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from goqueue.background import TaskSet
from goqueue.wire.errors import BadRequest, GoQueueError, Unavailable
from node.api.broker import Broker
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Kind
from node.http.connections.client import LocalClient, client_of
from node.http.connections.probes import probe
from node.http.connections.protocol import Connection
from node.http.request.call import Call, FrontMetrics
from node.http.request.drain_watch import DrainWatch
from node.http.request.long_poll import WAIT_BYTES
from node.http.stream.session import MOVED, Session
from node.http.stream.wire import LAST_WORDS_S

PROTOCOL = "goqueue.stream"
"""May be named as the WebSocket's subprotocol; no other may."""
LOOK_S = 1.0
"""How often; more often where silence is short: a tenth of it."""
UNLIMITED_BYTES = 1 << 62
"""Frames are written at once: who writes has waited for the client before."""


TEXT = """\
A WebSocket on which this node pushes messages to a consumer of the group, as many as it has given
credit for, and on which it settles them: docs/reference/stream.md has all of it.

A text frame holds one JSON object with a `type`. The first one of the client is `subscribe`; then
`settle`, `credit` and, of a member, `heartbeat` may come. The server sends `subscribed`,
`messages`, `settled`, `assignment`, `error`, and `moved` before it stops.

    > {"type":"subscribe","topics":["orders"],"credit":{"messages":2,"bytes":1048576}}
    < {"type":"subscribed","stream":"5f0c9a3e11d2b784-7","node":"node-1",...}
    < {"type":"messages","messages":[{"id":"orders:0:41","receipt":"AQ...","attempt":1,...}]}
    > {"type":"settle","id":1,"settles":[{"receipt":"AQ...","action":"ack"}]}
    < {"type":"settled","id":1,"results":[{"receipt":"AQ...","success":true,...}],"settled":1}

What was given belongs to the stream until it is settled. Where the client closes in order (1000,
1001) the rest is ready again at once, as if it had not been delivered; where its connection is
lost, or it is silent for 10 s while it has some, that is a failed attempt, `consumer lost`. A node
that stops, or is drained, says `moved`, gives back, and closes with 1012.
"""


class UpgradeRequired(GoQueueError):
    """A stream is a WebSocket, and the request does not ask for one."""

    code, http_status = "upgrade_required", 426
    text = "a stream is a WebSocket: ask for it with `Connection: Upgrade`, `Upgrade: websocket`"


class Upgrade(web.WebSocketResponse[bool]):
    """The answer to a request for a stream: the stream itself."""

    def __init__(self, session: Session) -> None:
        super().__init__(
            timeout=LAST_WORDS_S,
            autoclose=False,
            autoping=False,
            protocols=(PROTOCOL,),
            compress=False,
            max_msg_size=session.call.limits.stream_frame_bytes_max,
            writer_limit=UNLIMITED_BYTES,
            decode_text=False,
        )
        self._session = session

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        try:
            return await super().prepare(request)
        except BaseException:
            await self._session.abandon()
            raise

    async def write_eof(self) -> None:  # type: ignore[override]  # as aiohttp's own is
        if not self._eof_sent:
            self._eof_sent = True
            await self._session.run(self)


async def stream(call: Call) -> web.StreamResponse:
    """GET /groups/{group}/stream: a WebSocket; see `Streams.answer`."""
    return await call.shared.streams.answer(call)


class Streams:
    """Of one front. Loop thread only."""

    def __init__(self, broker: Broker, limits: HttpLimits, figures: FrontMetrics) -> None:
        self._broker = broker
        self._limits = limits
        self._figures = figures
        self._open: dict[Session, None] = {}
        self._tasks = TaskSet("node", "streams_failed")

    def __len__(self) -> int:
        return len(self._open)

    async def answer(self, call: Call) -> web.StreamResponse:
        """Raises UpgradeRequired, BadRequest, OverBudget, Unavailable, and what `Streams.open` of
        the broker does, while errors are HTTP's."""
        request, group = call.request, call.group()
        if isinstance(request.protocol, LocalClient):
            raise BadRequest("a stream has no end: ask for it by a socket of the directory")
        _check_handshake(request)
        if call.shared.stopping.is_set():
            raise Unavailable("this node stops: another one goes on")
        held = call.hold(Kind.POLLS, WAIT_BYTES)
        try:
            stream = await call.broker.streams.open(group)
        except BaseException:
            held.release()
            raise
        client_of(request).hold(held)
        connection = cast(Connection, request.protocol)
        return Upgrade(Session(call, stream, connection, self))

    def enter(self, session: Session) -> None:
        self._open[session] = None
        probe(session.connection.transport, self._limits.stream_silence_s)
        self._figures.streams_open(len(self._open))
        if not len(self._tasks):
            drain = DrainWatch(self._broker.node)
            self._tasks.begin(self._look_after(drain), "streams")

    def exit(self, session: Session) -> None:
        """Idempotent."""
        self._open.pop(session, None)
        self._figures.streams_open(len(self._open))

    def others(self) -> tuple[str, list[str]]:
        """This node's name, and the addresses of other nodes that serve, and are not drained."""
        view = self._broker.node.cluster_view()
        return view.node, [
            one.http_url
            for one in view.nodes
            if one.node != view.node
            and (one.status, one.state) == ("alive", "active")
            and one.http_url
        ]

    def begin_stop(self) -> None:
        """All are told that this node stops, and end."""
        self._move()

    async def stop(self) -> None:
        """Nobody is looked after any more. Idempotent."""
        await self._tasks.stop()

    # private

    def _move(self) -> None:
        """To other nodes."""
        for session in list(self._open):
            session.over(MOVED)

    async def _look_after(self, drain: DrainWatch) -> None:
        """Until no stream is left."""
        loop, limits = asyncio.get_running_loop(), self._limits
        look_s = min(LOOK_S, limits.stream_silence_s / 10)
        silence_s = limits.stream_silence_s - look_s  # so that the round after is not too late
        while self._open:
            await asyncio.sleep(look_s)
            if drain.has_begun():
                self._move()
            now_s = loop.time()
            for session in list(self._open):
                seen_s = max(session.connection.heard_s, session.rested_s)
                is_quiet = now_s - seen_s >= silence_s / 2
                if is_quiet and session.look(now_s, silence_s):
                    session.connection.ping()
                if now_s - session.judged_s >= limits.tail_keepalive_s:
                    session.judged_s = now_s
                    await session.judge()


def _check_handshake(request: web.BaseRequest) -> None:
    """Raises UpgradeRequired, BadRequest."""
    asked = request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, [])
    named = {name.strip() for text in asked for name in text.split(",")}
    if named and PROTOCOL not in named:
        raise BadRequest(f"Sec-WebSocket-Protocol: want {PROTOCOL}, or none")
    if request.method != hdrs.METH_GET or not web.WebSocketResponse().can_prepare(request):
        raise UpgradeRequired

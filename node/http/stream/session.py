"""One stream, from its first frame to its end.

The reader is the task of the request; delivery and a member's heartbeats go on beside it. Whoever
finds first that the stream is over says how, and the reader ends it: settles that are on their way
are confirmed, then leases end, then the connection closes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, Protocol

from aiohttp import WebSocketError, WSMsgType, web

from goqueue.background import TaskSet
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    OverBudget,
    ServerError,
)
from node.api.queue import SettleRequest, SettleView
from node.api.streams import Stream, is_over
from node.http.budget.memory import Kind
from node.http.connections.protocol import Connection
from node.http.messages.request_spans import traced_request
from node.http.queue.settle import entries_of, settle_result
from node.http.request.call import Call
from node.http.stream.credit import Outstanding
from node.http.stream.delivery import Delivery
from node.http.stream.frames import (
    Credit,
    CreditTotals,
    Heartbeat,
    Moved,
    Said,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    error_frame,
    id_of,
    said,
)
from node.http.stream.member import StreamMember
from node.http.stream.settling import Asked, Outcome, Settling
from node.http.stream.source import Source, Topics, check_member, lowest_lane_of, manner_of
from node.http.stream.wire import Wire
from node.http.text.errors import RequestTimeout
from node.http.text.pieces import encode

SETTLED_S = 5.0
"""How long the end of a stream waits for settles that are on their way."""
AT_REST = 4
"""A stream that holds nothing, and is no member's, may be silent for so many times as long. It is
pinged each 20 s then: proxies cut what is silent for 30 s. Its credit may be given to a client that
is dead already, which costs those messages 10 s and an attempt; where only routers are between, the
kernel finds a dead host sooner (`probe`)."""
NORMAL, GOING_AWAY, POLICY, FAILED, RESTARTS = 1000, 1001, 1008, 1011, 1012
"""Codes of closes."""
NO_CODE = 0
"""A close without a code, as browsers send it when nothing is said."""

log = logging.getLogger(__name__)


class End(NamedTuple):
    """How a stream ends. `how` is the label of the metric, `returned` whether what was not settled
    is as if it had not been delivered; else its consumer is lost. `id` is of the frame that the
    error answers."""

    how: str
    code: int
    returned: bool
    error: GoQueueError | None = None
    id: int | None = None


LOST = End("lost", GOING_AWAY, returned=False)
SILENT = End("silent", GOING_AWAY, returned=False)
MOVED = End("moved", RESTARTS, returned=True)
BROKEN = End("failed", FAILED, returned=True)


class Desk(Protocol):
    """The front's streams, as one of them sees them."""

    def enter(self, session: Session) -> None: ...

    def exit(self, session: Session) -> None: ...

    def others(self) -> tuple[str, list[str]]:
        """This node's name, and the addresses of other nodes that serve."""
        ...


class Session:
    """One stream. `run` it once, or `abandon` it. Loop thread only."""

    def __init__(
        self,
        call: Call,
        stream: Stream,
        connection: Connection,
        desk: Desk,
    ) -> None:
        self.call = call
        self.connection = connection
        self._group = call.group()
        self._stream = stream
        self._desk = desk
        self._wire: Wire | None = None
        self._delivery: Delivery | None = None
        self._member: StreamMember | None = None
        self._outstanding = Outstanding(CreditTotals())
        self._settling = Settling(stream.settle, self._confirm)
        self._tasks = TaskSet("node", "stream_failed")
        self._reading: asyncio.Timeout | None = None
        self._end: End | None = None
        self._unsent_bytes = 0
        self._pinged_s = 0.0
        self.rested_s = 0.0
        """When it was seen last to hold nothing."""
        self.judged_s = asyncio.get_running_loop().time()
        """When the client's key was looked at last."""
        connection.overfull = self.fail

    async def run(self, socket: web.WebSocketResponse[bool]) -> None:
        """Serve the client until one of both ends it. Raises nothing but a cancellation, which is
        the node's, too: it stops."""
        self._wire = Wire(socket, self.connection)
        self._desk.enter(self)
        if self.call.shared.stopping.is_set():
            self.over(MOVED)
        deadline_s = self.call.limits.header_deadline_s
        scope = asyncio.timeout(deadline_s)
        try:
            async with scope:
                self._reading = scope
                if self._end is None:
                    self.over(await self._read(socket, self._wire, scope))
        except TimeoutError:
            if self._end is None and not scope.expired():
                raise
            error = RequestTimeout(f"subscribe did not arrive within {deadline_s:g} s")
            self.over(End("refused", POLICY, returned=True, error=error))
        except Exception:
            log.exception("stream failed")
            self.over(BROKEN._replace(error=ServerError()))
        finally:
            self._reading = None
            await self._finish(self._end or MOVED, socket, self._wire)

    async def abandon(self) -> None:
        """It never began."""
        await self._stream.end(returned=True)

    def over(self, end: End) -> None:
        """The stream ends like this, unless it ends already."""
        if self._end is None:
            self._end = end
            if self._reading is not None and not self._reading.expired():
                self._reading.reschedule(asyncio.get_running_loop().time())

    def fail(self, error: GoQueueError) -> None:
        """It can't go on, for a reason that its consumer is not to blame for."""
        self.over(End("refused", POLICY, returned=True, error=error))

    def look(self, now_s: float, silence_s: float) -> bool:
        """Whether to ping the client, of which nothing was heard for half of the silence that ends
        its stream. What it takes, and what it sends and is not read, are signs of life. While it
        holds nothing it may be silent for `AT_REST` times as long; silence begins anew with the
        first message that it is given."""
        connection, unsent = self.connection, self.connection.unsent_bytes
        if unsent < self._unsent_bytes:
            connection.heard_s = now_s
            connection.went_on()
        elif connection.is_reading_paused:
            connection.heard_s = now_s
        self._unsent_bytes = unsent
        silent_s = now_s - connection.heard_s
        if self._member is None:
            if unsent or self._outstanding:
                silent_s = min(silent_s, now_s - self._outstanding.since_s)
            else:
                self.rested_s = now_s
                silence_s *= AT_REST
        if silent_s >= silence_s:
            self.over(SILENT)
            connection.abort()
            return False
        is_due = silent_s >= silence_s / 2 and self._pinged_s <= connection.heard_s
        if is_due and self._end is None and not connection.writing_paused:
            self._pinged_s = now_s
            return True
        return False

    async def judge(self) -> None:
        """From time to time: whether the client's key still holds, and what there is to receive
        from."""
        try:
            await self.call.admit_again()
        except GoQueueError as error:
            self.fail(error)
            return
        if self._delivery is not None:
            self._delivery.look()

    # -- private: what the client says

    async def _read(
        self, socket: web.WebSocketResponse[bool], wire: Wire, until_subscribed: asyncio.Timeout
    ) -> End:
        """Until the client ends the stream, or does not keep to the protocol."""
        try:
            while True:
                await self._settling.room()
                message = await socket.receive()
                kind, data = message.type, message.data
                if kind in (WSMsgType.CLOSE, WSMsgType.CLOSED, WSMsgType.CLOSING):
                    return _closed(kind, data)
                if kind is WSMsgType.ERROR:
                    how = "refused" if isinstance(data, WebSocketError) else "lost"
                    return LOST._replace(how=how)
                self.connection.frame_read(len(data))
                if kind is WSMsgType.PING:
                    await wire.answer_ping(data)
                elif kind is not WSMsgType.PONG:
                    end = await self._heard(kind, data, wire)
                    if end is not None:
                        return end
                    if self._delivery is not None and self._end is None:
                        until_subscribed.reschedule(None)
        except ConnectionError:
            return LOST

    async def _heard(self, kind: WSMsgType, data: bytes, wire: Wire) -> End | None:
        """One frame; how the stream ends, where it is not understood."""
        id: int | None = None
        try:
            if kind is not WSMsgType.TEXT:
                raise BadRequest("a frame must be text, and hold one JSON object")
            try:
                frame = said(data)
            except BadRequest:
                id = id_of(data)
                raise
            await self._obey(frame, len(data), wire)
        except BadRequest as error:
            return End("refused", POLICY, returned=False, error=error, id=id)
        except GoQueueError as error:
            return End("refused", POLICY, returned=True, error=error)
        return None

    async def _obey(self, frame: Said, size_bytes: int, wire: Wire) -> None:
        if isinstance(frame, Subscribe):
            await self._subscribe(frame, wire)
        elif self._delivery is None:
            raise BadRequest("the first frame must be subscribe")
        elif isinstance(frame, Settle):
            await self._settle(frame, size_bytes)
        elif isinstance(frame, Credit):
            await self._credit(frame, self._delivery)
        elif self._member is None:
            raise BadRequest("heartbeat is of members: subscribe with a member_id")
        else:
            assert isinstance(frame, Heartbeat)
            await self._member.heard(frame)

    async def _credit(self, frame: Credit, delivery: Delivery) -> None:
        self._outstanding.totals = CreditTotals(frame.messages, frame.bytes)
        if frame.assignment is not None:
            if self._member is None:
                raise BadRequest("assignment is of members: subscribe with a member_id")
            await self._member.want(frame.assignment)
        if frame.lowest_priority is not None:
            delivery.take_lanes(lowest_lane_of(frame.lowest_priority))
        delivery.credit_changed()

    async def _subscribe(self, wanted: Subscribe, wire: Wire) -> None:
        if self._delivery is not None:
            raise BadRequest("subscribe comes once: this stream has begun")
        manner, call = manner_of(wanted), self.call
        source: Source
        if wanted.member_id:
            check_member(wanted)
            source = self._member = StreamMember(
                call, self._group, wanted.member_id, wire, self._restart, self.fail
            )
            await self._member.want(wanted.assignment)
            await self._member.begin(wanted.generation)
        else:
            if wanted.generation or wanted.assignment is not None:
                named = "generation" if wanted.generation else "assignment"
                raise BadRequest(f"{named} needs a member: give member_id, too")
            source = Topics(wanted, call.broker.topics)
        self._outstanding.totals = wanted.credit
        self._delivery = Delivery(
            call, self._stream, wire, source, manner, self._outstanding, self.fail
        )
        await self._tell_begun(wanted, wire)
        if self._member is not None:
            self._tasks.begin(self._guarded(self._member.run))
        self._tasks.begin(self._guarded(self._delivery.run))

    async def _tell_begun(self, wanted: Subscribe, wire: Wire) -> None:
        silence_ms = round(self.call.limits.stream_silence_s * 1000)
        begun = Subscribed(
            str(self._stream.id),
            self._desk.others()[0],
            wanted.credit,
            silence_ms // 2,
            silence_ms,
            self.call.limits.stream_frame_bytes_max,
        )
        await wire.tell(encode(begun))

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """A stream that lost a part of itself is none."""
        try:
            await work()
        except Exception:
            log.exception("stream failed")
            self.over(BROKEN._replace(error=ServerError()))

    def _restart(self) -> None:
        held = None if self._member is None else self._member.held()
        if held is not None:
            self._outstanding.keep(held)
        if self._delivery is not None:
            self._delivery.restart()

    async def _settle(self, frame: Settle, size_bytes: int) -> None:
        """Its results come in turn, also where it can't be done."""
        items = frame.settles
        try:
            held = self.call.hold(Kind.BODIES, size_bytes)
        except OverBudget as error:
            self._settling.add(_refused(frame, error))
            return
        try:
            entries, receipts, actions = await entries_of(self.call, self._group, items)
        except GoQueueError as error:
            held.release()
            self._settling.add(_refused(frame, error))
            return
        self._settling.add(Asked(frame.id, entries, receipts, actions, held))

    async def _confirm(self, asked: Asked) -> None:
        """Raises nothing."""
        for entry, outcome in zip(asked.entries, asked.outcomes, strict=True):
            if isinstance(entry, SettleRequest):
                self._note(entry, outcome)
        if self._delivery is not None:
            self._delivery.settled()
        results = list(map(settle_result, asked.receipts, asked.actions, asked.outcomes))
        tracing = traced_request(self.call)
        if tracing is not None:
            action = next(filter(None, asked.actions), "settle")
            tracing.settled(self._group, action, asked.outcomes)
        settled = Settled(asked.id, results, sum(result.success for result in results))
        with suppress(ConnectionError):
            assert self._wire is not None
            await self._wire.tell(encode(settled))

    def _note(self, request: SettleRequest, outcome: Outcome) -> None:
        if is_over(outcome):
            self._outstanding.free(request.receipt)
        elif isinstance(outcome, SettleView):  # it is extended
            until_s = asyncio.get_running_loop().time() + request.visibility_ms / 1000
            self._outstanding.extend(request.receipt, until_s)

    # -- private: the end

    async def _finish(self, end: End, socket: web.WebSocketResponse[bool], wire: Wire) -> None:
        try:
            await self._tasks.stop()
            if end.error is not None:
                await wire.last_words(error_frame(end.error, end.id))
            if end.code == RESTARTS:
                await wire.last_words(encode(Moved(self._desk.others()[1])))
            await self._settling.drained(SETTLED_S)
        finally:
            await self._settling.stop()
            await self._stream.end(returned=end.returned)
            if self._delivery is not None:
                self._delivery.close()
            self._desk.exit(self)
            self.call.shared.metrics.stream_ended(end.how)
            if end is not SILENT:
                await socket.close(code=end.code, drain=False)


def _closed(kind: WSMsgType, code: int | None) -> End:
    """How a client has left: by a close, or without one."""
    if kind is not WSMsgType.CLOSE:
        return LOST
    if code in (NORMAL, GOING_AWAY, NO_CODE):
        return End("closed", code or NORMAL, returned=True)
    return LOST._replace(how="closed", code=NORMAL)


def _refused(frame: Settle, error: GoQueueError) -> Asked:
    return Asked(
        frame.id,
        [error] * len(frame.settles),
        [item.receipt or item.receipt_handle or "" for item in frame.settles],
        [item.action or "" for item in frame.settles],
    )

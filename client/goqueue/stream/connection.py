"""One stream: a member's subscription over one WebSocket, for as long as that lives.

What goes up is queued and sent in order, settles before credit: so what settles free and what they
make room for are told together. Nothing here is repeated: whoever had no answer asks otherwise.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from goqueue.background import TaskSet
from goqueue.models.groups import MemberAnswer, TopicPartition
from goqueue.models.queued import MessageBody
from goqueue.models.settles import SETTLES_MAX, SettleResult
from goqueue.queue.settle_results import decode_rows
from goqueue.queue.settling import Body
from goqueue.stream.frames import (
    Assigned,
    Beat,
    Failed,
    Frame,
    Grant,
    Messages,
    Moved,
    SettledFrame,
    SettleFrame,
    Subscribe,
    Subscribed,
    decode_frame,
)
from goqueue.transport.channel import Socket
from goqueue.wire.errors import GoQueueError, ServerError, Unavailable

IN_ORDER = (1000, 1001, 1012)
"""Closes after which what was not settled has been given back."""
_FRAME = 100
"""Bytes of a frame beside its settles."""

_encode = msgspec.json.Encoder().encode


class Taker(Protocol):
    """Whom a stream tells what comes."""

    def came(self, stream: Stream, bodies: Sequence[MessageBody]) -> None:
        """Messages were delivered."""
        ...

    def troubled(self, stream: Stream, error: GoQueueError) -> None:
        """Why nothing comes for now, or why the stream is about to end."""
        ...

    def grant(self, stream: Stream) -> Grant | None:
        """New credit, if it is time for any; asked after whatever may have changed it."""
        ...


_Told = list[SettleResult] | GoQueueError


class Ended(Unavailable):
    """The stream has ended; `in_order` where what was not settled was given back, as if it had not
    been delivered. `moved`: its server stops."""

    code, text = "stream_ended", "the stream has ended"

    def __init__(
        self, message: str | None = None, *, in_order: bool = False, moved: bool = False
    ) -> None:
        super().__init__(message, outcome="unknown")
        self.in_order = in_order
        self.moved = moved


class Stream:
    """`begin`, then `run` until it ends. Loop thread only."""

    def __init__(self, socket: Socket, member: str, taker: Taker) -> None:
        self.member = member
        self._socket = socket
        self._taker = taker
        self._told_of = Subscribed()
        self._up: deque[bytes] = deque()
        self._is_due = asyncio.Event()
        self._settles: dict[int, asyncio.Future[_Told]] = {}
        self._settle_id = 0
        self._assigned: MemberAnswer | None = None
        self._news: asyncio.Future[None] | None = None
        self._trouble: GoQueueError | None = None
        self._moved = False
        self._is_leaving = False
        self._is_closing = False
        self._is_over = False

    async def begin(self, subscribe: Subscribe) -> None:
        """Return once it has begun. Raises the server's error, and what a broken connection
        raises."""
        await self._socket.send(_encode(subscribe))
        while True:
            match await self._next():
                case Subscribed() as told:
                    self._told_of = told
                    return
                case Failed(error=error):
                    raise error
                case _:
                    raise ServerError("a stream that does not begin with `subscribed`")

    async def run(self) -> None:
        """Pass on what comes, and send what is to go up. Raises Ended, or what was not understood;
        who waits for an answer has none then."""
        writing = TaskSet(None)
        writing.begin(self._write())
        try:
            while True:
                self._take(await self._next())
        finally:
            self._is_over = True
            self._end_waits()
            await writing.stop()

    def wake(self) -> None:
        """Credit may have changed."""
        self._is_due.set()

    async def settle(self, bodies: Sequence[Body]) -> list[SettleResult | None]:
        """What became of each, in their order, once it is committed; None where no answer came, or
        where one is too large for a frame."""
        results: list[SettleResult | None] = [None] * len(bodies)
        asked = [(part, self._ask([bodies[row] for row in part])) for part in self._parts(bodies)]
        for part, answer in asked:
            told = await answer
            if isinstance(told, Ended):
                continue
            found = [told] * len(part) if isinstance(told, GoQueueError) else told
            for row, result in zip(part, found, strict=False):
                results[row] = result
        return results

    async def heartbeat(
        self, revision: str | None, wait_s: float, let_go: Sequence[TopicPartition], answer_s: float
    ) -> MemberAnswer:
        """What the member has, as of now, or within `wait_s` once that is not what `revision` says
        any more. Raises Ended where it can't be told: an answer takes up to `answer_s`."""
        asks = bool(let_go) or not wait_s or self._assigned is None
        if asks:
            text = _encode(Beat(let_go))
            if self._is_over or len(text) > self._told_of.frame_bytes_max:
                raise Ended
            self._send(text)
        before = self._assigned if asks else None
        with suppress(TimeoutError):
            async with asyncio.timeout(answer_s if asks else wait_s):
                while self._assigned is before or (
                    not asks and self._assigned is not None and self._assigned.revision == revision
                ):
                    await self._changed()
        if self._assigned is None or self._assigned is before:
            raise Ended("no answer to a heartbeat")
        return self._assigned

    def leave(self) -> None:
        """As `close`, without waiting for it."""
        self._is_leaving = True
        self._is_due.set()

    async def close(self) -> None:
        """End it in order: what was not settled is given back. Returns once the server has done
        that, or soon; what was to go up before has gone. Idempotent."""
        self._is_closing = True
        with suppress(GoQueueError):
            while self._up and not self._is_over:
                await self._socket.send(self._up.popleft())
            await self._socket.close()

    # -- private

    async def _next(self) -> Frame | None:
        try:
            text = await self._socket.receive()
        except GoQueueError as error:
            raise Ended(error.message) from error
        if text is None:
            if self._trouble is not None:
                raise self._trouble
            in_order = self._is_closing or self._socket.close_code in IN_ORDER
            raise Ended(in_order=in_order, moved=self._moved)
        return decode_frame(text)

    def _take(self, frame: Frame | None) -> None:
        match frame:
            case Messages(messages=bodies):
                self._taker.came(self, bodies)
                self.wake()
            case SettledFrame(id=id, results=results):
                self._tell(id, decode_rows(results))
            case Failed(error=error, id=int(id)):
                self._tell(id, error)
            case Failed(error=error):
                self._trouble = None if error.retriable else error
                self._taker.troubled(self, error)
            case Assigned():
                self._assigned = frame
                self._tell_news()
            case Moved():
                self._moved = True
            case _:
                return

    def _tell(self, id: int, told: _Told) -> None:
        answer = self._settles.pop(id, None)
        if answer is not None and not answer.done():  # else whoever asked has given up
            answer.set_result(told)

    def _ask(self, bodies: Sequence[Body]) -> asyncio.Future[_Told]:
        self._settle_id += 1
        answer: asyncio.Future[_Told] = asyncio.get_running_loop().create_future()
        if self._is_over:
            answer.set_result(Ended())
            return answer
        self._settles[self._settle_id] = answer
        self._send(_encode(SettleFrame(self._settle_id, bodies)))
        return answer

    def _parts(self, bodies: Sequence[Body]) -> list[list[int]]:
        """Rows that go in one frame, without those that are too large for any."""
        parts: list[list[int]] = []
        left = 0
        for row, body in enumerate(bodies):
            size = len(_encode(body)) + 1
            if size + _FRAME > self._told_of.frame_bytes_max:
                continue
            if not parts or size > left or len(parts[-1]) == SETTLES_MAX:
                parts.append([])
                left = self._told_of.frame_bytes_max - _FRAME
            parts[-1].append(row)
            left -= size
        return parts

    def _send(self, text: bytes) -> None:
        self._up.append(text)
        self._is_due.set()

    async def _write(self) -> None:
        """Until the connection is broken, which whoever reads from it finds as well."""
        with suppress(GoQueueError):
            while True:
                await self._is_due.wait()
                self._is_due.clear()
                while self._up:
                    await self._socket.send(self._up.popleft())
                grant = self._taker.grant(self)
                if grant is not None:
                    await self._socket.send(_encode(grant))
                if self._is_leaving:
                    await self.close()
                    return

    async def _changed(self) -> None:
        """Wait until the member was told something. Raises Ended."""
        if self._is_over:
            raise Ended
        if self._news is None or self._news.done():
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)
        if self._is_over:
            raise Ended

    def _tell_news(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _end_waits(self) -> None:
        self._tell_news()
        for id in list(self._settles):
            self._tell(id, Ended())

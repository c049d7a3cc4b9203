"""Requests and answers between two nodes, over one connection.

REQUEST := id u32 | timeout ms u32 | method length u8 | method | payload
ANSWER  := id u32 | payload
FAILURE := id u32 | error body, JSON as `goqueue.wire.errors` writes it
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from goqueue.background import TaskSet
from goqueue.wire.errors import (
    Busy,
    GoQueueError,
    NotFound,
    ServerError,
    Timeout,
    Unavailable,
    from_body,
)
from goqueue.wire.types import NodeId
from goqueue.wire.unreadable import UNREADABLE
from raft.link.charge import Charge, free
from raft.link.config import LinkLimits
from raft.link.frames import FrameError, Kind
from raft.link.room import SMALL_BYTES, Room

Handler = Callable[[NodeId, bytes], Awaitable[bytes]]
Put = Callable[[Kind, list[bytes | memoryview]], bool]

_log = structlog.get_logger("link")
_REQUEST = struct.Struct("<IIB")
_ID = struct.Struct("<I")
_ID_LIMIT = 1 << 32
_encode_body = msgspec.json.Encoder(enc_hook=str).encode
_decode_body = msgspec.json.Decoder(dict[str, Any]).decode


class LinkDown(Unavailable):
    """The peer can't be reached. `sent` says whether it may have received the request."""

    code = "link_down"

    def __init__(self, node: NodeId, *, sent: bool) -> None:
        outcome = "unknown" if sent else "none"
        super().__init__(f"no link to {node}", outcome=outcome, node=node)  # type: ignore[arg-type]
        self.sent = sent


class RemoteError(Exception):
    """The peer's handler raised; `error` is what it raised, rebuilt from its body."""

    def __init__(self, error: GoQueueError) -> None:
        super().__init__(str(error))
        self.error = error


class Caller:
    """Requests in flight to one peer, bounded in number; each ends exactly once."""

    def __init__(self, node: NodeId, put: Put, room: Room, limits: LinkLimits) -> None:
        self._node = node
        self._put = put
        self._room = room
        self._limits = limits
        self._kinds = Counter[str]()
        """Requests in flight, or waiting for room, by their methods."""
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def request(self, method: str, payload: bytes, timeout_s: float) -> bytes:
        """The answer. Raises LinkDown, Timeout, RemoteError, or Busy before anything is sent.

        A large request waits until the connection has room for it, within its time.
        """
        name = method.encode()
        size = _REQUEST.size + len(name) + len(payload)
        if len(name) > self._limits.method_bytes_max or size > self._limits.message_bytes_max:
            raise ValueError(f"request {method} of {size} bytes exceeds the link's limits")
        in_flight, of_kind = self._kinds.total(), self._kinds[method]
        if of_kind >= self._limits.requests_of_a_kind_max:
            raise Busy(f"{of_kind} requests to {self._node} to {method} are in flight")
        if in_flight >= self._limits.requests_in_flight_max:
            raise Busy(f"{in_flight} requests to {self._node} are in flight")
        self._kinds[method] += 1
        try:
            return await self._request(method, name, payload, timeout_s)
        finally:
            self._kinds[method] -= 1

    async def _request(self, method: str, name: bytes, payload: bytes, timeout_s: float) -> bytes:
        size = _REQUEST.size + len(name) + len(payload)
        timeout_s = max(0.0, min(timeout_s, self._limits.request_timeout_max_s))
        loop = asyncio.get_running_loop()
        if not self._room.is_free(size):
            end = loop.time() + timeout_s
            await self._enter(size, method, timeout_s)
            timeout_s = max(0.0, end - loop.time())
        number = self._take_id()
        head = _REQUEST.pack(number, round(timeout_s * 1000), len(name))
        if not self._put(Kind.REQUEST, [head, name, payload]):
            raise LinkDown(self._node, sent=False)
        answer: asyncio.Future[bytes] = loop.create_future()
        self._waiting[number] = answer
        timer = loop.call_later(timeout_s, self._expire, answer, method)
        try:
            return await answer
        finally:
            timer.cancel()
            self._waiting.pop(number, None)

    async def _enter(self, size: int, method: str, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._room.enter(size)
        except TimeoutError:
            text = f"{method} could not be sent to {self._node} in time: the link is full"
            raise Timeout(text, outcome="none") from None

    def answered(self, payload: memoryview) -> None:
        """An ANSWER arrived; one that nobody waits for any more is dropped."""
        waiting = self._find(payload)
        if waiting is not None:
            waiting.set_result(bytes(payload[_ID.size :]))

    def failed(self, payload: memoryview) -> None:
        """A FAILURE arrived."""
        waiting = self._find(payload)
        if waiting is None:
            return
        try:
            error = from_body(_decode_body(payload[_ID.size :]))
        except UNREADABLE:
            waiting.set_exception(LinkDown(self._node, sent=True))
            raise FrameError("a failure that is not an error body") from None
        waiting.set_exception(RemoteError(error))

    def close(self) -> None:
        """The connection is gone: what waits ends with `LinkDown(sent=True)`."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(LinkDown(self._node, sent=True))
        self._waiting.clear()

    def _take_id(self) -> int:
        while True:
            self._last_id = (self._last_id + 1) % _ID_LIMIT
            if self._last_id not in self._waiting:
                return self._last_id

    def _find(self, payload: memoryview) -> asyncio.Future[bytes] | None:
        if len(payload) < _ID.size:
            raise FrameError("an answer is cut short")
        waiting = self._waiting.get(_ID.unpack_from(payload)[0])
        return waiting if waiting is not None and not waiting.done() else None

    def _expire(self, answer: asyncio.Future[bytes], method: str) -> None:
        if not answer.done():
            answer.set_exception(Timeout(f"{self._node} did not answer {method} in time"))


class Responder:
    """Requests of one peer being served, bounded in number, and in bytes by what `charge` has room
    for; cancelled when the link is lost."""

    def __init__(
        self,
        node: NodeId,
        put: Put,
        room: Room,
        handlers: Mapping[str, Handler],
        limits: LinkLimits,
        charge: Charge = free,
    ) -> None:
        self._node = node
        self._put = put
        self._room = room
        self._charge = charge
        self._answers_bytes = 0
        """Of answers that wait for room."""
        self._handlers = handlers
        self._limits = limits
        self._running = TaskSet("link", "peer_request_failed")

    def requested(self, payload: memoryview) -> None:
        """A REQUEST arrived. Raises FrameError when it is malformed."""
        if len(payload) < _REQUEST.size:
            raise FrameError("a request is cut short")
        number, timeout_ms, name_bytes = _REQUEST.unpack_from(payload)
        at = _REQUEST.size + name_bytes
        if name_bytes > self._limits.method_bytes_max or at > len(payload):
            raise FrameError("a request's method is too long")
        method = bytes(payload[_REQUEST.size : at]).decode("utf-8", "replace")
        handler = self._handlers.get(method)
        if handler is None:
            self._fail(number, NotFound(f"no method {method!r}", method=method))
        elif (
            len(self._running) >= self._limits.requests_in_flight_max
            or self._answers_bytes > self._limits.backlog_bytes_max
        ) or (release := self._charged(len(payload) - at)) is None:
            self._fail(number, Busy())
        else:
            timeout_s = min(timeout_ms / 1000, self._limits.request_timeout_max_s)
            served = self._serve(number, method, handler, bytes(payload[at:]), timeout_s)
            self._running.begin(served).add_done_callback(lambda _: release())

    def close(self) -> list[asyncio.Task[None]]:
        """Cancel what runs; the tasks, for a caller that waits for their end."""
        return self._running.cancel()

    async def _serve(
        self, number: int, method: str, handler: Handler, payload: bytes, timeout_s: float
    ) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await handler(self._node, payload)
                if len(answer) + _ID.size <= self._limits.message_bytes_max:
                    await self._enter(len(answer))
        except GoQueueError as error:
            self._fail(number, error)
        except TimeoutError:
            self._fail(number, Timeout(f"{method} took longer than {timeout_s:.1f} s"))
        except Exception:  # noqa: BLE001 - the outermost guard of one request
            _log.exception("peer_request_failed", method=method, peer=self._node)
            self._fail(number, ServerError())
        else:
            if len(answer) + _ID.size > self._limits.message_bytes_max:
                self._fail(number, ServerError(f"the answer to {method} is too large"))
            else:
                self._put(Kind.ANSWER, [_ID.pack(number), answer])

    async def _enter(self, size: int) -> None:
        if self._room.is_free(size):
            return
        release = self._charged(size)
        if release is None:
            raise Busy
        self._answers_bytes += size
        try:
            await self._room.enter(size)
        finally:
            self._answers_bytes -= size
            release()

    def _charged(self, size: int) -> Callable[[], None] | None:
        return (free if size <= SMALL_BYTES else self._charge)(self._node, size)

    def _fail(self, number: int, error: GoQueueError) -> None:
        body = b'{"code":"internal"}'
        with suppress(TypeError, ValueError, msgspec.EncodeError):
            body = _encode_body(error.to_body())
        self._put(Kind.FAILURE, [_ID.pack(number), body])

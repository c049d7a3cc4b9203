"""As much of AMQP 0-9-1 as publishing with confirms and consuming with acks need."""

from __future__ import annotations

import asyncio
import struct
from typing import ClassVar, TypeVar

_FRAME = struct.Struct(">BHI")
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = b"\xce"
FILL_BATCH = 1000
_Self = TypeVar("_Self", bound="Channel")


class Channel(asyncio.Protocol):
    """One connection with one channel and its quorum queue. Opened by one of its subclasses."""

    _REPLIES: ClassVar[dict[tuple[int, int], str]] = {
        (10, 10): "start",
        (10, 30): "tune",
        (10, 41): "open-ok",
        (20, 11): "channel-ok",
        (60, 11): "qos-ok",
        (60, 21): "consume-ok",
        (60, 31): "cancel-ok",
        (85, 11): "select-ok",
    }

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        self.queue_messages = 0

    @classmethod
    async def connect(cls: type[_Self], port: int, queue: str, *, quorum: int) -> _Self:
        """Connect to 127.0.0.1 and declare a durable quorum queue of `quorum` replicas."""
        loop = asyncio.get_running_loop()
        _, self = await loop.create_connection(cls, "127.0.0.1", port)
        self.write(b"AMQP\x00\x00\x09\x01")
        await self.expect("start")
        login = b"\x00guest\x00guest"
        self.method(0, 10, 11, _table({}) + _short("PLAIN") + _long(login) + _short("en_US"))
        await self.expect("tune")
        self.method(0, 10, 31, struct.pack(">HIH", 2047, 131072, 0))
        self.method(0, 10, 40, _short("/") + b"\x00\x00")
        await self.expect("open-ok")
        self.method(1, 20, 10, b"\x00")
        await self.expect("channel-ok")
        await self.declare(queue, quorum)
        return self

    async def declare(self, queue: str, quorum: int) -> int:
        """The number of messages that the queue holds ready."""
        arguments: dict[str, str | int] = {
            "x-queue-type": "quorum",
            "x-quorum-initial-group-size": quorum,
        }
        self.method(1, 50, 10, b"\x00\x00" + _short(queue) + b"\x02" + _table(arguments))
        await self.expect("queue-ok")
        return self.queue_messages

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        at = 0
        while len(data) - at >= 7:
            kind, _, size = _FRAME.unpack_from(data, at)
            if len(data) - at < size + 8:
                break
            if kind == METHOD:
                self.on_method(data[at + 7 : at + 7 + size])
            elif kind == BODY:
                self.on_body(data[at + 7 : at + 7 + size])
            at += size + 8
        self._received = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_closed(ConnectionError(f"rabbitmq closed: {exc}"))
        self._replies.put_nowait(f"closed: {exc}")

    def on_method(self, payload: bytes) -> None:
        name = struct.unpack_from(">HH", payload)
        if name == (50, 11):
            at = 5 + payload[4]
            self.queue_messages = struct.unpack_from(">I", payload, at)[0]
            self._replies.put_nowait("queue-ok")
        else:
            self._replies.put_nowait(self._REPLIES.get(name, f"{name}: {payload[4:200]!r}"))

    def on_body(self, body: bytes) -> None:
        """A message's body; those of the bench fit into one frame."""

    def on_closed(self, error: ConnectionError) -> None:
        """The connection is gone."""

    async def expect(self, reply: str) -> None:
        got = await asyncio.wait_for(self._replies.get(), 30)
        if got != reply:
            raise ConnectionError(f"rabbitmq said {got} where {reply} was due")

    def method(self, channel: int, cls: int, method: int, arguments: bytes) -> None:
        self.write(_frame(METHOD, channel, struct.pack(">HH", cls, method) + arguments))

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


class Publisher(Channel):
    """A channel in confirm mode; `fill` waits for the broker's acks."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: asyncio.Future[None] | None = None
        self._sent = 0
        self._unconfirmed: set[int] = set()

    @classmethod
    async def open(cls, port: int, queue: str, *, quorum: int) -> Publisher:
        self = await cls.connect(port, queue, quorum=quorum)
        self.method(1, 85, 10, b"\x00")
        await self.expect("select-ok")
        return self

    async def fill(self, requests: list[bytes]) -> None:
        """Send all that `request_of` made, at most `FILL_BATCH` ahead of their confirms."""
        for first in range(0, len(requests), FILL_BATCH):
            batch = requests[first : first + FILL_BATCH]
            self._waiting = asyncio.get_running_loop().create_future()
            self._unconfirmed = set(range(self._sent + 1, self._sent + len(batch) + 1))
            self._sent += len(batch)
            self.write(b"".join(batch))
            await self._waiting

    def on_method(self, payload: bytes) -> None:
        name = struct.unpack_from(">HH", payload)
        if name == (60, 80):
            tag, multiple = struct.unpack_from(">QB", payload, 4)
            confirmed = {one for one in self._unconfirmed if one <= tag} if multiple else {tag}
            self._unconfirmed -= confirmed
            if not self._unconfirmed:
                self._finish(None)
        elif name == (60, 120):
            self._finish(ConnectionError("rabbitmq refused a message"))
        else:
            super().on_method(payload)

    def on_closed(self, error: ConnectionError) -> None:
        self._finish(error)

    def _finish(self, error: ConnectionError | None) -> None:
        if self._waiting is None or self._waiting.done():
            return
        if error is None:
            self._waiting.set_result(None)
        else:
            self._waiting.set_exception(error)


class Consumer(Channel):
    """A channel that is sent messages, at most `prefetch` ahead of their acks."""

    def __init__(self) -> None:
        super().__init__()
        self._bodies: list[bytes] = []
        self._waiting: asyncio.Future[None] | None = None
        self._wanted = 0
        self._tag = 0
        self._error: ConnectionError | None = None

    @classmethod
    async def open(cls, port: int, queue: str, *, quorum: int, prefetch: int) -> Consumer:
        self = await cls.connect(port, queue, quorum=quorum)
        self.method(1, 60, 10, struct.pack(">IHB", 0, prefetch, 0))
        await self.expect("qos-ok")
        return self

    async def start(self, queue: str) -> None:
        """Messages come from here on."""
        self.method(1, 60, 20, b"\x00\x00" + _short(queue) + _short("c") + b"\x00" + _table({}))
        await self.expect("consume-ok")

    async def receive(self, count: int, wait_s: float) -> list[bytes]:
        """The next `count` bodies, or as many as came within `wait_s`."""
        if self._error is not None:
            raise self._error
        if len(self._bodies) < count:
            self._wanted = count
            self._waiting = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._waiting], timeout=wait_s)
        taken, self._bodies = self._bodies[:count], self._bodies[count:]
        self._tag += len(taken)
        return taken

    def ack(self) -> None:
        """All that was received, in one frame; a quorum queue confirms nothing of it."""
        self.method(1, 60, 80, struct.pack(">QB", self._tag, 1))

    async def stop(self) -> None:
        """No message comes any more; what came unasked goes back with the connection."""
        self.method(1, 60, 30, _short("c") + b"\x00")
        await self.expect("cancel-ok")

    def on_method(self, payload: bytes) -> None:
        if struct.unpack_from(">HH", payload) != (60, 60):
            super().on_method(payload)

    def on_body(self, body: bytes) -> None:
        self._bodies.append(body)
        if len(self._bodies) >= self._wanted:
            self._wake()

    def on_closed(self, error: ConnectionError) -> None:
        self._error = error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


def request_of(queue: str, value: bytes) -> bytes:
    """A persistent message to a queue, as one write."""
    publish = struct.pack(">HHH", 60, 40, 0) + _short("") + _short(queue) + b"\x00"
    header = struct.pack(">HHQH", 60, 0, len(value), 0x1000) + b"\x02"
    return _frame(METHOD, 1, publish) + _frame(HEADER, 1, header) + _frame(BODY, 1, value)


def _frame(kind: int, channel: int, payload: bytes) -> bytes:
    return _FRAME.pack(kind, channel, len(payload)) + payload + FRAME_END


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _table(values: dict[str, str | int]) -> bytes:
    body = b""
    for name, value in values.items():
        body += _short(name)
        body += (
            b"S" + _long(value.encode())
            if isinstance(value, str)
            else struct.pack(">cI", b"I", value)
        )
    return _long(body)

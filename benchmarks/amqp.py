"""As much of AMQP 0-9-1 as a publisher with confirms needs, over one asyncio protocol."""

from __future__ import annotations

import asyncio
import struct
from typing import ClassVar

_FRAME = struct.Struct(">BHI")
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = b"\xce"


class Publisher(asyncio.Protocol):
    """One connection with one channel in confirm mode; `publish` waits for the broker's ack."""

    _OPENING: ClassVar[dict[tuple[int, int], str]] = {
        (10, 10): "start",
        (10, 30): "tune",
        (10, 41): "open-ok",
        (20, 11): "channel-ok",
        (85, 11): "select-ok",
        (50, 11): "queue-ok",
    }

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._replies: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: asyncio.Future[None] | None = None
        self.queue_messages = 0

    @classmethod
    async def open(cls, port: int, queue: str, *, quorum: int) -> Publisher:
        """Connect to 127.0.0.1 and declare a durable quorum queue of `quorum` replicas."""
        loop = asyncio.get_running_loop()
        _, self = await loop.create_connection(cls, "127.0.0.1", port)
        self._write(b"AMQP\x00\x00\x09\x01")
        await self._expect("start")
        login = b"\x00guest\x00guest"
        self._method(0, 10, 11, _table({}) + _short("PLAIN") + _long(login) + _short("en_US"))
        await self._expect("tune")
        self._method(0, 10, 31, struct.pack(">HIH", 2047, 131072, 0))
        self._method(0, 10, 40, _short("/") + b"\x00\x00")
        await self._expect("open-ok")
        self._method(1, 20, 10, b"\x00")
        await self._expect("channel-ok")
        await self.declare(queue, quorum)
        self._method(1, 85, 10, b"\x00")
        await self._expect("select-ok")
        return self

    async def declare(self, queue: str, quorum: int) -> int:
        """The number of messages that the queue holds."""
        arguments: dict[str, str | int] = {
            "x-queue-type": "quorum",
            "x-quorum-initial-group-size": quorum,
        }
        self._method(1, 50, 10, b"\x00\x00" + _short(queue) + b"\x02" + _table(arguments))
        await self._expect("queue-ok")
        return self.queue_messages

    async def publish(self, request: bytes) -> None:
        """Send what `request_of` made and wait for its confirm."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._write(request)
        await self._waiting

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
                self._on_method(data[at + 7 : at + 7 + size])
            at += size + 8
        self._received = data[at:]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError(f"rabbitmq closed: {exc}"))
        self._replies.put_nowait(f"closed: {exc}")

    def _on_method(self, payload: bytes) -> None:
        name = struct.unpack_from(">HH", payload)
        if name == (60, 80) and self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
        elif name == (60, 120) and self._waiting is not None:
            self._waiting.set_exception(ConnectionError("rabbitmq refused a message"))
        elif name == (50, 11):
            at = 5 + payload[4]
            self.queue_messages = struct.unpack_from(">I", payload, at)[0]
            self._replies.put_nowait("queue-ok")
        else:
            self._replies.put_nowait(self._OPENING.get(name, f"{name}: {payload[4:200]!r}"))

    async def _expect(self, reply: str) -> None:
        got = await asyncio.wait_for(self._replies.get(), 30)
        if got != reply:
            raise ConnectionError(f"rabbitmq said {got} where {reply} was due")

    def _method(self, channel: int, cls: int, method: int, arguments: bytes) -> None:
        self._write(_frame(METHOD, channel, struct.pack(">HH", cls, method) + arguments))

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)


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

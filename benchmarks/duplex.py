"""HTTP/2 as benchmarks speak it: frames made beforehand, by a client that costs next to nothing.

One connection has one request under way at a time: a publish, or a subscription whose body and
answer go on side by side. Windows for answers are so large that none is ever shut: what is out is
bounded by the subscription's credit.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from hpack import Decoder, Encoder

from benchmarks.connection import BadAnswer

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
WINDOW_BYTES = 1 << 30
DEFAULT_WINDOW_BYTES = (1 << 16) - 1
HEAD_BYTES = 9
INITIAL_WINDOW_SIZE = 4


class Frame(NamedTuple):
    """One of them, as it stands on the wire."""

    kind: int
    flags: int
    stream: int
    body: bytes


def encode(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return b"%b%b%b" % (
        len(body).to_bytes(3, "big"),
        bytes((kind, flags)),
        stream.to_bytes(4, "big") + body,
    )


def take_frames(received: bytearray) -> list[Frame]:
    """Those that are whole, which are taken away."""
    found, at = list[Frame](), 0
    while len(received) - at >= HEAD_BYTES:
        end = at + HEAD_BYTES + int.from_bytes(received[at : at + 3], "big")
        if len(received) < end:
            break
        stream = int.from_bytes(received[at + 5 : at + HEAD_BYTES], "big")
        body = bytes(received[at + HEAD_BYTES : end])
        found.append(Frame(received[at + 3], received[at + 4], stream, body))
        at = end
    del received[:at]
    return found


class Http2(asyncio.Protocol):
    """One connection. Raises `BadAnswer` for what isn't a success, and where it ends."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._encoder = Encoder()
        self._decoder = Decoder()
        self._next_stream = 1
        self._path, self._again = "", b""
        self._status = 0
        self._text: list[bytes] = []
        self._is_over = False
        self._failure: BadAnswer | None = None
        self._waiter: asyncio.Future[None] | None = None

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Http2:
        _, connection = await asyncio.get_running_loop().create_connection(cls, *address)
        return connection

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # one request at a time

    async def ask(self, path: str, body: bytes) -> None:
        """POST it, and wait for the whole answer."""
        stream = self._begin()
        self._write(
            encode(HEADERS, END_HEADERS, stream, self._head(path))
            + encode(DATA, END_STREAM, stream, body)
        )
        while not self._is_over:
            await self._hear()
        self._check()

    def subscribe(self, path: str) -> int:
        """POST what goes on; the stream's number."""
        stream = self._begin()
        self._write(encode(HEADERS, END_HEADERS, stream, self._head(path)))
        return stream

    def say(self, stream: int, body: bytes, *, is_last: bool = False) -> None:
        self._write(encode(DATA, END_STREAM if is_last else 0, stream, body))

    async def heard(self) -> bytes:
        """What the answer has more, b"" once it has ended."""
        while not (self._text or self._is_over):
            await self._hear()
        self._check()
        text = b"".join(self._text)
        self._text.clear()
        return text

    # as a protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        window = INITIAL_WINDOW_SIZE.to_bytes(2, "big") + WINDOW_BYTES.to_bytes(4, "big")
        more = (WINDOW_BYTES - DEFAULT_WINDOW_BYTES).to_bytes(4, "big")
        self._write(PREFACE + encode(SETTINGS, 0, 0, window) + encode(WINDOW_UPDATE, 0, 0, more))

    def data_received(self, data: bytes) -> None:
        self._received += data
        for frame in take_frames(self._received):
            self._take(frame)
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._failure = self._failure or BadAnswer(f"the connection broke: {exc}")
        self._wake()

    # private

    def _take(self, frame: Frame) -> None:
        if frame.kind == HEADERS:
            fields = dict(self._decoder.decode(frame.body, raw=True))
            self._status = int(fields[b":status"])
        elif frame.kind == DATA:
            self._text.append(frame.body)
        elif frame.kind == SETTINGS and not frame.flags & ACK:
            self._write(encode(SETTINGS, ACK, 0))
        elif frame.kind == PING and not frame.flags & ACK:
            self._write(encode(PING, ACK, 0, frame.body))
        elif frame.kind in (RESET, GOAWAY):
            self._failure = BadAnswer(f"the server ends it: {frame}")
        if frame.kind in (HEADERS, DATA) and frame.flags & END_STREAM:
            self._is_over = True

    def _begin(self) -> int:
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        self._status, self._is_over = 0, False
        self._text.clear()
        return stream

    def _head(self, path: str) -> bytes:
        """From the second time on all of it is in the server's table, and so it stays the same for
        as long as nothing else is asked for."""
        if path == self._path:
            return self._again
        fields = [(":method", "POST"), (":scheme", "http"), (":authority", "bench")]
        fields.append((":path", path))
        first = self._encoder.encode(fields)
        self._path, self._again = path, self._encoder.encode(fields)
        return first

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def _hear(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _check(self) -> None:
        if self._status // 100 != 2:
            raise BadAnswer(f"{self._status}: {b''.join(self._text)[:300]!r}")


class Subscriber:
    """A subscription that acks what it is given; `came` is told the values."""

    def __init__(self, link: Http2, topic: str, credit: int) -> None:
        self._link = link
        self._stream = link.subscribe(f"/subscribe/{topic}?credit={credit}")
        self._over = asyncio.Event()
        self._was_given = False

    async def run(self, came: Callable[[list[bytes]], None]) -> None:
        """Until the server has said all. Raises BadAnswer for a line that is an error."""
        link, rest = self._link, b""
        link.say(self._stream, b'"INIT"')
        while text := await link.heard():
            *lines, rest = (rest + text).split(b"\n")
            values = [_value(line) for line in lines]
            self._was_given = self._was_given or bool(values)
            came(values)
            link.say(self._stream, b'"ACK"' * len(values))
        self._over.set()

    async def finish(self) -> None:
        """Return once all that was acked is: the server ends its side then. Who was never given
        anything would be given one first."""
        if not self._was_given:
            return
        self._link.say(self._stream, b"", is_last=True)
        await self._over.wait()


def publisher(link: Http2, topic: str) -> Callable[[bytes], Awaitable[None]]:
    return lambda value: link.ask(f"/publish/{topic}", value)


def _value(line: bytes) -> bytes:
    found = json.loads(line)
    if "msg" not in found:
        raise BadAnswer(f"a subscription was told {found}")
    return base64.b64decode(found["msg"])

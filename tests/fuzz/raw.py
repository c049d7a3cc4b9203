"""Requests that were sound once, on raw sockets: answered in HTTP or cut off, and never a crash."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from goqueue.wire.encoding import Record, encode_batch
from tests.fuzz.mutation import any_of

CONNECTIONS = 32
T = TypeVar("T")
WAITING_S = 0.4
"""Who has no answer by then is taken to wait for the rest of a request that was cut short."""
HEARD_S = 0.5
"""Who is not cut off by then is a client that the node still listens to."""
ANSWERED_S = 60.0
ANSWER_BYTES = 1 << 16
BY_DESIGN = {501, 503, 505, 507}
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


@dataclass
class Tally:
    """Answers by status; 0 where the connection was closed without one, or waits for more."""

    sent: int = 0
    statuses: Counter[int] = field(default_factory=Counter[int])
    defects: list[str] = field(default_factory=list[str])


def samples(topic: str, group: str) -> list[bytes]:
    """Sound requests of every kind of body."""
    message = {"value": "v", "key": "k", "headers": {"a": "b"}, "priority": "high", "delay": "1s"}
    batch = encode_batch([Record(value=b"x" * 50, key=b"k")] * 3)
    chunk = json.dumps(message).encode()
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk)
    chunks = b"POST /topics/%s/messages HTTP/1.1\r\nHost: x\r\n" % topic.encode()
    chunks += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked
    return [
        _request("GET", "/health"),
        _request("GET", f"/topics/{topic}/partitions/0/messages?offset=0&limit=5&wait=10ms"),
        _request("GET", f"/v1/topics/{topic}?a=%20b&c=%C3%A4"),
        _json("POST", f"/topics/{topic}/messages", message),
        _json("POST", f"/topics/{topic}/messages", {"messages": [message] * 3}),
        _json("POST", f"/groups/{group}/receive", {"topics": [topic], "limit": 3, "wait": "10ms"}),
        _json("POST", f"/groups/{group}/settle", {"settles": [{"receipt": "x", "action": "ack"}]}),
        _json("PUT", f"/groups/{group}", {"visibility_timeout": "5s", "max_attempts": 4}),
        _request(
            "POST",
            f"/topics/{topic}/partitions/0/messages",
            batch,
            "Content-Type: application/vnd.goqueue.batch",
        ),
        _request("GET", f"/ui/topics/{topic}/messages?partition=0&offset=1&page=2&q=a%20b"),
        _request("GET", f"/ui/messages?q={topic}:0:1&by=key&state=dead&from=2026-01-01T00:00"),
        _request(
            "POST",
            f"/ui/dead/{group}/{topic}",
            b"action=purge&step=do&token=x&plan=1.x&matched=1&reason=a",
            "Content-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin",
        ),
        chunks,
        _request("GET", "/health") + _request("GET", "/topics"),
    ]


async def fuzz(host: str, port: int, kept: list[bytes], rng: random.Random, count: int) -> Tally:
    """Sends so many mutations, each on a connection of its own, a few at once."""
    inputs = [any_of(kept, rng) for _ in range(count)]
    return await sent(inputs, partial(_send, host, port), CONNECTIONS)


async def sent(
    inputs: Iterable[T], send: Callable[[T, Tally], Awaitable[None]], at_once: int
) -> Tally:
    """Each input once, so many at a time."""
    tally, left = Tally(), iter(inputs)

    async def work() -> None:
        for data in left:
            tally.sent += 1
            await send(data, tally)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(work())
    return tally


class _Ear(asyncio.Protocol):
    """What a node says, also where it hangs up on who is still sending: a StreamReader forgets then
    what it had read."""

    def __init__(self, head: bytes) -> None:
        self.answer = bytearray()
        self.has_head = asyncio.Event()
        self.is_over = asyncio.Event()
        self._head = head

    def data_received(self, data: bytes) -> None:
        self.answer += data
        if self._head in self.answer:
            self.has_head.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.has_head.set()
        self.is_over.set()


async def heard(
    host: str, port: int, data: bytes, *, is_all: bool = False, head: bytes = b""
) -> bytes:
    """What the node says to this. With `is_all` it is told that nothing more comes; a `head` comes
    in any case. Raises TimeoutError where it does not."""
    loop = asyncio.get_running_loop()
    transport, ear = await loop.create_connection(lambda: _Ear(head), host, port)
    try:
        transport.write(data)
        if is_all:
            transport.write_eof()
        if head:
            async with asyncio.timeout(ANSWERED_S):
                await ear.has_head.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(HEARD_S):
                await ear.is_over.wait()
    finally:
        transport.close()
    return bytes(ear.answer)


async def _send(host: str, port: int, data: bytes, tally: Tally) -> None:
    answer = b""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(data)
        async with asyncio.timeout(WAITING_S):
            answer = await reader.read(ANSWER_BYTES)
    except (TimeoutError, ConnectionResetError, BrokenPipeError):
        pass
    finally:
        writer.close()
    if answer and not _STATUS.match(answer):
        tally.defects.append(f"no HTTP: {answer[:60]!r} to {data.hex()}")
    found = [int(status) for status in _STATUS.findall(answer)] or [0]
    tally.statuses.update(found)
    if any(status >= 500 and status not in BY_DESIGN for status in found):
        tally.defects.append(f"{found} to {data.hex()}")


def _json(method: str, path: str, body: object) -> bytes:
    return _request(method, path, json.dumps(body).encode(), "Content-Type: application/json")


def _request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    head = [f"{method} {path} HTTP/1.1", "Host: x", *headers, *length]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body

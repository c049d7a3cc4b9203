"""A keep-alive HTTP connection that costs the harness as little as it can.

Requests are bytes made beforehand; of an answer only the status, the head and the body are kept.
The same connection asks GoQueue and the bare aiohttp server, so their rows compare.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence


class BadAnswer(Exception):
    """An answer that isn't what the harness asked for; the run fails."""


class Connection(asyncio.Protocol):
    """One request at a time; `ask` returns (head, body) of a 2xx answer, or raises."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[tuple[bytes, bytes]] | None = None
        self._received = bytearray()
        self._body_at = 0
        self._length = 0

    @classmethod
    async def open(cls, address: tuple[str, int]) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, *address)
        return connection

    async def ask(self, request: bytes | Sequence[bytes]) -> tuple[bytes, bytes]:
        assert self._transport is not None and self._waiter is None
        self._waiter = asyncio.get_running_loop().create_future()
        if isinstance(request, bytes):
            self._transport.write(request)
        else:
            self._transport.writelines(request)
        return await self._waiter

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if not self._body_at:
            end = received.find(b"\r\n\r\n")
            if end < 0:
                return
            self._body_at = end + 4
            self._length = int(header(bytes(received[:end]), b"content-length") or b"-1")
            if self._length < 0:
                self._finish(BadAnswer(f"no content length: {bytes(received[:end])!r}"))
                return
        if len(received) < self._body_at + self._length:
            return
        head = bytes(received[: self._body_at])
        body = bytes(received[self._body_at : self._body_at + self._length])
        del received[:]
        self._body_at = 0
        if head[9:10] == b"2":
            self._finish((head, body))
        else:
            self._finish(BadAnswer(f"{head[:40]!r}: {body[:300]!r}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish(BadAnswer(f"the connection broke: {exc}"))

    def _finish(self, outcome: tuple[bytes, bytes] | BadAnswer) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is None or waiter.done():
            return
        if isinstance(outcome, BadAnswer):
            waiter.set_exception(outcome)
        else:
            waiter.set_result(outcome)


def header(head: bytes, name: bytes) -> bytes | None:
    """A header's value; `name` in lower case."""
    lower = head.lower()
    at = lower.find(b"\r\n" + name + b":")
    if at < 0:
        return None
    start = at + len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip()


def post(path: str, body: bytes, media_type: str) -> bytes:
    """The bytes of a POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {media_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str, accept: str = "application/json") -> bytes:
    """The bytes of a GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: bench\r\nAccept: {accept}\r\n\r\n".encode()

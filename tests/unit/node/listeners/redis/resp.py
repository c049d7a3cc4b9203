"""A client that speaks RESP over a plain socket, and shows replies as redis-cli does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

HOST = "127.0.0.1"
HEARD_S = 20.0


@dataclass(frozen=True)
class Status:
    text: str


@dataclass(frozen=True)
class Error:
    text: str


class Talker:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int) -> Talker:
        return cls(*await asyncio.open_connection(HOST, port, limit=1 << 25))

    def say(self, *words: str | bytes) -> None:
        self.writer.write(command(*words))

    async def ask(self, *words: str | bytes) -> Any:
        self.say(*words)
        return await self.hear()

    async def hear(self) -> Any:
        """The next reply: int, bytes, None, list, dict, `Status` or `Error`; EOFError at the
        end."""
        async with asyncio.timeout(HEARD_S):
            return await self._reply()

    async def is_over(self) -> bool:
        """Whether the server has closed it, with nothing left to say."""
        async with asyncio.timeout(HEARD_S):
            return not await self.reader.read(1)

    def close(self) -> None:
        self.writer.transport.abort()

    async def _reply(self) -> Any:
        line = await self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return Status(rest.decode())
        if kind == b"-":
            return Error(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"_" or rest == b"-1":
            return None
        if kind == b"$":
            return (await self.reader.readexactly(int(rest) + 2))[:-2]
        if kind == b"*":
            return [await self._reply() for _ in range(int(rest))]
        assert kind == b"%", line
        return {await self._reply(): await self._reply() for _ in range(int(rest))}


def command(*words: str | bytes) -> bytes:
    encoded = [word.encode() if isinstance(word, str) else word for word in words]
    head = b"*%d\r\n" % len(encoded)
    return head + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)


def shown(reply: Any, indent: str = "") -> list[str]:
    """Lines as redis-cli prints them on a terminal."""
    if isinstance(reply, Status):
        return [reply.text]
    if isinstance(reply, Error):
        return [f"(error) {reply.text}"]
    if isinstance(reply, bytes):
        return [f'"{reply.decode(errors="backslashreplace")}"']
    if isinstance(reply, int):
        return [f"(integer) {reply}"]
    if reply is None:
        return ["(nil)"]
    if isinstance(reply, dict):
        reply = [one for pair in reply.items() for one in pair]
    if not reply:
        return ["(empty array)"]
    lines: list[str] = []
    for number, one in enumerate(reply, 1):
        head = f"{number}) "
        first, *rest = shown(one, indent + " " * len(head))
        lines += [head + first, *(" " * len(head) + line for line in rest)]
    return lines

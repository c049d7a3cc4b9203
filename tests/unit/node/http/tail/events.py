"""A reader of server-sent events, which sees each block as it comes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from node.http.server.app import HttpFront


@dataclass
class Event:
    """A block: what stands before its blank line."""

    id: str | None = None
    event: str = "message"
    data: Any = None
    comment: str | None = None
    retry: str | None = None


class Reader:
    """One open stream."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.answer = answer
        self.last_id = ""

    async def next(self) -> Event | None:
        """The next block; None after the last."""
        found, is_empty = Event(), True
        while line := (await self.answer.content.readline()).decode():
            if line == "\n":
                self.last_id = found.id or self.last_id
                return found
            is_empty = False
            name, _, value = line.rstrip("\n").partition(":")
            value = value.removeprefix(" ")
            setattr(found, name or "comment", json.loads(value) if name == "data" else value)
        assert is_empty, "cut off in the middle of an event"
        return None

    async def values(self, count: int) -> list[str]:
        """Of the next messages."""
        found: list[str] = []
        while len(found) < count:
            event = await self.next()
            assert event is not None and event.event == "message", event
            if event.data is not None:
                found.append(event.data["value"])
        return found

    async def end(self) -> Any:
        """What the stream says last, whatever comes before it."""
        event, last = await self.next(), None
        while event is not None:
            event, last = await self.next(), event
        assert last is not None and last.event == "end", last
        return last.data


@asynccontextmanager
async def tailing(
    front: HttpFront, query: str = "", headers: Mapping[str, str] | None = None
) -> AsyncIterator[Reader]:
    """A tail of `orders` that has begun."""
    url = URL(f"http://127.0.0.1:{front.port}/v1/topics/orders/tail?{query}", encoded=True)
    async with (
        aiohttp.ClientSession(read_bufsize=1 << 22) as session,
        session.get(url, headers=headers) as answer,
    ):
        assert answer.status == 200, await answer.read()
        reader = Reader(answer)
        begun = await reader.next()
        assert begun is not None and begun.retry == "1000", begun
        yield reader

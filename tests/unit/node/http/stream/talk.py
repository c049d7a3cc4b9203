"""A client of a stream: aiohttp's WebSocket, frame by frame."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from node.http.server.app import HttpFront
from tests.one_node import eventually

HEARD_S = 120.0
"""By the loop's clock, which tests move on by tens of seconds while one listens."""
QUIET_TURNS = 30


async def answered(front: HttpFront, silent: int = 0) -> None:
    """Return when all clients but so many have answered the pings that were sent to them: how soon
    an answer comes is the system's matter."""

    def is_so() -> bool:
        waiting = (
            session._pinged_s > session.connection.heard_s
            for session in front._streams._open
            if session._end is None
        )
        return sum(waiting) <= silent

    await eventually(is_so)


async def passed(clock: Any, front: HttpFront, seconds: int, silent: int = 0) -> None:
    """So much time, while all clients but so many answer pings."""
    for _ in range(2 * seconds):
        await clock.pass_ms(500)
        await answered(front, silent)


class Talker:
    """One open WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse[bool]) -> None:
        self.socket = socket
        self.answers = True
        """Whether it answers pings, as long as it listens."""
        self._last_id = 0
        self._early: list[Any] = []
        """Frames with messages that came while something else was waited for."""

    async def say(self, kind: str, **fields: Any) -> None:
        await self.socket.send_json({"type": kind, **fields})

    async def next(self) -> Any:
        """The next frame; None once the connection is closed."""
        message = await self.socket.receive(HEARD_S)
        return json.loads(message.data) if message.type is aiohttp.WSMsgType.TEXT else None

    async def hear(self, kind: str) -> Any:
        """The next frame, which is of this type; messages may come before it."""
        if kind == "messages" and self._early:
            return self._early.pop(0)
        found = await self.next()
        while kind != "messages" and found is not None and found["type"] == "messages":
            self._early.append(found)
            found = await self.next()
        assert found is not None and found["type"] == kind, (found, self.socket.close_code)
        return found

    async def subscribe(self, **fields: Any) -> Any:
        await self.say("subscribe", **fields)
        return await self.hear("subscribed")

    async def quiet(self) -> bool:
        """Whether nothing comes for a while of the loop's turns."""
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0.001)
        return not (self._early or self.socket._reader._buffer)

    async def idle(self) -> None:
        """Listen until cancelled; messages that come are kept."""
        while (found := await self.next()) is not None:
            self._early.append(found)

    async def take(self, count: int) -> list[dict[str, Any]]:
        """So many messages, in as many frames as they come."""
        found: list[dict[str, Any]] = []
        while len(found) < count:
            found += (await self.hear("messages"))["messages"]
        assert len(found) == count, found
        return found

    async def settle(self, action: str, *messages: Mapping[str, Any], **more: Any) -> int:
        """Say what becomes of them; the frame's id."""
        self._last_id += 1
        settles = [{"receipt": one["receipt"], "action": action, **more} for one in messages]
        await self.say("settle", id=self._last_id, settles=settles)
        return self._last_id

    async def settled(self, action: str, *messages: Mapping[str, Any], **more: Any) -> Any:
        """As `settle`; its confirmation, which is the next one."""
        id = await self.settle(action, *messages, **more)
        told = await self.hear("settled")
        assert told["id"] == id
        return told

    async def closed(self) -> int | None:
        """The code that it is closed with, when no frame comes any more."""
        assert await self.next() is None
        return self.socket.close_code


@asynccontextmanager
async def talking(
    front: HttpFront, group: str = "workers", **options: Any
) -> AsyncIterator[Talker]:
    """A WebSocket of the group, open and not subscribed."""
    url = f"http://127.0.0.1:{front.port}/v1/groups/{group}/stream"
    options = {"compress": 15, "max_msg_size": 1 << 26, **options}
    async with aiohttp.ClientSession() as session, session.ws_connect(url, **options) as socket:
        yield Talker(socket)

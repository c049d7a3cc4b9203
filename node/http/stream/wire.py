"""A WebSocket as a stream writes to it: never more than the client takes."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import WSMsgType, web

from node.http.connections.client import Client

LAST_WORDS_S = 2.0
"""How long a client may take to be told why its stream ends, and to answer that it is closed."""


class Wire:
    """Frames to one client. Loop thread only."""

    def __init__(self, socket: web.WebSocketResponse[bool], client: Client) -> None:
        self._socket = socket
        self._client = client

    async def tell(self, frame: bytes, *, is_binary: bool = False) -> None:
        """Send it once the client has taken what came before, but for what its connection may hold
        unsent. Raises ConnectionError."""
        await self.taken()
        await self._socket.send_frame(frame, WSMsgType.BINARY if is_binary else WSMsgType.TEXT)

    async def taken(self) -> None:
        """Return when the client has taken what was told, as above. Raises ConnectionError."""
        await self._client.is_taken()
        self._client.went_on()

    async def answer_ping(self, payload: bytes) -> None:
        """Raises ConnectionError."""
        await self.taken()
        await self._socket.pong(payload)

    async def last_words(self, frame: bytes) -> None:
        """As `tell`, to a client that may take nothing any more. Raises nothing."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_S):
                await self.tell(frame)

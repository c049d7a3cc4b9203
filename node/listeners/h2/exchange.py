"""One request and its answer, both of which may go on for as long as both sides like."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from h2.errors import ErrorCodes

from goqueue.wire.errors import GoQueueError
from node.http.budget.memory import Held
from node.listeners.h2.heads import Head

PIECE_BYTES = 1 << 14
"""Of an answer: what every client takes in a frame."""
SERVER = (b"server", b"goqueue")


class Hangup(ConnectionResetError):
    """Nobody is there any more to read the answer, or to send the rest of the request."""


class Lasting(Protocol):
    """Work on a request that lasts, and is looked after."""

    def look(self, now_s: float) -> None:
        """From time to time."""
        ...

    def stop(self) -> None:
        """This node stops: the answer is to end."""
        ...


class Line(Protocol):
    """The connection of an exchange, as it is used here."""

    def room(self, stream: int) -> int:
        """How much of this answer the client takes now."""
        ...

    async def drained(self) -> None:
        """Return when the socket takes more. Raises ConnectionError."""
        ...

    def begin(self, stream: int, fields: list[tuple[bytes, bytes]], *, is_last: bool) -> None: ...

    def send(self, stream: int, data: bytes | memoryview, *, is_last: bool) -> None: ...

    def took(self, stream: int, size: int) -> None:
        """So much of the request was read."""
        ...

    def reset(self, stream: int, code: ErrorCodes) -> None: ...

    def earn(self) -> None:
        """Something was told: as much more may be asked."""
        ...


class Exchange:
    """The server's side of one stream of HTTP/2. Loop thread only.

    The request's body is charged to `held` while nobody has read it. An answer's piece has to be
    taken within `patience_s`, and what `bytes_per_s` come to.
    """

    def __init__(
        self,
        stream: int,
        head: Head | GoQueueError,
        line: Line,
        held: Held,
        patience_s: float,
        bytes_per_s: int,
    ) -> None:
        self.stream = stream
        self.head = head
        """Or why it is none."""
        self.lasting: Lasting | None = None
        self.taken_by_s = 0.0
        """When the client must have taken what it is being sent; 0 while that is nothing."""
        self.arrives_by_s = 0.0
        """When the rest of the body must be here; 0 where that may take any time."""
        self.began_s = asyncio.get_running_loop().time()
        self.is_answered = False
        """Whether the answer has ended."""
        self.is_begun = False
        self.is_whole = False
        """Whether the client has sent all of its request."""
        self.is_gone = False
        self.received_bytes = 0
        self._line = line
        self._held = held
        self._patience_s = patience_s
        self._bytes_per_s = bytes_per_s
        self._pieces: list[tuple[bytes, int]] = []
        self._unread = 0
        """Of what was read last."""
        self._refused: GoQueueError | None = None
        self._arrived = asyncio.Event()
        self._eased = asyncio.Event()
        self._hangup = asyncio.Event()

    # as its connection tells

    def came(self, data: bytes, size: int) -> None:
        """A piece of the request's body."""
        self.received_bytes += len(data)
        if self._refused is None:
            try:
                self._held.grow(size)
            except GoQueueError as error:
                self._refused = error
                self._arrived.set()
        if self._refused is not None or not data or self.is_answered:
            self._line.took(self.stream, size)
            if self._refused is None:
                self._held.shrink(size)
            return
        self._pieces.append((data, size))
        self._arrived.set()

    def ended(self) -> None:
        self.is_whole = True
        self.arrives_by_s = 0.0
        self._arrived.set()

    def gone(self) -> None:
        """Nobody is there any more. Idempotent."""
        self.is_gone = True
        self._hangup.set()
        self.ease()
        self._arrived.set()

    def ease(self) -> None:
        """The client may take more."""
        self._eased.set()

    def fail(self, error: GoQueueError) -> None:
        """The request can't go on: who reads it is told."""
        self._refused = self._refused or error
        self._arrived.set()

    # as it is worked on

    async def read(self) -> bytes:
        """What has come of the body, b"" after the last; as much as was read last may come anew
        then. Raises Hangup once all is read that came before it, and OverBudget or RequestTimeout
        where the body can't be had."""
        if self._unread:
            self._held.shrink(self._unread)
            size, self._unread = self._unread, 0
            self._line.took(self.stream, size)
        while True:
            if self._pieces:
                data = b"".join(piece for piece, _ in self._pieces)
                self._unread = sum(size for _, size in self._pieces)
                self._pieces.clear()
                return data
            if self._refused is not None:
                raise self._refused
            if self.is_whole:
                return b""
            if self.is_gone:
                raise Hangup("the client has taken its request back")
            self._arrived.clear()
            await self._arrived.wait()

    def is_of(self, holder: str) -> None:
        """It is known who asks: what has come, and what comes, is charged to that one. Raises
        OverBudget."""
        self._held.hand_over(holder)

    def hurry(self, grace_s: float) -> None:
        """The rest of the body must come in time."""
        if not self.is_whole:
            self.arrives_by_s = asyncio.get_running_loop().time() + grace_s

    def earn(self) -> None:
        self._line.earn()

    async def hung_up(self) -> None:
        """Return once nobody is there any more."""
        await self._hangup.wait()

    def begin(
        self, status: int, fields: Mapping[str, str] | None = None, *, is_last: bool = False
    ) -> None:
        """The head of the answer. Raises Hangup."""
        if self.is_gone:
            raise Hangup
        lines = [(b":status", str(status).encode()), SERVER]
        lines += [
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in (fields or {}).items()
        ]
        self._line.begin(self.stream, lines, is_last=is_last)
        self.is_begun, self.is_answered = True, is_last

    async def say(self, data: bytes, *, is_last: bool = False) -> None:
        """A piece of the answer's body; returns once it is on its way. Raises Hangup."""
        rest = memoryview(data)
        loop = asyncio.get_running_loop()
        self.taken_by_s = loop.time() + self._patience_s + len(data) / self._bytes_per_s
        try:
            while True:
                await self._line.drained()
                if self.is_gone:
                    raise Hangup
                room = min(self._line.room(self.stream), PIECE_BYTES)
                if not rest or room > 0:
                    piece, rest = rest[: max(0, room)], rest[max(0, room) :]
                    ends = is_last and not rest
                    self._line.send(self.stream, piece, is_last=ends)
                    self.is_answered = ends
                    if not rest:
                        return
                else:
                    self._eased.clear()
                    await self._eased.wait()
        finally:
            self.taken_by_s = 0.0

    async def room(self) -> int:
        """How much of the answer the client takes, once that is anything, however long that may be.
        Raises Hangup."""
        while True:
            await self._line.drained()
            if self.is_gone:
                raise Hangup
            room = self._line.room(self.stream)
            if room > 0:
                return room
            self._eased.clear()
            await self._eased.wait()

    def close(self) -> None:
        """Nothing more is done with it; what is not told by now never is. Idempotent."""
        if not self.is_gone:
            if not self.is_answered:
                self._line.reset(self.stream, ErrorCodes.INTERNAL_ERROR)
            elif not self.is_whole:
                self._line.reset(self.stream, ErrorCodes.NO_ERROR)
        self.is_gone = True
        for _, size in self._pieces:
            self._line.took(self.stream, size)
        if self._unread:
            self._line.took(self.stream, self._unread)
        self._pieces.clear()
        self._unread = 0
        self._held.release()

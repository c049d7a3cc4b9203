"""The other end of a request, as handlers know it: a connection, or a program in this process."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from aiohttp.web import BaseRequest

from node.http.budget.memory import Held


class Client(Protocol):
    """Takes an answer, and may be gone before. What is held for it is given back after that."""

    is_known: bool
    """Whether it has shown that it may come in."""

    def hold(self, held: Held) -> None:
        """Give this back once the answer is taken, or nobody is there to take it."""
        ...

    @property
    def is_holding(self) -> bool: ...

    def took(self, size: int) -> None:
        """It has taken so much of its answer."""
        ...

    def went_on(self) -> None:
        """It has taken some of an answer without end: it does not stand still."""
        ...

    def waited(self, seconds: float) -> None:
        """It had to wait for the next piece: that is not its time."""
        ...

    async def is_taken(self) -> None:
        """Return when it can take more. Raises ConnectionError."""
        ...

    def hung_up(self) -> asyncio.Future[None]:
        """Done once it is gone. It is shared: don't cancel it."""
        ...

    def have_in_hand(self, size: int) -> None:
        """So much was read of a body, and is not charged to who sends it: it counts as unread."""
        ...

    def end(self) -> None:
        """A request was handled."""
        ...


def client_of(request: BaseRequest) -> Client:
    return cast(Client, request.protocol)


class LocalClient:
    """A program in this process, for one request: it is known, and takes all at once.

    It is what aiohttp's requests and streams expect of a protocol, too.
    """

    ssl_context = None
    peername = None
    sockname = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_known = True
        self.transport: LocalClient | None = self
        """None once it has given up, as a closed connection's is."""
        self._hung_up: asyncio.Future[None] = loop.create_future()
        self._held: list[Held] = []

    def give_up(self) -> None:
        """Nobody waits for the answer any more. Idempotent."""
        self.transport = None
        if not self._hung_up.done():
            self._hung_up.set_result(None)

    def let_go(self) -> None:
        """The answer is taken, or never will be."""
        while self._held:
            self._held.pop().release()

    # as a `Client`

    def hold(self, held: Held) -> None:
        if held not in self._held:
            self._held.append(held)

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def took(self, size: int) -> None:
        return None

    def went_on(self) -> None:
        return None

    def waited(self, seconds: float) -> None:
        return None

    async def is_taken(self) -> None:
        if self.transport is None:
            raise ConnectionResetError("the caller has given up")

    def hung_up(self) -> asyncio.Future[None]:
        return self._hung_up

    def have_in_hand(self, size: int) -> None:
        return None

    def end(self) -> None:
        return None

    # as a stream's protocol

    def resume_reading(self, resume_parser: bool = True) -> None:
        return None

    def pause_reading(self) -> None:
        return None

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default

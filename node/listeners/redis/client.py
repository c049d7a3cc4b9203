"""One client of the listener: its connection, who it is, and what it has said of itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Protocol, TypeVar

from node.api.broker import Broker
from node.http.budget.memory import Held, Kind
from node.listeners.redis.receipts import KnownReceipts
from node.listeners.redis.replies import Reply
from node.listeners.requests import Observed, Requests
from node.listeners.waiting import long_poll
from node.listeners.wire import Wire

T = TypeVar("T")


class Subscription(Protocol):
    """See `node.listeners.redis.miniqueue`."""

    def heard(self, said: list[bytes]) -> AsyncIterator[Reply]:
        """What the client is answered; what is there is sent before the next is waited for."""
        ...

    async def end(self) -> None:
        """Its client is gone, or leaves."""
        ...


class Client:
    """What commands work with. Loop thread only."""

    def __init__(self, number: int, wire: Wire, requests: Requests) -> None:
        self.number = number
        """Its id: given out once by this run of the node."""
        self.wire = wire
        self.requests = requests
        self.caller = requests.caller(wire.peer, wire)
        self.resp3 = False
        self.name = ""
        self.library: dict[str, str] = {}
        self.is_introduced = False
        """Whether it has spoken as Redis' own clients do when they connect. One that has not may be
        miniqueue's: where the two protocols answer differently, it gets miniqueue's answer."""
        self.is_leaving = False
        """Whether it has said QUIT, or was told something that ends its connection."""
        self.subscription: Subscription | None = None
        """What it is subscribed to in miniqueue's way: its words are about that message then."""
        self.receipts = KnownReceipts()
        self.groups: dict[tuple[str, str], float] = {}
        """Streams and groups that were there lately, and until when nobody looks again."""
        self._held: list[Held] = []

    @property
    def broker(self) -> Broker:
        """The node's, as far as the client's key reaches."""
        return self.caller.broker

    async def admit(self, operation: str, topic: str | None = None) -> None:
        """See `Requests.admit`."""
        await self.requests.admit(self.caller, operation, topic)
        self.wire.is_known()

    def observed(self, name: str, operation: str, target: str = "", count: int = 1) -> Observed:
        """See `Requests.observed`."""
        return self.requests.observed(self.caller, name, operation, target, count)

    def hold(self, kind: Kind, size: int = 0) -> Held:
        """A charge until the answer is written. Raises OverBudget."""
        held = self.requests.hold(self.caller, kind, size)
        self._held.append(held)
        return held

    def keep(self, held: Held) -> None:
        """What is held now is given back once the answer is written, and not by who holds it."""
        if held.size:
            self._held.append(held.split(held.size))

    def let_go(self) -> None:
        """The answer is written, or nobody is there."""
        while self._held:
            self._held.pop().release()

    async def waited(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work returns; None if the client goes, or the node stops, before."""
        return await long_poll(self.requests, self.caller, work, self.wire.said_all())

    @property
    def is_gone(self) -> bool:
        return self.wire.hung_up().done()

    @property
    def is_stopping(self) -> bool:
        return self.requests.parts.stopping.is_set()

    @property
    def loop_s(self) -> float:
        return asyncio.get_running_loop().time()

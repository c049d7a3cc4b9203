"""A client's way to a broker in the same process, without a socket."""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager

from goqueue.local.engine import Ask, answer_of
from goqueue.transport.channel import Answer, Request, Socket, Streamed
from goqueue.wire.errors import BadRequest


class MemoryChannel:
    """Implements `Channel`. Nothing of it is open: it may be used on one event loop after the
    other, and need not be closed."""

    servers = ("broker",)

    def __init__(self, ask: Ask, seed: int = 0) -> None:
        """With the same `seed` a client begins its turns of partitions with the same one."""
        self._ask = ask
        self.chance = random.Random(seed)

    async def connect(self) -> None:
        return None

    async def ask(self, server: str, request: Request, timeout_s: float) -> Answer:
        late = (
            f"no answer in {timeout_s:g} s: a broker's time stands still, and what waits for it"
            " waits until the test moves it (broker.clock.advance)"
        )
        return await answer_of(self._ask, request, timeout_s, late)

    def stream(
        self, server: str, request: Request, quiet_s: float
    ) -> AbstractAsyncContextManager[Streamed]:
        """Answers without an end go over sockets, which wait for what is not virtual: raises
        BadRequest."""
        raise BadRequest("what is followed comes over the broker's port: Client(broker.url)")

    def socket(
        self, server: str, request: Request, answer_s: float, quiet_s: float
    ) -> AbstractAsyncContextManager[Socket | Answer]:
        """As of `stream`."""
        raise BadRequest("what is pushed comes over the broker's port: Client(broker.url)")

    async def close(self) -> None:
        return None

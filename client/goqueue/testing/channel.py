"""A client's way to a broker in the same process, without a socket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from urllib.parse import urlencode

from goqueue.local.engine import EngineAnswer
from goqueue.transport.channel import Answer, Request, Streamed
from goqueue.wire.errors import BadRequest, Timeout

Ask = Callable[[str, str, Mapping[str, str], bytes], Future[EngineAnswer]]


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
        target = request.path
        if request.params:
            target += f"?{urlencode(request.params)}"
        told = self._ask(request.method, target, request.headers, request.body or b"")
        try:
            async with asyncio.timeout(timeout_s):
                answer = await asyncio.wrap_future(told)
        except TimeoutError:
            raise Timeout(
                f"no answer in {timeout_s:g} s: a broker's time stands still, and what waits for it"
                " waits until the test moves it (broker.clock.advance)"
            ) from None
        return Answer(answer.status, answer.headers, answer.body)

    @asynccontextmanager
    async def stream(
        self, server: str, request: Request, quiet_s: float
    ) -> AsyncGenerator[Streamed, None]:
        """Answers without an end go over sockets, which wait for what is not virtual: raises
        BadRequest."""
        raise BadRequest("what is followed comes over the broker's port: Client(broker.url)")
        yield  # pragma: no cover

    async def close(self) -> None:
        return None

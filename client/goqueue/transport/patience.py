"""Waiting for answers that a leader confirms: what is stale is asked for again, never believed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from goqueue.transport.http import Transport
from goqueue.wire.errors import Unavailable

T = TypeVar("T")


class Patience:
    """Bounds how long who reads to an end waits for a leader to confirm it: for as long as a call
    may take since anything has come."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._attempts = 0
        self._until_s: float | None = None

    def renew(self) -> None:
        """Something has come."""
        self._attempts, self._until_s = 0, None

    async def pause(self, what: str) -> None:
        """Before the same is asked again, of another server where there is one.

        Raises `Unavailable`, which may be tried again, once it has taken too long."""
        now_s = asyncio.get_running_loop().time()
        timeout_s = self._transport.timeout_s
        if self._until_s is None:
            self._until_s = now_s + timeout_s
        self._attempts += 1
        pause_s = self._transport.pause_s(self._attempts)
        if now_s + pause_s > self._until_s:
            raise Unavailable(
                f"{what}: no leader has confirmed for {timeout_s:g} s that there is no more; "
                "what came until now is sound, and reading may go on from there"
            )
        self._transport.turn_away()
        await asyncio.sleep(pause_s)


async def confirmed(
    transport: Transport, what: str, ask: Callable[[], Awaitable[tuple[T, bool]]]
) -> T:
    """The first answer that is not stale, as `ask` tells it of each. Raises `Unavailable`."""
    patience = Patience(transport)
    while True:
        found, is_stale = await ask()
        if not is_stale:
            return found
        await patience.pause(what)

"""Receives that settle what came before, in the same request where the cluster knows how.

A node that does not would take no notice of the settles: so the cluster's feature level is asked
for first, and where it is too low they are a request of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from goqueue.models.queued import MessageBody
from goqueue.models.settles import SettleResult
from goqueue.queue.settle_results import decode_rows
from goqueue.queue.settling import Body, Settling, settle_left
from goqueue.transport.calls import Calls, decode
from goqueue.transport.http import join
from goqueue.wire.errors import GoQueueError

LEVEL = 2
"""The feature level from which on receives settle."""
ASK_AGAIN_S = 30.0
"""How long a lower level is believed in. It never falls."""
NOT_FINISHED = "level_not_finished"


class _Messages(msgspec.Struct):
    messages: list[MessageBody]
    settle_results: list[dict[str, Any]] = []


class _Version(msgspec.Struct):
    level: int = 1


class ReceiveRequests:
    """Receives of one client on their way."""

    def __init__(self, calls: Calls, settling: Settling) -> None:
        self._calls = calls
        self._settling = settling
        self._knows_how = False
        self._asked_s = float("-inf")

    async def receive(
        self,
        group: str,
        asked: dict[str, object],
        wait_s: float,
        timeout_s: float | None,
        settles: Sequence[Body] = (),
    ) -> tuple[list[MessageBody] | GoQueueError, list[SettleResult]]:
        """What came, or why nothing did, and what became of each of the settles."""
        told: list[SettleResult] = []
        if settles and not await self._can_settle():
            told = await self._settling.settle(group, settles)
            settles = ()
        try:
            found = await self._ask(group, asked, settles, wait_s, timeout_s)
        except GoQueueError as error:
            if not settles:
                return error, told
            results = error.data.pop("settle_results", None)
            told = await self._told(group, settles, results)
            # A node that has not heard of the level, or one that has settled and nothing else.
            if error.code == NOT_FINISHED or (error.retriable and results is not None):
                return (await self.receive(group, asked, wait_s, timeout_s))[0], told
            return error, told
        if settles:
            told = await self._told(group, settles, found.settle_results)
        return found.messages, told

    # -- private

    async def _ask(
        self,
        group: str,
        asked: dict[str, object],
        settles: Sequence[Body],
        wait_s: float,
        timeout_s: float | None,
    ) -> _Messages:
        answer = await self._calls.post(
            "POST",
            join("groups", group, "receive"),
            {**asked, "settle": settles} if settles else asked,
            wait_s=wait_s,
            timeout_s=timeout_s,
        )
        return decode(answer.body, _Messages)

    async def _told(
        self, group: str, settles: Sequence[Body], results: object
    ) -> list[SettleResult]:
        known: list[SettleResult | None] = [None] * len(settles)
        if isinstance(results, list) and len(results) == len(settles):
            known[:] = decode_rows(results)
        return await settle_left(
            known, lambda left: self._settling.settle(group, [settles[row] for row in left])
        )

    async def _can_settle(self) -> bool:
        now_s = asyncio.get_running_loop().time()
        if not self._knows_how and now_s >= self._asked_s + ASK_AGAIN_S:
            try:
                found = await self._calls.get("/version", _Version)
            except GoQueueError:
                return False  # two requests tell better what is wrong
            self._knows_how, self._asked_s = found.level >= LEVEL, now_s
        return self._knows_how

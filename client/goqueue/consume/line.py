"""Which way a consumer's settles and heartbeats go: up its stream while it has one, else as
requests of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from goqueue.models.groups import MemberAnswer, TopicPartition
from goqueue.models.settles import Settle, SettleResult
from goqueue.queue.settling import is_unknown, may_succeed, settle_left
from goqueue.stream.connection import Ended, Stream
from goqueue.wire.errors import NotInFlight

if TYPE_CHECKING:
    from goqueue.api.client import AsyncClient

log = logging.getLogger(__name__)


class Line:
    """`stream` is the one that lives, if any."""

    def __init__(self, client: AsyncClient, group: str) -> None:
        self._client = client
        self._group = group
        self.stream: Stream | None = None

    async def settle(
        self, settles: Sequence[Settle], place: TopicPartition | None = None
    ) -> list[SettleResult]:
        """As `AsyncClient.settle`. What fails for now goes up the stream again: a request would
        free no credit. What has no answer when the stream ends, or is too large for it, is settled
        by a request."""
        known: list[SettleResult | None] = [None] * len(settles)
        stream = self.stream
        if stream is not None:
            try:
                async with asyncio.timeout(self._client.transport.timeout_s):
                    await self._send_up(stream, settles, known)
            except TimeoutError:
                log.warning("a stream that confirms nothing is left for another one")
                await stream.close()
            told = [found for found in known if found is not None]
            if self.stream is stream and len(told) == len(known):
                return told
        return await settle_left(
            known,
            lambda left: self._client.settle(
                self._group, [settles[row] for row in left], partition=place
            ),
        )

    async def heartbeat(
        self,
        member: str,
        *,
        revision: str | None,
        wait_s: float,
        let_go: Sequence[TopicPartition],
        answer_s: float,
    ) -> MemberAnswer:
        """As `AsyncClient.heartbeat`, by a stream of this member while it lives."""
        stream = self.stream
        if stream is not None and stream.member == member:
            with suppress(Ended):
                return await stream.heartbeat(revision, wait_s, let_go, answer_s)
            revision, wait_s = None, 0.0
        return await self._client.heartbeat(
            self._group,
            member,
            revision=revision,
            wait=wait_s,
            let_go=let_go,
            timeout_s=answer_s,
        )

    async def _send_up(
        self, stream: Stream, settles: Sequence[Settle], known: list[SettleResult | None]
    ) -> None:
        """Fill in what was told; what failed for now is repeated while the stream lives."""
        transport = self._client.transport
        bodies = [settle.to_body() for settle in settles]
        left, doubtful = list(range(len(bodies))), set[int]()
        for attempt in range(1, transport.retry.attempts_max + 1):
            found = await stream.settle([bodies[row] for row in left])
            for row, result in zip(left, found, strict=True):
                if isinstance(result, NotInFlight) and row in doubtful:
                    result.outcome = "unknown"
                known[row] = result
            left = [row for row in left if (told := known[row]) is not None and may_succeed(told)]
            if not left or self.stream is not stream or attempt == transport.retry.attempts_max:
                return
            doubtful.update(
                row for row in left if (told := known[row]) is not None and is_unknown(told)
            )
            await asyncio.sleep(transport.pause_s(attempt))

"""Requests that settle, repeated as far as they failed for now; calls for one message share them.

Calls for one message each that are made while a request to the group's share of the same partition
is on its way go together in the next one. Partitions do not wait for each other: one without a
leader delays only its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from goqueue.models.queued import Leased
from goqueue.models.settles import SETTLES_MAX, Settle, Settled, SettleResult
from goqueue.queue.settle_results import decode_settles
from goqueue.transport.calls import Calls
from goqueue.transport.http import join
from goqueue.transport.sharing import SharedRequests
from goqueue.wire.errors import GoQueueError, NotInFlight

Body = dict[str, object]
Place = tuple[str, str, int]
"""A group, a topic and a partition."""
REQUEST_CHARACTERS_MAX = 150_000
"""Of the settles that share a request: some 1,000 acks, and within a server's bound of 1 MiB
whatever reasons hold, as JSON takes up to six bytes a character. A larger one goes alone."""
SETTLE_CHARACTERS = 100
"""Beside its receipt and its reason, about."""


class Settling:
    """Settles on their way to a cluster."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._shared: SharedRequests[Place, Body, Settled] = SharedRequests(
            self._send_shared, _fitting, calls.transport.timeout_s
        )

    async def settle_one(self, message: Leased, settle: Settle) -> SettleResult:
        """What became of one message's receipt. Raises BadRequest on what can't be meant."""
        body = settle.to_body()
        return await self._shared.call((message.group, message.topic, message.partition), body)

    async def settle(
        self,
        group: str,
        bodies: Sequence[Body],
        timeout_s: float | None = None,
        towards: tuple[str, int] | None = None,
    ) -> list[SettleResult]:
        """One request with up to `SETTLES_MAX` settles, as they travel, and the results in their
        order; `towards` is the partition that all of them are of, where that is known.

        Repeats what failed for now, such as the part of one partition without a leader.
        """
        loop, transport = asyncio.get_running_loop(), self._calls.transport
        deadline = loop.time() + (transport.timeout_s if timeout_s is None else timeout_s)
        results = await self._ask(group, bodies, timeout_s, towards)
        doubtful: set[int] = set()
        for attempt in range(1, transport.retry.attempts_max):
            failed = [row for row, found in enumerate(results) if may_succeed(found)]
            pause_s = transport.pause_s(attempt)
            if not failed or len(failed) == len(bodies) or loop.time() + pause_s >= deadline:
                break
            doubtful.update(row for row in failed if is_unknown(results[row]))
            await asyncio.sleep(pause_s)
            left_s = None if timeout_s is None else deadline - loop.time()
            again = await self._ask(group, [bodies[row] for row in failed], left_s, towards)
            for row, found in zip(failed, again, strict=True):
                if isinstance(found, NotInFlight) and row in doubtful:
                    found.outcome = "unknown"
                results[row] = found
        return results

    async def close(self) -> None:
        """Calls that wait for a request to share fail as closed. Idempotent."""
        await self._shared.close()

    async def _send_shared(
        self, place: Place, bodies: Sequence[Body], timeout_s: float
    ) -> list[SettleResult]:
        return await self.settle(place[0], bodies, timeout_s, (place[1], place[2]))

    async def _ask(
        self,
        group: str,
        bodies: Sequence[Body],
        timeout_s: float | None,
        towards: tuple[str, int] | None,
    ) -> list[SettleResult]:
        try:
            answer = await self._calls.post(
                "POST",
                join("groups", group, "settle"),
                {"settles": bodies},
                repeatable=True,
                timeout_s=timeout_s,
                towards=towards,
            )
            return decode_settles(answer, len(bodies))
        except GoQueueError as error:
            return [error] * len(bodies)


def _fitting(bodies: Iterable[Body]) -> int:
    """How many go in one request, from the first on."""
    count = characters = 0
    for body in bodies:
        characters += len(str(body["receipt"])) + len(str(body.get("reason", "")))
        characters += SETTLE_CHARACTERS
        if count and (count == SETTLES_MAX or characters > REQUEST_CHARACTERS_MAX):
            break
        count += 1
    return count


async def settle_left(
    known: Sequence[SettleResult | None],
    again: Callable[[list[int]], Awaitable[list[SettleResult]]],
) -> list[SettleResult]:
    """All results, where those are `known` that an answer told: the rows that it did not tell, and
    those that may succeed yet, are settled `again`, which is safe. But one that is no longer in
    flight then may have been settled by the first request."""
    results = list(known)
    left = [row for row, found in enumerate(known) if found is None or may_succeed(found)]
    for row, found in zip(left, await again(left) if left else [], strict=True):
        before = known[row]
        if isinstance(found, NotInFlight) and (before is None or is_unknown(before)):
            found.outcome = "unknown"
        results[row] = found
    return [found for found in results if found is not None]


def may_succeed(result: SettleResult) -> bool:
    """Whether it failed for now."""
    return isinstance(result, GoQueueError) and result.retriable


def is_unknown(result: SettleResult) -> bool:
    """Whether it may have been done all the same."""
    return isinstance(result, GoQueueError) and result.outcome == "unknown"

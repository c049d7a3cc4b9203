"""Calls with one message each: what is published at the same time goes in one batch.

Those to one partition follow each other, so that they are stored in the order in which they were
made. Those without key, id and partition go round: each request to the next partition that none
of them is on its way to, so that one without a leader holds up only what was sent to it.

A batch holds messages that may all be repeated, or none: what a call may expect does not depend on
whom it shares a request with. One that is refused for what is in it is sent again in halves, down
to the message at fault. Delayed messages are not here, as a partition takes a bounded number of
them: they would be refused for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from goqueue.models.messages import OutgoingMessage, Published
from goqueue.publish.round_robin import RoundRobin
from goqueue.transport.sharing import SharedRequests
from goqueue.wire.errors import BadRequest, GoQueueError, PayloadTooLarge, Timeout

REQUEST_MESSAGES_MAX = 1000
REQUEST_BYTES_MAX = 1 << 20
"""As of a producer's batch, and far below what a server takes; a larger message goes alone."""

Result = Published | GoQueueError


class Send(Protocol):
    """One request with one batch, of which `due` is the deliver-at column."""

    async def __call__(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        due: Sequence[int | None],
        *,
        repeatable: bool,
        timeout_s: float | None = None,
    ) -> list[Result]: ...


class Encode(Protocol):
    """One batch, with the moments at which its messages were published."""

    def __call__(
        self, messages: Sequence[OutgoingMessage], published_ms: Sequence[int], /
    ) -> bytes: ...


@dataclass(slots=True)
class Single:
    """One call's message, published at `published_ms` of this machine's clock. `unusable` is why it
    was not sent. What can't be measured fails as it is made, in its own caller."""

    message: OutgoingMessage
    published_ms: int
    is_repeatable: bool
    unusable: Exception | None = None
    size_bytes: int = field(init=False)
    """About what it takes of a request."""

    def __post_init__(self) -> None:
        message = self.message
        size = _size(message.value) + _size(message.key)
        if message.headers:
            size += sum(_size(name) + _size(value) for name, value in message.headers.items())
        self.size_bytes = size


class Singles:
    """Requests that calls with one message share."""

    def __init__(
        self, send: Send, encode: Encode, round_robin: RoundRobin, timeout_s: float
    ) -> None:
        self._send = send
        self._encode = encode
        self._round_robin = round_robin
        self._shared = SharedRequests(self._send_shared, _fitting, timeout_s)
        self._going_round: set[tuple[str, int]] = set()
        """Partitions that messages which may go to any are on their way to."""

    async def publish(
        self, topic: str, partition: int | None, partitions: int, single: Single
    ) -> Result:
        """Where the message stands, or why not. `partition` is None for any of the topic's, of
        which there are so many. Raises where it can't be encoded."""
        if partition is None and partitions == 1:
            partition = 0
        lane = (topic, partition, 1 if partition is not None else partitions)
        result = await self._shared.call(lane, single, abreast=lane[2])
        if single.unusable is not None:
            raise single.unusable
        return result

    async def close(self) -> None:
        """What waits fails as closed. Idempotent."""
        await self._shared.close()

    # -- private

    async def _send_shared(
        self, lane: tuple[str, int | None, int], singles: Sequence[Single], timeout_s: float
    ) -> list[Result]:
        topic, partition, partitions = lane
        if partition is not None:
            return await self._send_to(topic, partition, singles, timeout_s)
        partition = self._next_partition(topic, partitions)
        self._going_round.add((topic, partition))
        try:
            return await self._send_to(topic, partition, singles, timeout_s)
        finally:
            self._going_round.discard((topic, partition))

    def _next_partition(self, topic: str, partitions: int) -> int:
        partition = self._round_robin.take(topic) % partitions
        for _ in range(partitions):
            if (topic, partition) not in self._going_round:
                break
            partition = self._round_robin.take(topic) % partitions
        return partition

    async def _send_to(
        self, topic: str, partition: int, singles: Sequence[Single], timeout_s: float
    ) -> list[Result]:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        try:
            batch = self._encode(
                [single.message for single in singles], [single.published_ms for single in singles]
            )
        except Exception as error:  # noqa: BLE001 - whatever encoding raises for what is no message
            results: list[Result] = [BadRequest(str(error))]
            if len(singles) == 1:
                singles[0].unusable = error
        else:
            results = await self._send(
                topic,
                partition,
                batch,
                [None] * len(singles),
                repeatable=singles[0].is_repeatable,
                timeout_s=timeout_s,
            )
        if len(singles) == 1 or not _may_be_of_one(results[0], singles[0].is_repeatable):
            return results
        middle = len(singles) // 2
        found: list[Result] = []
        for half in (singles[:middle], singles[middle:]):
            left_s = deadline_s - loop.time()
            if left_s > 0:
                found += await self._send_to(topic, partition, half, left_s)
            else:
                found += [Timeout("not sent in time", outcome="none") for _ in half]
        return found


def is_delayed(message: OutgoingMessage) -> bool:
    """Whether it is for later."""
    return message.delay is not None or message.deliver_at is not None


def _fitting(singles: Iterable[Single]) -> int:
    """How many go in one request, from the first on."""
    count = size_bytes = 0
    is_repeatable = False
    for single in singles:
        size_bytes += single.size_bytes
        if not count:
            is_repeatable = single.is_repeatable
        elif (
            count == REQUEST_MESSAGES_MAX
            or size_bytes > REQUEST_BYTES_MAX
            or single.is_repeatable != is_repeatable
        ):
            break
        count += 1
    return count


def _may_be_of_one(result: Result, is_repeatable: bool) -> bool:
    """Whether a batch may have been refused for one of its messages. What may be repeated is sent
    again also where an attempt before was lost."""
    return (
        isinstance(result, BadRequest | PayloadTooLarge)
        and (is_repeatable or result.outcome == "none")
        and not result.retriable
    )


def _size(part: object) -> int:
    return len(part) if isinstance(part, str | bytes) else 0

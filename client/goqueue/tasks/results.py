"""Results of tasks, kept for a while: messages of one topic, found by the name of their task.

A result is stored before its task is acked, under an id of its own: a task that ends twice has one
result, the first. What a task died of is kept in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import msgspec

from goqueue.api.client import AsyncClient
from goqueue.api.search import FoundMessage
from goqueue.models.messages import Message
from goqueue.models.times import Duration, duration_ms
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    NotFound,
    OffsetOutOfRange,
    TopicExists,
    Unavailable,
    UnknownTopic,
)
from goqueue.wire.partitioner import partition_for

STATE = "goqueue-task-state"
FAILED = b"failed"
KEPT_MS = 7 * 24 * 3600 * 1000
"""Results are kept for at most so long, and so are the parts of an `all_of`."""
DEDUP_WINDOW = "1h"
WAIT_S = 20.0


class TaskFailed(GoQueueError):
    """A task was given up: it is a dead letter. Its reason is the message."""

    code, http_status, text = "task_failed", 409, "the task was given up"


class NoResult(NotFound):
    """There was no result within the time; or it was there, and its time is over."""

    code, text = "no_result", "the task has no result yet"


class Results:
    """The results of the tasks of one group, through one client."""

    def __init__(self, client: AsyncClient, group: str) -> None:
        self._client = client
        self.topic = f"{group}.results"
        self._partitions = 0

    async def put(
        self, id: str, value: bytes, *, key: str | None = None, ttl: Duration | None = None
    ) -> None:
        """Store one under this id, unless that is there already."""
        await self._store(id, value, key, ttl, None)

    async def put_failure(self, id: str, reason: str, ttl: Duration) -> None:
        """Store what the task died of in its result's place."""
        await self._store(id, reason.encode(errors="backslashreplace"), None, ttl, FAILED)

    async def get(self, id: str, wait: Duration) -> bytes:
        """The result, waiting for it. Raises NoResult, TaskFailed."""
        wait_s = duration_ms(wait, "timeout") / 1000
        partition = await self._partition(id)
        end = (await self._client.partitions(self.topic))[partition].next
        found = [
            message
            async for message in self._found(partition, message_id=id)
            if message.status != "expired"
        ]
        message: Message = found[0] if found else await self._coming(partition, end, id, wait_s)
        if dict(message.headers).get(STATE) == FAILED:
            raise TaskFailed(message.text)
        return message.value

    async def parts(self, key: str) -> dict[str, bytes]:
        """All that is stored under this key, by id."""
        partition = await self._partition(key)
        return {
            message.message_id or "": message.value
            async for message in self._found(partition, key=key)
        }

    async def _found(
        self, partition: int, *, key: str | None = None, message_id: str | None = None
    ) -> AsyncIterator[FoundMessage]:
        next: str | None = None
        while True:
            page = await self._client.search(
                self.topic,
                partition=partition,
                message_id=message_id,
                key=key,
                limit=1000,
                next=next,
            )
            for message in page:
                yield message
            if page.not_searched:
                raise Unavailable(f"{self.topic}: {page.not_searched[0].reason}")
            next = page.next
            if next is None:
                return

    async def _coming(self, partition: int, offset: int, id: str, wait_s: float) -> Message:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while True:
                    with suppress(OffsetOutOfRange):
                        page = await self._client.read(
                            self.topic, partition, offset, wait_s=min(wait_s, WAIT_S)
                        )
                        for message in page:
                            if message.message_id == id:
                                return message
                        offset = page.next_offset
        raise NoResult(f"no result of {id} within {wait_s:g} s")

    async def _store(
        self, id: str, value: bytes, key: str | None, ttl: Duration | None, state: bytes | None
    ) -> None:
        await self._partition(id)
        await self._client.publish(
            self.topic,
            value,
            key=id if key is None else key,
            message_id=id,
            headers=None if state is None else {STATE: state},
            ttl=ttl,
        )

    async def _partition(self, key: str) -> int:
        """Where what has this key stands; the topic is made where it is missing."""
        if not self._partitions:
            self._partitions = await ensure_topic(
                self._client, self.topic, retention_ms=KEPT_MS, dedup_window=DEDUP_WINDOW
            )
        return partition_for(key.encode(), self._partitions)


async def ensure_topic(
    client: AsyncClient,
    topic: str,
    *,
    retention_ms: int,
    dedup_window: Duration,
    partitions: int | None = None,
) -> int:
    """How many partitions the topic has; it is made with these settings where it is missing."""
    with suppress(UnknownTopic):
        return (await client.known_topics.get(topic)).partitions
    with suppress(TopicExists):  # another one has just made it
        await client.create_topic(
            topic,
            partitions=partitions,
            retention_ms=retention_ms,
            retention_bytes=-1,
            dedup_window=dedup_window,
        )
    return (await client.known_topics.get(topic)).partitions


def kept_ms(ttl: Duration) -> int:
    """For how long a result is kept. Raises BadRequest where that is longer than any is."""
    found = duration_ms(ttl, "keep_result")
    if not 0 < found <= KEPT_MS:
        raise BadRequest(f"keep_result: {ttl}; want more than 0 and at most {KEPT_MS // 86400000}d")
    return found


def listed(values: Sequence[bytes]) -> msgspec.Raw:
    """JSON values as one list."""
    return msgspec.Raw(msgspec.json.encode([msgspec.Raw(value) for value in values]))

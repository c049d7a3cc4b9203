"""One publish call: messages grouped by partition, a batch each, and the results in order.

A call with one message shares its request with others, by `singles`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from goqueue.models.messages import OutgoingMessage, Published
from goqueue.models.times import time_ms
from goqueue.publish.metadata import KnownTopics
from goqueue.publish.outgoing import encode_messages, json_message, to_bytes, to_deliver_at
from goqueue.publish.round_robin import RoundRobin
from goqueue.publish.singles import Result, Single, Singles, is_delayed
from goqueue.transport.channel import Answer
from goqueue.transport.http import Transport, join
from goqueue.wire.batch import BATCH_MEDIA_TYPE, resolve_ms
from goqueue.wire.errors import (
    BatchError,
    GoQueueError,
    ServerError,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.layout import RELATIVE_BELOW
from goqueue.wire.partitioner import partition_for
from goqueue.wire.unreadable import UNREADABLE

BATCH = {"Content-Type": BATCH_MEDIA_TYPE}


class BatchResult(msgspec.Struct, frozen=True):
    """What a server says of one batch, or of one JSON message."""

    partition: int
    offset: int
    duplicate: bool = False
    failure: GoQueueError | None = None
    time_ms: int = 0
    """The log's time of it, where the server tells it."""
    deliver_at_ms: int | None = None
    rows: list[RowResult] | None = None
    """Each row's own place, where some of a batch's rows had been stored before."""
    durability: str = ""
    """Empty where the server does not tell."""

    def published(self, topic: str, partition: int, due: Sequence[int | None]) -> list[Published]:
        """One result a row of the batch; `due` is its deliver-at column."""
        rows = self.rows
        if rows is None and not any(due):
            return [
                Published(
                    topic,
                    partition,
                    self.offset + row,
                    self.duplicate,
                    durability=self.durability,
                )
                for row in range(len(due))
            ]
        if rows is None or len(rows) != len(due):
            rows = [RowResult(self.offset + row, self.duplicate) for row in range(len(due))]
        return [
            Published(
                topic,
                partition,
                row.offset,
                row.duplicate,
                None if row.duplicate else self._due_ms(cell),
                self.durability,
            )
            for row, cell in zip(rows, due, strict=True)
        ]

    def _due_ms(self, cell: int | None) -> int | None:
        if self.deliver_at_ms is not None:
            return self.deliver_at_ms
        is_known = self.time_ms > 0 or (cell is not None and cell >= RELATIVE_BELOW)
        return resolve_ms(cell, self.time_ms) if is_known else None


class RowResult(msgspec.Struct, frozen=True):
    """Where one row of a batch stands."""

    offset: int
    duplicate: bool = False


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]
    durability: str = ""
    """Of all that was stored, where the results don't tell their own."""


def decode_results(answer: Answer, expected: int) -> list[BatchResult]:
    """One result for each of the `expected` batches or messages. Raises ServerError."""
    try:
        told = msgspec.json.decode(answer.body, type=_Results)
    except UNREADABLE as error:
        raise ServerError(f"an answer that is not understood: {error}") from None
    if len(told.results) != expected:
        raise ServerError(f"{len(told.results)} results where {expected} were due")
    return [_result(result, told.durability) for result in told.results]


def _result(told: dict[str, Any], of_all: str) -> BatchResult:
    if told.get("error"):
        return BatchResult(-1, -1, failure=GoQueueError.from_body(told))
    partition, offset = told.get("partition"), told.get("offset")
    if not isinstance(partition, int) or not isinstance(offset, int):
        raise ServerError("a result without partition and offset")
    stamp, durability = told.get("timestamp_ms"), told.get("durability", of_all)
    rows, due = told.get("rows"), told.get("deliverAt")
    return BatchResult(
        partition,
        offset,
        told.get("duplicate") is True,
        time_ms=stamp if isinstance(stamp, int) else 0,
        deliver_at_ms=time_ms(due) if isinstance(due, str) else None,
        rows=msgspec.convert(rows, list[RowResult]) if isinstance(rows, list) else None,
        durability=durability if isinstance(durability, str) else "",
    )


class Publishing:
    """Publishes without a producer's identity: what may have been stored is repeated only where
    every message has an id of its own, by which its topic knows it again."""

    def __init__(
        self,
        transport: Transport,
        known: KnownTopics,
        codec: str,
        level: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._transport = transport
        self._known = known
        self._codec = codec
        self._level = level
        self._now_ms = now_ms
        self._round_robin = RoundRobin(transport.chance)
        self._singles = Singles(self._send, self._encode, self._round_robin, transport.timeout_s)

    async def close(self) -> None:
        """Calls that wait for a request to share fail as closed. Idempotent."""
        await self._singles.close()

    async def publish(self, topic: str, messages: Sequence[OutgoingMessage]) -> list[Result]:
        """A result a message, in their order. Raises only where nothing was sent.

        A topic that is missing is left to the server, which may create topics on first publish.
        """
        try:
            facts = await self._known.get(topic)
        except UnknownTopic:
            return await self.publish_json(topic, messages)
        ids_last = self._transport.timeout_s <= facts.repeats_for_s
        if len(messages) == 1 and not is_delayed(messages[0]):
            (message,) = messages
            partition = _partition(message, facts.partitions)
            single = Single(message, self._now_ms(), ids_last and message.message_id is not None)
            return [await self._singles.publish(topic, partition, facts.partitions, single)]
        groups: dict[int, list[int]] = {}
        turn = self._round_robin.take(topic) % facts.partitions
        for row, message in enumerate(messages):
            partition = _partition(message, facts.partitions)
            groups.setdefault(turn if partition is None else partition, []).append(row)
        picked = {partition: [messages[row] for row in rows] for partition, rows in groups.items()}
        bodies = {
            partition: self._encode(chosen, self._now_ms()) for partition, chosen in picked.items()
        }
        answers = await asyncio.gather(
            *(
                self._send(
                    topic,
                    partition,
                    bodies[partition],
                    _due(chosen),
                    repeatable=ids_last and all(one.message_id is not None for one in chosen),
                )
                for partition, chosen in picked.items()
            )
        )
        results: list[Result] = [Published(topic, -1, -1)] * len(messages)
        for rows, found in zip(groups.values(), answers, strict=True):
            for row, result in zip(rows, found, strict=True):
                results[row] = result
        return results

    async def publish_json(self, topic: str, messages: Sequence[OutgoingMessage]) -> list[Result]:
        """As `publish`, as JSON, with partitions chosen by the server."""
        body = msgspec.json.encode({"messages": list(map(json_message, messages))})
        answer = await self._transport.request(
            "POST",
            join("topics", topic, "messages"),
            body=body,
            headers={"Content-Type": "application/json"},
            repeatable=False,
        )
        return [
            result.failure or result.published(topic, result.partition, [due])[0]
            for result, due in zip(
                decode_results(answer, len(messages)), _due(messages), strict=True
            )
        ]

    def _encode(
        self, messages: Sequence[OutgoingMessage], published_ms: Sequence[int] | int
    ) -> bytes:
        return encode_messages(messages, published_ms, self._codec, self._level)

    async def _send(
        self,
        topic: str,
        partition: int,
        batch: bytes,
        due: Sequence[int | None],
        *,
        repeatable: bool,
        timeout_s: float | None = None,
    ) -> list[Result]:
        """One request with one batch, of which `due` is the deliver-at column."""
        try:
            answer = await self._transport.request(
                "POST",
                join("topics", topic, "partitions", partition, "messages"),
                body=batch,
                headers=BATCH,
                repeatable=repeatable,
                timeout_s=timeout_s,
                towards=(topic, partition),
            )
            (result,) = decode_results(answer, 1)
            if result.failure is not None:
                raise result.failure
        except (UnknownPartition, UnknownTopic) as error:
            self._known.forget(topic)
            return [error] * len(due)
        except GoQueueError as error:
            return [error] * len(due)
        return list[Result](result.published(topic, partition, due))


def _due(messages: Sequence[OutgoingMessage]) -> list[int | None]:
    return [to_deliver_at(message.delay, message.deliver_at) for message in messages]


def _partition(message: OutgoingMessage, partitions: int) -> int | None:
    """None for any."""
    if message.partition is not None:
        if message.partition < 0:
            raise BatchError(f"partition {message.partition}: want a number from 0")
        return message.partition
    if message.key is not None:
        return partition_for(to_bytes(message.key), partitions)
    if message.message_id is not None:
        return partition_for(message.message_id.encode(), partitions)
    return None

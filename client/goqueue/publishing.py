"""One publish call: messages grouped by partition, a batch each, and the results in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import msgspec

from goqueue.errors import BatchError, GoQueueError, ServerError, UnknownPartition, UnknownTopic
from goqueue.http import Answer, Transport, join
from goqueue.metadata import PartitionCounts
from goqueue.models import OutgoingMessage, Published
from goqueue.outgoing import encode_messages, json_message, to_bytes
from goqueue.wire.batch import BATCH_MEDIA_TYPE
from goqueue.wire.partitioner import partition_for

Result = Published | GoQueueError
BATCH = {"Content-Type": BATCH_MEDIA_TYPE}


class BatchResult(msgspec.Struct, frozen=True):
    """What a server says of one batch, or of one JSON message."""

    partition: int
    offset: int
    duplicate: bool
    failure: GoQueueError | None


class _Results(msgspec.Struct):
    results: list[dict[str, Any]]


def decode_results(answer: Answer, expected: int) -> list[BatchResult]:
    """One result for each of the `expected` batches or messages. Raises ServerError."""
    try:
        results = msgspec.json.decode(answer.body, type=_Results).results
    except msgspec.DecodeError as error:
        raise ServerError(f"an answer that is not understood: {error}") from None
    if len(results) != expected:
        raise ServerError(f"{len(results)} results where {expected} were due")
    return [_result(result) for result in results]


def _result(told: dict[str, Any]) -> BatchResult:
    if told.get("error"):
        return BatchResult(-1, -1, False, GoQueueError.from_body(told))
    partition, offset = told.get("partition"), told.get("offset")
    if not isinstance(partition, int) or not isinstance(offset, int):
        raise ServerError("a result without partition and offset")
    return BatchResult(partition, offset, told.get("duplicate") is True, None)


class Publishing:
    """Publishes without identity: a call whose outcome is unknown is not repeated."""

    def __init__(
        self,
        transport: Transport,
        counts: PartitionCounts,
        codec: str,
        level: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._transport = transport
        self._counts = counts
        self._codec = codec
        self._level = level
        self._now_ms = now_ms
        self._turn = count()

    async def publish(self, topic: str, messages: Sequence[OutgoingMessage]) -> list[Result]:
        """A result a message, in their order. Raises only where nothing was sent.

        A topic that is missing is left to the server, which may create topics on first publish.
        """
        try:
            partitions = await self._counts.get(topic)
        except UnknownTopic:
            return await self.publish_json(topic, messages)
        groups: dict[int, list[int]] = {}
        turn = next(self._turn)
        for row, message in enumerate(messages):
            groups.setdefault(_partition(message, partitions, turn), []).append(row)
        bodies = {
            partition: encode_messages(
                [messages[row] for row in rows], self._now_ms(), self._codec, self._level
            )
            for partition, rows in groups.items()
        }
        answers = await asyncio.gather(
            *(
                self._send(topic, partition, bodies[partition], len(rows))
                for partition, rows in groups.items()
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
            result.failure or Published(topic, result.partition, result.offset, result.duplicate)
            for result in decode_results(answer, len(messages))
        ]

    async def _send(self, topic: str, partition: int, batch: bytes, rows: int) -> list[Result]:
        try:
            answer = await self._transport.request(
                "POST",
                join("topics", topic, "partitions", partition, "messages"),
                body=batch,
                headers=BATCH,
                repeatable=False,
            )
            (result,) = decode_results(answer, 1)
            if result.failure is not None:
                raise result.failure
        except (UnknownPartition, UnknownTopic) as error:
            self._counts.forget(topic)
            return [error] * rows
        except GoQueueError as error:
            return [error] * rows
        return [
            Published(topic, partition, result.offset + row, result.duplicate)
            for row in range(rows)
        ]


def _partition(message: OutgoingMessage, partitions: int, turn: int) -> int:
    if message.partition is not None:
        if message.partition < 0:
            raise BatchError(f"partition {message.partition}: want a number from 0")
        return message.partition
    if message.key is not None:
        return partition_for(to_bytes(message.key), partitions)
    return turn % partitions

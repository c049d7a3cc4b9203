"""`PublishStream`: messages come as fast as they are stored, each with an answer of its own.

While a batch of a partition is on its way to the disks, what comes for that partition gathers, and
goes as the next one: so a stream's messages share the cost of a sync, and those of a partition are
stored in the order in which they came. Answers come in that order for each partition; an error is
the answer to its message alone.

A stream that has said all is answered in full. One that is cut off may have stored what it was not
told of: a producer's identity makes that safe to repeat.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from goqueue.background import TaskSet
from goqueue.wire.errors import GoQueueError, ServerError, Unavailable
from node.api.records import AppendResult
from node.http.budget.memory import Held, Kind
from node.listeners.grpc.call import BODY_TIMES, Rpc
from node.listeners.grpc.failures import error_of
from node.listeners.grpc.protocol import goqueue_pb2 as pb
from node.listeners.grpc.rows import (
    ROW_BYTES,
    Row,
    append,
    now_ms,
    place_of,
    row_of,
)
from node.listeners.grpc.times import put_time
from node.listeners.topics import ensure_topic

QUIET_TURNS = 4
GATHERED_MAX = 64
"""Messages that are worth a batch of their own: no more are waited for."""


async def publish_stream(rpc: Rpc) -> None:
    """Until the client has said all and was told all. Raises Unavailable where the node stops,
    OverBudget where there are as many such streams as may be, and ConnectionError where nobody is
    there."""
    with rpc.hold(Kind.PARTS, rpc.limits.message_bytes_max):
        await _PublishStream(rpc).run()


@dataclass(slots=True)
class _Coming:
    """A message that is not answered."""

    id: str
    row: Row
    size_bytes: int


@dataclass(slots=True)
class _Line:
    """What goes to one partition, of one producer: one batch at a time."""

    topic: str
    partition: int
    waiting: deque[_Coming] = field(default_factory=deque[_Coming])


class _PublishStream:
    """One of them. Loop thread only."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc
        self._lines: dict[tuple[str, int, int, int], _Line] = {}
        self._held: Held = rpc.hold(Kind.BODIES)
        self._unanswered = self._unanswered_bytes = 0
        self._eased = asyncio.Event()
        self._answers: deque[tuple[Any, int]] = deque()
        """With the bytes that each one's message holds until it is told."""
        self._told = asyncio.Event()
        self._tasks = TaskSet(None)
        self._trace = rpc.trace()
        self._failed: BaseException | None = None

    async def run(self) -> None:
        rpc = self._rpc
        reading = self._tasks.begin(self._read(), "grpc-publish-reader")
        writing = self._tasks.begin(self._write(), "grpc-publish-writer")
        rpc.on_stop = reading.cancel
        writing.add_done_callback(lambda _: self._eased.set())
        try:
            await asyncio.wait([reading, writing], return_when=asyncio.FIRST_COMPLETED)
            if writing.done():  # it only ends by failing
                writing.result()
            if not reading.cancelled():
                reading.result()
            while self._unanswered and not writing.done():
                self._eased.clear()
                await self._eased.wait()
            if writing.done():
                writing.result()
            if self._failed is not None:
                raise self._failed
            if reading.cancelled():
                raise Unavailable("this node stops: another one goes on")
        finally:
            rpc.on_stop = None
            await self._tasks.stop()
            self._held.release()

    # private

    async def _read(self) -> None:
        """Until the client has said all."""
        limits = self._rpc.limits
        while (data := await self._rpc.read()) is not None:
            await self._take(data)
            while (
                self._unanswered >= limits.unanswered_max
                or self._unanswered_bytes >= limits.unanswered_bytes_max
            ):
                self._eased.clear()
                await self._eased.wait()

    async def _take(self, data: bytes) -> None:
        """Raises BadRequest for what is no message at all: nobody would know which one failed."""
        rpc, size = self._rpc, BODY_TIMES * len(data) + ROW_BYTES
        given = rpc.parse(data)
        self._unanswered += 1
        self._unanswered_bytes += size
        held = 0
        try:
            self._held.grow(size)
            held = size
            row = row_of(given, rpc.limits.headers_max, self._trace)
            await ensure_topic(rpc.broker, row.topic)
            partition = place_of(rpc.broker, row, now_ms())
        except GoQueueError as error:
            self._held.shrink(held)
            self._refuse(given.correlation_id, size, 0, error)
            return
        rpc.seen.target = row.topic
        key = (row.topic, partition, row.producer.id, row.producer.epoch)
        line = self._lines.get(key)
        is_new = line is None
        if line is None:
            line = self._lines[key] = _Line(row.topic, partition)
        line.waiting.append(_Coming(given.correlation_id, row, size))
        if is_new:
            self._tasks.begin(self._drain(key, line))

    async def _drain(self, key: tuple[str, int, int, int], line: _Line) -> None:
        """Store what waits, batch after batch, until nothing does."""
        try:
            while line.waiting:
                await self._gather(line)
                await self._store(line, self._next_batch(line))
        finally:
            del self._lines[key]

    async def _gather(self, line: _Line) -> None:
        """What is on its way in goes along: as long as something comes within a few turns of the
        loop, which are microseconds where nothing does."""
        quiet, had = 0, len(line.waiting)
        while quiet < QUIET_TURNS and len(line.waiting) < GATHERED_MAX:
            await asyncio.sleep(0)
            quiet = 0 if len(line.waiting) > had else quiet + 1
            had = len(line.waiting)

    async def _store(self, line: _Line, batch: list[_Coming]) -> None:
        """A producer's messages each as a batch of its own, one behind the other: so each can be
        repeated by itself, and is known again."""
        if batch[0].row.producer.id and len(batch) > 1:
            await asyncio.gather(*(self._store(line, [coming]) for coming in batch))
            return
        rows = [coming.row for coming in batch]
        try:
            stored = await append(self._rpc, line.topic, line.partition, rows)
        except GoQueueError as error:
            self._refuse_all(batch, error)
            self._tell_span(line, batch, error.code)
        except Exception as error:  # noqa: BLE001 - the call fails by it, and logs it
            self._failed = error
            self._refuse_all(batch, ServerError())
        else:
            self._confirm(line, batch, stored)
            self._tell_span(line, batch)

    def _next_batch(self, line: _Line) -> list[_Coming]:
        """What goes at once."""
        limits, batch, size = self._rpc.limits, list[_Coming](), 0
        while line.waiting and len(batch) < limits.append_messages_max:
            size += line.waiting[0].size_bytes
            if batch and size > limits.append_bytes_max:
                break
            batch.append(line.waiting.popleft())
        return batch

    def _confirm(self, line: _Line, batch: list[_Coming], stored: AppendResult) -> None:
        for number, coming in enumerate(batch):
            told = pb.PublishStreamResponse(
                correlation_id=coming.id,
                topic=line.topic,
                partition=line.partition,
                offset=stored.base_offset + number,
            )
            put_time(told.timestamp, stored.time_ms)
            self._answer(told, coming.size_bytes, coming.size_bytes)

    def _refuse_all(self, batch: list[_Coming], error: GoQueueError) -> None:
        for coming in batch:
            self._refuse(coming.id, coming.size_bytes, coming.size_bytes, error)

    def _refuse(self, id: str, size: int, held: int, error: GoQueueError) -> None:
        told = pb.PublishStreamResponse(correlation_id=id, error=error_of(error))
        self._answer(told, size, held)

    def _answer(self, told: Any, size: int, held: int) -> None:
        """`size` counts against what may be unanswered, `held` is charged."""
        self._held.shrink(held)
        self._answers.append((told, size))
        self._told.set()

    def _tell_span(self, line: _Line, batch: list[_Coming], code: str = "") -> None:
        self._rpc.seen.tell_span("publish", line.topic, len(batch), request=self._trace, error=code)

    async def _write(self) -> None:
        """What is to be told, in turn. Ends only by failing: nobody is there."""
        while True:
            self._told.clear()
            while self._answers:
                told, size = self._answers.popleft()
                await self._rpc.write(told)
                self._unanswered -= 1
                self._unanswered_bytes -= size
                self._eased.set()
            await self._told.wait()

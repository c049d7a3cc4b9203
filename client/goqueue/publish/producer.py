"""The producer: messages in one by one, batches out, each stored exactly once.

Messages of a partition travel in batches that close when they are full or have waited `linger_ms`.
A batch keeps its bytes and its sequence over every repeat, so that the log stores it once however
often it is sent. Accepted messages are bounded in bytes; beyond that `send` waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Unpack

from goqueue.background import TaskSet
from goqueue.models.failures import Closed
from goqueue.models.messages import ProducerIdentity, Published
from goqueue.models.options import (
    Priority,
    ProducerOptions,
    ProducerSettings,
    check_options,
)
from goqueue.models.times import Duration, Time
from goqueue.publish.batches import Accepted, Batch, Budget, Identity
from goqueue.publish.metadata import KnownTopics, TopicFacts
from goqueue.publish.outgoing import (
    Text,
    to_bytes,
    to_deliver_at,
    to_expiry,
    to_headers,
    to_lane,
    to_value,
)
from goqueue.publish.round_robin import RoundRobin
from goqueue.publish.sender import PartitionSender
from goqueue.transport.http import Transport
from goqueue.transport.spans import SPANS
from goqueue.wire.compression import Codec
from goqueue.wire.errors import BadRequest, GoQueueError, PayloadTooLarge, TopicExists, UnknownTopic
from goqueue.wire.layout import DEFAULT_LIMITS
from goqueue.wire.partitioner import partition_for
from goqueue.wire.records import encode_headers


class ProducerClient(Protocol):
    """What a producer asks a cluster through."""

    @property
    def transport(self) -> Transport:
        """For its batches."""
        ...

    @property
    def known_topics(self) -> KnownTopics:
        """What it has to know of each topic."""
        ...

    async def create_topic(self, name: str) -> object:
        """Create a topic with the cluster's defaults. Raises `TopicExists`."""
        ...

    async def init_producer(self, *, timeout_s: float | None = None) -> ProducerIdentity:
        """An identity that nobody has used yet."""
        ...


class Producer:
    """Publishes many messages fast, in order within a partition. Use as `async with`.

    Order holds between messages whose `send` was awaited one after the other. If a batch fails,
    those behind it are still sent.
    """

    def __init__(self, client: ProducerClient, **options: Unpack[ProducerOptions]) -> None:
        """A batch closes at `batch_records_max` messages or `batch_bytes_max`, and `linger_ms`
        after its first; a request holds up to `request_bytes_max` of batches of one partition.

        A message fails `delivery_timeout_s` after its batch began. Without `idempotent`, batches
        have no identity and one whose outcome is unknown fails at once. `create_topics` creates
        missing topics with the cluster's defaults.

        Messages with a `message_id` go in batches of their own, without identity: where the topic
        remembers ids, that makes their repeats safe, and it finds repeats of other producers too.
        """
        check_options("Producer()", options, ProducerOptions)
        self._settings = settings = ProducerSettings(**options)
        Codec.named(settings.compression)
        self._client = client
        self._budget = Budget(settings.buffer_bytes_max)
        self._open: dict[tuple[str, int], tuple[Batch, asyncio.TimerHandle]] = {}
        self._senders: dict[tuple[str, int], PartitionSender] = {}
        self._round_robin = RoundRobin(client.transport.chance)
        self._owned = TaskSet(None)
        self._shared: asyncio.Task[Identity] | None = None
        self._outstanding = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._failure: GoQueueError | None = None
        self._closed = False

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
            return
        with suppress(GoQueueError):  # the error that is on its way matters more
            await self.close()

    @property
    def buffered_bytes(self) -> int:
        """What is accepted and not yet delivered or failed."""
        return self._budget.used_bytes

    async def send(
        self,
        topic: str,
        value: Text | None,
        *,
        key: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        partition: int | None = None,
        priority: Priority | int = "normal",
        message_id: str | None = None,
        delay: Duration | None = None,
        deliver_at: Time | None = None,
        ttl: Duration | None = None,
    ) -> asyncio.Future[Published]:
        """Accept one message; waits while the buffer is full. Await the result to know where the
        message stands, or `flush` to know that all are stored.

        Raises at once where the message can never be sent: `UnknownTopic`, `PayloadTooLarge`,
        `Closed`. The result raises what went wrong on the way.
        """
        if self._closed:
            raise Closed("the producer is closed")
        due = to_deliver_at(delay, deliver_at)
        message = Accepted(
            to_value(value),
            None if key is None else to_bytes(key),
            SPANS.created(topic, to_headers(headers)),
            to_lane(priority),
            _now_ms(),
            message_id,
            due,
            to_expiry(ttl, due),
            asyncio.get_running_loop().create_future(),
        )
        _check(message)
        facts = await self._facts(topic)
        await self._budget.take(message.size_bytes)
        if self._closed:
            self._budget.give(message.size_bytes)
            raise Closed("the producer is closed")
        if partition is None:
            partition = self._choose(topic, message, facts.partitions)
        repeats_for_s = 0.0 if message.message_id is None else facts.repeats_for_s
        self._add(topic, partition, message, repeats_for_s)
        return message.delivery

    async def publish(
        self,
        topic: str,
        value: Text | None,
        *,
        key: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        partition: int | None = None,
        priority: Priority | int = "normal",
        message_id: str | None = None,
        delay: Duration | None = None,
        deliver_at: Time | None = None,
        ttl: Duration | None = None,
    ) -> Published:
        """`send` and wait for the result: repeated safely, unlike the client's `publish`."""
        delivery = await self.send(
            topic,
            value,
            key=key,
            headers=headers,
            partition=partition,
            priority=priority,
            message_id=message_id,
            delay=delay,
            deliver_at=deliver_at,
            ttl=ttl,
        )
        return await delivery

    async def identify(self) -> None:
        """Get the identity now rather than with the first batch, to learn at once whether the
        cluster takes writes. Raises what `AsyncClient.init_producer` raises, with outcome none:
        nothing was sent yet."""
        if not self._settings.idempotent:
            return
        try:
            await self._identify(False, self._client.transport.timeout_s)
        except GoQueueError as error:
            error.outcome = "none"
            raise

    async def flush(self) -> None:
        """Send all that is accepted now and wait until each is stored or has failed.

        Raises the first failure since the last flush.
        """
        for topic, partition in list(self._open):
            self._seal(topic, partition)
        await self._idle.wait()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Flush, then stop. Idempotent. Raises as `flush`, having stopped all the same."""
        self._closed = True
        try:
            await self.flush()
        finally:
            for _, timer in self._open.values():
                timer.cancel()
            for sender in self._senders.values():
                await sender.stop()
            if self._shared is not None:
                self._shared.cancel()

    async def _facts(self, topic: str) -> TopicFacts:
        known = self._client.known_topics
        try:
            return await known.get(topic)
        except UnknownTopic:
            if not self._settings.create_topics:
                raise
        with suppress(TopicExists):
            await self._client.create_topic(topic)
        return await known.get(topic)

    def _choose(self, topic: str, message: Accepted, count: int) -> int:
        """By key, or by message id, so that its repeat is found where the first one is; else one
        partition until its batch closes, which makes batches large."""
        key = message.key
        if key is None and message.message_id is not None:
            key = message.message_id.encode()
        if key is not None:
            return partition_for(key, count)
        return self._round_robin.now(topic) % count

    def _add(self, topic: str, partition: int, message: Accepted, repeats_for_s: float) -> None:
        loop = asyncio.get_running_loop()
        found = self._open.get((topic, partition))
        if found is not None and (
            found[0].size_bytes + message.size_bytes > self._settings.batch_bytes_max
            or found[0].repeats_for_s != repeats_for_s
        ):
            self._seal(topic, partition)
            found = None
        if found is None:
            batch = Batch(loop.time(), repeats_for_s)
            timer = loop.call_later(self._settings.linger_ms / 1000, self._seal, topic, partition)
            self._open[topic, partition] = (batch, timer)
        else:
            batch = found[0]
        batch.add(message)
        self._outstanding += 1
        self._idle.clear()
        if len(batch.accepted) >= self._settings.batch_records_max:
            self._seal(topic, partition)

    def _seal(self, topic: str, partition: int) -> None:
        batch, timer = self._open.pop((topic, partition))
        timer.cancel()
        self._round_robin.pass_on(topic)
        sender = self._senders.get((topic, partition))
        if sender is None:
            sender = PartitionSender(
                self._client.transport,
                topic,
                partition,
                self._settings,
                self._identify if self._settings.idempotent else None,
                self._done,
            )
            self._senders[topic, partition] = sender
        sender.enqueue(batch)

    def _done(self, batch: Batch, error: GoQueueError | None) -> None:
        self._budget.give(batch.size_bytes)
        if error is not None and self._failure is None:
            self._failure = error
        self._outstanding -= len(batch.accepted)
        if self._outstanding == 0:
            self._idle.set()

    async def _identify(self, fresh: bool, timeout_s: float) -> Identity:
        """Partitions share a producer id, as sequences are counted for each partition; one that
        has to start over gets an id of its own. Those that wait for the same answer share its
        failure, each with an error of its own."""
        if fresh:
            return await self._new_identity(timeout_s)
        if self._shared is None:
            self._shared = self._owned.begin(self._new_identity(timeout_s))
        asked = self._shared
        try:
            shared = await asyncio.shield(asked)
        except GoQueueError as error:
            if self._shared is asked:
                self._shared = None  # the next one asks again
            raise GoQueueError.from_body(error.to_body()) from error
        return Identity(shared.producer_id, shared.epoch)

    async def _new_identity(self, timeout_s: float) -> Identity:
        given = await self._client.init_producer(timeout_s=timeout_s)
        return Identity(given.producer_id, given.epoch)


def _check(message: Accepted) -> None:
    """Refuse now what would later spoil the batch it is in."""
    if message.value is not None and len(message.value) > DEFAULT_LIMITS.value_bytes_max:
        raise _too_large("value", len(message.value), DEFAULT_LIMITS.value_bytes_max)
    if message.key is not None and len(message.key) > DEFAULT_LIMITS.key_bytes_max:
        raise _too_large("key", len(message.key), DEFAULT_LIMITS.key_bytes_max)
    if message.headers:
        size = len(encode_headers(message.headers))
        if size > DEFAULT_LIMITS.headers_bytes_max:
            raise _too_large("headers", size, DEFAULT_LIMITS.headers_bytes_max)
    if message.message_id is not None:
        size = len(message.message_id.encode())
        if size > DEFAULT_LIMITS.message_id_bytes_max:
            raise _too_large("message id", size, DEFAULT_LIMITS.message_id_bytes_max)
        if size == 0:
            raise BadRequest("an empty message id")


def _too_large(what: str, size: int, bound: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"{what} of {size} bytes: at most {bound}", limit=bound)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

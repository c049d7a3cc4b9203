"""The blocking client and producer: the same calls, for programs without an event loop.

They run the asynchronous ones on a loop in a thread of their own. Calls may come from any thread.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from goqueue.client import AsyncClient
from goqueue.errors import Closed, GoQueueError
from goqueue.http import DEFAULT_SERVER, RetryPolicy
from goqueue.models import (
    Cluster,
    ClusterHealth,
    ClusterNode,
    Message,
    OutgoingMessage,
    Page,
    Partition,
    ProducerIdentity,
    Published,
    Topic,
)
from goqueue.outgoing import Text
from goqueue.producer import Producer
from goqueue.reading import Time

CANCEL_S_MAX = 1.0

T = TypeVar("T")


class LoopThread:
    """An event loop in a daemon thread, started when first needed."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; interrupting the wait cancels it and waits for its end."""
        loop, ended = self._started(work), threading.Event()
        future = asyncio.run_coroutine_threadsafe(_telling(work, ended), loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                ended.wait(CANCEL_S_MAX)
            raise

    def stop(self) -> None:
        """End the loop and its thread. Idempotent."""
        with self._lock:
            self._closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_end_tasks(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _started(self, work: Coroutine[Any, Any, object]) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._closed:
                work.close()
                raise Closed("the client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="goqueue-client", daemon=True
                )
                self._thread.start()
            return self._loop


class Client:
    """As `AsyncClient`, blocking. Use as `with`, or `close` it in the end."""

    def __init__(
        self,
        servers: str | Sequence[str] = DEFAULT_SERVER,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        attempt_timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        compression: str = "none",
        compression_level: int = 1,
    ) -> None:
        """See `AsyncClient`."""
        self._client = AsyncClient(
            servers,
            api_key=api_key,
            timeout_s=timeout_s,
            attempt_timeout_s=attempt_timeout_s,
            retry=retry,
            tls=tls,
            compression=compression,
            compression_level=compression_level,
        )
        self._thread = LoopThread()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. Idempotent."""
        try:
            self._thread.run(self._client.close())
        except Closed:
            return
        self._thread.stop()

    # topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        durability: str | None = None,
        flush_interval_ms: int | None = None,
        lanes: int | None = None,
        max_message_bytes: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic; what is not given has the cluster's default. Raises `TopicExists`."""
        return self._thread.run(
            self._client.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
                durability=durability,
                flush_interval_ms=flush_interval_ms,
                lanes=lanes,
                max_message_bytes=max_message_bytes,
                labels=labels,
            )
        )

    def list_topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._thread.run(self._client.list_topics())

    def topic(self, name: str) -> Topic:
        """A topic with its totals and configuration. Raises `UnknownTopic`."""
        return self._thread.run(self._client.topic(name))

    def alter_topic(self, name: str, **changes: object) -> Topic:
        """Change settings, by the names that `create_topic` has."""
        return self._thread.run(self._client.alter_topic(name, **changes))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages. Raises `UnknownTopic`."""
        self._thread.run(self._client.delete_topic(name))

    def partitions(self, topic: str) -> list[Partition]:
        """Where each partition lives and what it holds, in their order."""
        return self._thread.run(self._client.partitions(topic))

    def flush_topic(self, topic: str) -> None:
        """Return once all that was acked so far is fsynced on a majority; for relaxed topics."""
        self._thread.run(self._client.flush_topic(topic))

    # publishing

    def publish(
        self,
        topic: str,
        value: Text,
        *,
        key: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        partition: int | None = None,
        lane: int | str = "normal",
        message_id: str | None = None,
    ) -> Published:
        """Publish one message and return where it stands, durably. See `AsyncClient.publish`."""
        return self._thread.run(
            self._client.publish(
                topic,
                value,
                key=key,
                headers=headers,
                partition=partition,
                lane=lane,
                message_id=message_id,
            )
        )

    def publish_many(
        self, topic: str, messages: Iterable[OutgoingMessage | Text], *, json: bool = False
    ) -> list[Published]:
        """Publish messages together. See `AsyncClient.publish_many`; raises `PublishFailed`."""
        return self._thread.run(self._client.publish_many(topic, list(messages), json=json))

    def init_producer(self, transactional_id: str | None = None) -> ProducerIdentity:
        """An identity from the cluster."""
        return self._thread.run(self._client.init_producer(transactional_id))

    def producer(self, **options: Any) -> BlockingProducer:
        """A producer over this client, with the options of `Producer`; use it as `with`."""
        return BlockingProducer(self._thread, self._client.producer(**options))

    # reading

    def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        limit: int = 100,
        wait_s: float = 0.0,
        from_time: Time | None = None,
        to_time: Time | None = None,
    ) -> Page:
        """Messages of one partition from an offset on, or within times. See `AsyncClient.read`."""
        return self._thread.run(
            self._client.read(
                topic,
                partition,
                offset,
                limit=limit,
                wait_s=wait_s,
                from_time=from_time,
                to_time=to_time,
            )
        )

    def messages(
        self,
        topic: str,
        partition: int | None = None,
        offset: int = 0,
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        follow: bool = False,
    ) -> Iterator[Message]:
        """Iterate over a partition or a whole topic. See `AsyncClient.messages`."""
        runs = self._client.runs(
            topic, partition, offset, from_time=from_time, to_time=to_time, follow=follow
        )
        try:
            while (run := self._thread.run(_next(runs))) is not None:
                yield from run
        finally:
            with suppress(Closed):
                self._thread.run(runs.aclose())

    # the cluster

    def cluster(self) -> Cluster:
        """The cluster in short, as the node that answers sees it."""
        return self._thread.run(self._client.cluster())

    def cluster_nodes(self) -> list[ClusterNode]:
        """Every broker, and whether it is alive."""
        return self._thread.run(self._client.cluster_nodes())

    def cluster_health(self) -> ClusterHealth:
        """Whether the cluster serves, and what is wrong with it."""
        return self._thread.run(self._client.cluster_health())

    def health(self) -> dict[str, Any]:
        """`/health` of the node that answers: it is up."""
        return self._thread.run(self._client.health())

    def version(self) -> dict[str, Any]:
        """`/version` of the node that answers."""
        return self._thread.run(self._client.version())

    def stats(self) -> dict[str, Any]:
        """`/stats` of the node that answers."""
        return self._thread.run(self._client.stats())


class BlockingProducer:
    """As `Producer`, blocking; from `Client.producer`."""

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self._thread = thread
        self._producer = producer

    def __enter__(self) -> BlockingProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except GoQueueError:
            if error is None:
                raise

    def send(
        self,
        topic: str,
        value: Text,
        *,
        key: Text | None = None,
        headers: Mapping[str, Text] | None = None,
        partition: int | None = None,
        lane: int | str = "normal",
        message_id: str | None = None,
    ) -> Future[Published]:
        """Accept one message; blocks while the buffer is full. The future tells where it stands."""
        accepted: Future[Published] = Future()
        self._thread.run(
            self._accept(
                accepted,
                topic,
                value,
                {
                    "key": key,
                    "headers": headers,
                    "partition": partition,
                    "lane": lane,
                    "message_id": message_id,
                },
            )
        )
        return accepted

    def send_many(self, topic: str, messages: Iterable[OutgoingMessage | Text]) -> None:
        """Accept messages in their order: much cheaper than `send` for each. `flush` tells
        whether all were stored."""
        chunk: list[OutgoingMessage] = []
        for message in messages:
            chunk.append(
                message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
            )
            if len(chunk) == _CHUNK_MESSAGES:
                self._thread.run(self._accept_many(topic, chunk))
                chunk = []
        if chunk:
            self._thread.run(self._accept_many(topic, chunk))

    def flush(self) -> None:
        """Wait until all accepted messages are stored; raises the first failure."""
        self._thread.run(self._producer.flush())

    def close(self) -> None:
        """Flush, then stop. Idempotent."""
        self._thread.run(self._producer.close())

    async def _accept(
        self, accepted: Future[Published], topic: str, value: Text, options: dict[str, Any]
    ) -> None:
        delivery = await self._producer.send(topic, value, **options)

        def tell(delivery: asyncio.Future[Published]) -> None:
            error = None if delivery.cancelled() else delivery.exception()
            if delivery.cancelled():
                accepted.cancel()
            elif error is not None:
                accepted.set_exception(error)
            else:
                accepted.set_result(delivery.result())

        delivery.add_done_callback(tell)

    async def _accept_many(self, topic: str, messages: Sequence[OutgoingMessage]) -> None:
        for message in messages:
            await self._producer.send(
                topic,
                message.value,
                key=message.key,
                headers=message.headers,
                partition=message.partition,
                lane=message.lane,
                message_id=message.message_id,
            )


_CHUNK_MESSAGES = 500


async def _telling(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()


async def _next(runs: AsyncGenerator[list[Message], None]) -> list[Message] | None:
    return await anext(runs, None)


async def _end_tasks() -> None:
    """Nothing is left half done on a loop that stops: an iteration that nobody finished, say."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()

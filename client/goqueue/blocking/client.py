"""The blocking client: the same calls, for programs without an event loop.

It runs the asynchronous ones on a loop in a thread of its own. Calls may come from any thread.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack
from weakref import WeakSet

from goqueue.api.client import AsyncClient
from goqueue.api.events import MessageEvent, events_of
from goqueue.blocking.loop_thread import LoopThread
from goqueue.blocking.producer import BlockingProducer
from goqueue.blocking.queue import BlockingQueue
from goqueue.models.failures import Closed
from goqueue.models.messages import Message, OutgoingMessage, Page, ProducerIdentity, Published
from goqueue.models.options import Compression, Priority, ProducerOptions, TopicSettings
from goqueue.models.times import Duration, Time
from goqueue.models.topics import (
    ArchivedPartition,
    Cluster,
    ClusterHealth,
    ClusterNode,
    Partition,
    Topic,
)
from goqueue.publish.outgoing import Text
from goqueue.publish.producer import Producer
from goqueue.transport.http import DEFAULT_SERVER, RetryPolicy
from goqueue.transport.tls import StrPath
from goqueue.wire.errors import GoQueueError
from goqueue.wire.events import EventsPage

if TYPE_CHECKING:
    from goqueue.archive.seam import OnMissing


class Client(BlockingQueue):
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
        ca_file: StrPath | None = None,
        cert_file: StrPath | None = None,
        key_file: StrPath | None = None,
        compression: Compression = "none",
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
            ca_file=ca_file,
            cert_file=cert_file,
            key_file=key_file,
            compression=compression,
            compression_level=compression_level,
        )
        self._thread = LoopThread()
        self._producers: WeakSet[Producer] = WeakSet()

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
            self._thread.run(self._end())
        except Closed:
            return
        self._thread.stop()

    async def _end(self) -> None:
        """What producers have not sent yet fails now: on a loop that has stopped it never would."""
        await self._client.close()
        for producer in list(self._producers):
            with suppress(GoQueueError):
                await producer.close()

    # topics

    def list_topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return self._thread.run(self._client.list_topics())

    def topic(self, name: str, *, current: bool = False) -> Topic:
        """A topic with its totals and configuration. See `AsyncClient.topic`."""
        return self._thread.run(self._client.topic(name, current=current))

    def alter_topic(self, name: str, **changes: Unpack[TopicSettings]) -> Topic:
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

    def report_archived(
        self,
        topic: str,
        archive: str,
        positions: Mapping[int, int],
        *,
        topic_id: str | None = None,
        replace: bool = False,
    ) -> list[ArchivedPartition]:
        """All below these offsets is in the archive; see `AsyncClient.report_archived`."""
        report = self._client.report_archived
        return self._thread.run(
            report(topic, archive, positions, topic_id=topic_id, replace=replace)
        )

    # publishing

    def publish(
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
        """Publish one message and return where it stands, durably. See `AsyncClient.publish`."""
        return self._thread.run(
            self._client.publish(
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
        )

    def publish_many(
        self, topic: str, messages: Iterable[OutgoingMessage | Text], *, json: bool = False
    ) -> list[Published]:
        """Publish messages together. See `AsyncClient.publish_many`; raises `PublishFailed`."""
        return self._thread.run(self._client.publish_many(topic, list(messages), json=json))

    def init_producer(self, transactional_id: str | None = None) -> ProducerIdentity:
        """An identity from the cluster."""
        return self._thread.run(self._client.init_producer(transactional_id))

    def producer(self, **options: Unpack[ProducerOptions]) -> BlockingProducer:
        """A producer over this client, with the options of `Producer`; use it as `with`."""
        producer = self._client.producer(**options)
        self._producers.add(producer)
        return BlockingProducer(self._thread, producer)

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
        current: bool = False,
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
                current=current,
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
        for run in self._each(runs):
            yield from run

    def replay(
        self,
        topic: str,
        partition: int | None = None,
        offset: int | Mapping[int, int] = 0,
        *,
        archive: str | None = None,
        from_time: Time | None = None,
        to_time: Time | None = None,
        follow: bool = False,
        topic_id: str | None = None,
        on_missing: OnMissing | None = None,
    ) -> Iterator[Message]:
        """Iterate over a partition or a whole topic, with what retention has deleted and an archive
        has. See `AsyncClient.replay`; `on_missing` is called on another thread."""
        runs = self._client.replay_runs(
            topic,
            partition,
            offset,
            archive=archive,
            from_time=from_time,
            to_time=to_time,
            follow=follow,
            topic_id=topic_id,
            on_missing=on_missing,
        )
        for run in self._each(runs):
            yield from run

    def events_page(
        self,
        topic: str,
        partition: int,
        after: int = 0,
        *,
        after_offset: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        wait_s: float = 0.0,
    ) -> EventsPage:
        """Events in columns. See `AsyncClient.events_page`."""
        return self._thread.run(
            self._client.events_page(
                topic,
                partition,
                after,
                after_offset=after_offset,
                until=until,
                limit=limit,
                wait_s=wait_s,
            )
        )

    def events(
        self,
        topic: str,
        partition: int,
        after: int = 0,
        *,
        until: int | None = None,
        follow: bool = False,
    ) -> Iterator[MessageEvent]:
        """What happened to a partition's messages, in order. See `AsyncClient.events`."""
        pages = self._client.events_pages(topic, partition, after, until=until, follow=follow)
        for page in self._each(pages):
            yield from events_of(page)

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

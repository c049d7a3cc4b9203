"""The asynchronous client: topics, publishing, reading, and the state of the cluster."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Unpack

import msgspec

from goqueue.api.placement import PartitionsAdded
from goqueue.api.subjects import Subjects
from goqueue.api.topic_settings import topic_settings
from goqueue.models.failures import PublishFailed
from goqueue.models.messages import Message, OutgoingMessage, Page, ProducerIdentity, Published
from goqueue.models.options import (
    Cleanup,
    Compression,
    Durability,
    Priority,
    ProducerOptions,
    TopicSettings,
    check_options,
)
from goqueue.models.times import Duration, Time, time_ms
from goqueue.models.topics import Cluster, ClusterHealth, ClusterNode, Partition, Topic
from goqueue.publish.metadata import KnownTopics, TopicFacts
from goqueue.publish.outgoing import Text
from goqueue.publish.producer import Producer
from goqueue.publish.request import Publishing
from goqueue.transport.calls import JSON, decode
from goqueue.transport.http import DEFAULT_SERVER, RetryPolicy, Transport, join, parse_servers
from goqueue.transport.pages import (
    PAGE_LIMIT,
    decode_page,
    interleaved,
    merged,
    partition_pages,
    read_params,
)
from goqueue.transport.patience import Patience, confirmed
from goqueue.transport.spans import SPANS
from goqueue.transport.tls import StrPath, tls_context
from goqueue.wire.batch import BATCH_MEDIA_TYPE
from goqueue.wire.errors import GoQueueError, UnknownTopic


class AsyncClient(Subjects):
    """A connection to one cluster. Use as `async with`, or `close` it in the end.

    Name several servers for failover: any of them serves any request. Every call raises a
    `GoQueueError`; its `outcome` says whether what was asked may have happened all the same. A call
    repeats itself only where that is safe.
    """

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
        """`timeout_s` bounds a call with its repeats, `attempt_timeout_s` each attempt.

        `api_key` is `id.secret`, else what GOQUEUE_API_KEY holds; it goes to `servers` only.
        For https: `ca_file` holds the only authorities to trust, `cert_file` and `key_file` what
        this client shows, all in PEM form; else the files that GOQUEUE_CA_FILE, GOQUEUE_CERT_FILE
        and GOQUEUE_KEY_FILE name; or all of it is in `tls`.
        `compression` (none, zstd, lz4, gzip) is for what is published; reading takes any. Opens
        nothing: the first call does.
        """
        if tls is None and any(url.startswith("https:") for url in parse_servers(servers)):
            tls = tls_context(ca_file, cert_file, key_file)
        self._transport = Transport(
            servers,
            api_key=api_key,
            timeout_s=timeout_s,
            attempt_timeout_s=attempt_timeout_s,
            retry=retry,
            tls=tls,
        )
        self._known = KnownTopics(self._facts)
        self._publishing = Publishing(
            self._transport, self._known, compression, compression_level, _now_ms
        )

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._transport.close()

    # topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        retention_ms: int | None = None,
        retention_bytes: int | None = None,
        durability: Durability | None = None,
        flush_interval_ms: int | None = None,
        lanes: int | None = None,
        max_message_bytes: int | None = None,
        ttl: Duration | None = None,
        delay_max: Duration | None = None,
        delayed_max: int | None = None,
        dedup_window: Duration | None = None,
        dedup_max: int | None = None,
        dedup_producers_bytes: int | None = None,
        dedup_requests_bytes: int | None = None,
        dead_retention: Duration | None = None,
        cleanup: Cleanup | None = None,
        delete_retention: Duration | None = None,
        min_compaction_lag: Duration | None = None,
        min_cleanable_ratio: float | None = None,
        require_archive: bool | None = None,
        compression: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Topic:
        """Create a topic; what is not given has the cluster's default. Raises `TopicExists`.

        `durability` is `majority` (an ack means fsynced on a majority) or `relaxed`. `ttl` is for
        messages that state none; message ids are known again for `dedup_window`. `cleanup` keeps
        each key's last value: `"compact"`, or `"compact,delete"`. With `require_archive` no message
        goes before it is archived. `compression` (zstd, lz4, gzip): of what comes as JSON."""
        settings = {
            "name": name,
            "partitions": partitions,
            "replication_factor": replication_factor,
            "retention_ms": retention_ms,
            "retention_bytes": retention_bytes,
            "durability": durability,
            "flush_interval_ms": flush_interval_ms,
            "lanes": lanes,
            "max_message_bytes": max_message_bytes,
            "ttl": ttl,
            "delay_max": delay_max,
            "delayed_max": delayed_max,
            "dedup_window": dedup_window,
            "dedup_max": dedup_max,
            "dedup_producers_bytes": dedup_producers_bytes,
            "dedup_requests_bytes": dedup_requests_bytes,
            "dead_retention": dead_retention,
            "cleanup": cleanup,
            "delete_retention": delete_retention,
            "min_compaction_lag": min_compaction_lag,
            "min_cleanable_ratio": min_cleanable_ratio,
            "require_archive": require_archive,
            "compression": compression,
            "labels": labels,
        }
        self._known.forget(name)
        return await self._send("POST", join("topics"), topic_settings(settings), Topic)

    async def list_topics(self) -> list[str]:
        """The names of all topics, sorted."""
        return (await self._get(join("topics"), _TopicNames)).topics

    async def topic(self, name: str, *, current: bool = False) -> Topic:
        """A topic with its totals and configuration. With `current` it is asked for again until
        nothing of it is `stale`. Raises `UnknownTopic`, and `Unavailable` where that takes longer
        than the client's `timeout_s`."""

        async def ask() -> tuple[Topic, bool]:
            found = await self._get(join("topics", name), Topic)
            return found, current and found.stale

        return await confirmed(self._transport, f"topic {name}", ask)

    async def alter_topic(self, name: str, **changes: Unpack[TopicSettings]) -> Topic:
        """Change settings, by the names that `create_topic` has; None leaves one as it is.
        Raises TypeError for another name."""
        check_options("alter_topic()", changes, TopicSettings)
        self._known.forget(name)
        return await self._send("PATCH", join("topics", name), topic_settings(changes), Topic)

    async def add_partitions(
        self, topic: str, count: int, assignments: Sequence[Sequence[str]] | None = None
    ) -> PartitionsAdded:
        """Have `count` partitions in all; those there are keep their messages. `assignments` are
        the brokers of each new one.

        Keys are spread over all of them from then on: a key's later messages may go to another
        partition than its earlier ones. Publishers learn of it within 30 s.
        """
        self._known.forget(topic)
        body = {"count": count, "replica_assignments": assignments}
        path = join("admin", "topics", topic, "partitions")
        return await self._send("POST", path, body, PartitionsAdded, repeatable=True)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its messages. Raises `UnknownTopic`."""
        self._known.forget(name)
        await self._transport.request("DELETE", join("topics", name), repeatable=False)

    async def partitions(self, topic: str) -> list[Partition]:
        """Where each partition lives and what it holds, in their order; what a leader did not
        confirm in time is `stale`."""
        return (await self._get(join("topics", topic, "partitions"), _Partitions)).partitions

    async def flush_topic(self, topic: str) -> None:
        """Return once all that was acked so far is fsynced on a majority; for relaxed topics."""
        await self._transport.request("POST", join("topics", topic, "flush"), repeatable=True)

    # publishing

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
        """Publish one message and return where it stands, durably.

        Messages with the same key go to the same partition, in order; without key and partition
        they go by `message_id`, or round. Groups receive it after `delay`, or from `deliver_at` on,
        and no longer once `ttl` has passed; a number is seconds.

        A `value` of None is null: it deletes its key in a compacted topic, and others refuse it.

        A call whose outcome is unknown is repeated only with a `message_id`: the topic remembers it
        for a while (5 minutes, unless configured otherwise), and a publish with the same one is
        answered with the first one's place and `duplicate`. A `Producer` repeats safely without
        ids, and is faster for more than a few messages.
        """
        message = OutgoingMessage(
            value,
            key,
            dict(headers) if headers else None,
            priority,
            partition,
            message_id,
            delay,
            deliver_at,
            ttl,
        )
        with SPANS.publishing(topic, [message]) as traced:
            (result,) = await self._publishing.publish(topic, traced)
            if isinstance(result, GoQueueError):
                raise result
        return result

    async def publish_many(
        self, topic: str, messages: Iterable[OutgoingMessage | Text], *, json: bool = False
    ) -> list[Published]:
        """Publish messages together, one batch a partition; the results are in their order.

        `json` sends them as JSON and leaves the partitions to the server. Not atomic: raises
        `PublishFailed`, with the result of each message, if any of them was not stored.
        """
        given = [
            message if isinstance(message, OutgoingMessage) else OutgoingMessage(message)
            for message in messages
        ]
        if not given:
            return []
        publish = self._publishing.publish_json if json else self._publishing.publish
        with SPANS.publishing(topic, given) as traced:
            results = await publish(topic, traced)
            published = [result for result in results if isinstance(result, Published)]
            if len(published) < len(results):
                raise PublishFailed(results)
        return published

    async def init_producer(
        self, transactional_id: str | None = None, *, timeout_s: float | None = None
    ) -> ProducerIdentity:
        """An identity from the cluster. The same `transactional_id` gets the same producer id with
        the next epoch, which fences whoever had it before. `timeout_s` bounds the call with all
        its repeats, in place of the client's own bound."""
        body = {} if transactional_id is None else {"transactional_id": transactional_id}
        answer = await self._transport.request(
            "POST",
            join("producers", "init"),
            body=msgspec.json.encode(body),
            headers=JSON,
            repeatable=True,  # an id too many costs nothing
            timeout_s=timeout_s,
        )
        return decode(answer.body, ProducerIdentity)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """A `Producer` over this client, with its options; use it as `async with`."""
        check_options("producer()", options, ProducerOptions)
        return Producer(self, **options)

    # reading

    async def read(
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
        """Messages of one partition from an offset on, or within times (`to_time` is exclusive).

        With nothing there yet, waits up to `wait_s` for something. An offset below the log's start
        reads from there. With `current` the page's end is as the leader knows it, also where the
        page does not reach it. One page that is `stale` may end too early: `pages` asks again by
        itself. Raises `OffsetOutOfRange` beyond the end.
        """
        answer = await self._transport.request(
            "GET",
            join("topics", topic, "partitions", partition, "messages"),
            params=read_params(offset, limit, wait_s, from_time, to_time, current=current),
            headers={"Accept": BATCH_MEDIA_TYPE},
            repeatable=True,
            wait_s=wait_s,
        )
        return decode_page(answer, topic, partition, offset, limit)

    def pages(
        self,
        topic: str,
        partition: int,
        offset: int = 0,
        *,
        limit: int = PAGE_LIMIT,
        follow: bool = False,
        from_time: Time | None = None,
        to_time: Time | None = None,
    ) -> AsyncIterator[Page]:
        """One partition page by page, to its end as it was at the start; `follow` goes on for ever,
        or until `to_time`.

        It never ends before all that had been acknowledged by then: where no leader confirms the
        end, it asks again, for the client's `timeout_s`, and raises `Unavailable` then."""

        async def read(offset: int, wait_s: float, current: bool) -> Page:
            within: dict[str, Any] = {"from_time": from_time, "to_time": to_time}
            more: dict[str, Any] = {"limit": limit, "wait_s": wait_s, "current": current}
            return await self.read(topic, partition, offset, **more, **within)

        def is_over() -> bool:
            return to_time is not None and _now_ms() > time_ms(to_time)

        return partition_pages(
            read,
            offset,
            follow=follow,
            is_over=is_over,
            patience=Patience(self._transport),
            name=f"{topic}:{partition}",
        )

    async def messages(
        self,
        topic: str,
        partition: int | None = None,
        offset: int = 0,
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[Message, None]:
        """Iterate over a partition, or over a whole topic in the order of the log's times.

        Ends where the partition ended when iteration began. `follow` goes on for ever, or until
        `to_time`; over a whole topic messages then come as they arrive, in order only within each
        partition.
        """
        runs = self.runs(
            topic, partition, offset, from_time=from_time, to_time=to_time, follow=follow
        )
        async with aclosing(runs):
            async for run in runs:
                for message in run:
                    yield message

    async def runs(
        self,
        topic: str,
        partition: int | None = None,
        offset: int = 0,
        *,
        from_time: Time | None = None,
        to_time: Time | None = None,
        follow: bool = False,
    ) -> AsyncGenerator[list[Message], None]:
        """As `messages`, a list at a time."""
        count = (await self._facts(topic)).partitions if partition is None else 0
        readers = [
            self.pages(topic, number, offset, from_time=from_time, to_time=to_time, follow=follow)
            for number in (range(count) if partition is None else [partition])
        ]
        if len(readers) == 1:
            async for page in readers[0]:
                yield page.messages
            return
        runs = interleaved(readers) if follow else merged(readers)
        async with aclosing(runs):
            async for run in runs:
                yield run

    # the cluster

    async def cluster(self) -> Cluster:
        """The cluster in short, as the node that answers sees it."""
        return await self._get(join("cluster"), Cluster)

    async def cluster_nodes(self) -> list[ClusterNode]:
        """Every broker, and whether it is alive."""
        return (await self._get(join("cluster", "nodes"), _Nodes)).nodes

    async def cluster_health(self) -> ClusterHealth:
        """Whether the cluster serves, and what is wrong with it."""
        return await self._get(join("cluster", "health"), ClusterHealth)

    async def health(self) -> dict[str, Any]:
        """`/health` of the node that answers: it is up."""
        return await self._get("/health", dict[str, Any])

    async def version(self) -> dict[str, Any]:
        """`/version` of the node that answers."""
        return await self._get("/version", dict[str, Any])

    async def stats(self) -> dict[str, Any]:
        """`/stats` of the node that answers."""
        return await self._get("/stats", dict[str, Any])

    # beneath

    @property
    def transport(self) -> Transport:
        """For requests that have no method here: path, body and answer as they are."""
        return self._transport

    @property
    def known_topics(self) -> KnownTopics:
        """What publishing has to know of each topic, remembered for a while."""
        return self._known

    async def _facts(self, topic: str) -> TopicFacts:
        found = await self.topic(topic)
        if found.partitions < 1:
            raise UnknownTopic(topic)
        kept_ms = found.config.get("dedup_window_ms")
        return TopicFacts(found.partitions, kept_ms / 1000 if isinstance(kept_ms, int) else 0.0)


class _TopicNames(msgspec.Struct):
    topics: list[str]


class _Partitions(msgspec.Struct):
    partitions: list[Partition]


class _Nodes(msgspec.Struct):
    nodes: list[ClusterNode]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

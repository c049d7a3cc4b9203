"""The cluster as drivers and executors see it: synchronous, picklable, over the library's HTTP.

One `Broker` serves the source, the sink, the archive and the feed of events:

    with Broker(access) as broker:                     # Options(...).access(), or Access((url,))
        facts = broker.topic("orders")                 # id, leaders' addresses by partition
        spans = broker.spans("orders", [0, 1])         # {0: Span(start=0, end=1234), ...}
        at = broker.offset_at("orders", 0, time_ms)    # the first at or after it, or None
        page = broker.read("orders", 0, offset, leader=facts.leader(0))
        for frame in page.frames(): ...                # goqueue.wire.stream.BatchFrame
        answer = broker.request("GET", join("topics"), repeatable=True)    # anything else

Nothing is opened before the first call, in whichever process makes it; pickling takes only how
the cluster is reached along. Requests that name a `leader` go there first, at its advertised
address, and from there to the given servers, each of which serves any request. All are repeated,
within `Access.request_timeout_s`, only where that is safe; what is left is raised as
`GoQueueError`.

A topic's id tells a topic from a later one of the same name: an id is never used twice. So who
finds the id that he planned with after his last read has read nothing of another topic.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from goqueue.blocking.loop_thread import LoopThread
from goqueue.errors import (
    BadRequest,
    Closed,
    Forbidden,
    NotFound,
    Unauthenticated,
    UnknownPartition,
)
from goqueue.models.topics import ClusterNode, Partition, Topic
from goqueue.transport.calls import decode
from goqueue.transport.channel import Answer
from goqueue.transport.http import RetryPolicy, Transport, join
from goqueue.transport.pages import FramePage, frame_page
from goqueue.transport.patience import confirmed
from goqueue.wire.layout import BATCH_MEDIA_TYPE
from pipeline.broker_access import Access

T = TypeVar("T")

ATTEMPT_TIMEOUT_S = 10.0
"""How long one server may take before the next one is asked."""
ATTEMPTS_MAX = 100
"""Of one request, within its timeout."""
TOGETHER_MAX = 16
"""Requests that one call has under way at once."""
PAGE_BYTES = 4 << 20
PAGE_RECORDS = 100_000
"""The most that a node answers at once."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a partition holds: offsets from `start`, the first kept, up to `end`, the high
    watermark: the next message gets it, and all below is committed."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic: its id, and the base URL of each partition's leader, None where it is not known or
    may not be asked. Where it is compacted, offsets are missing that nothing was lost with."""

    name: str
    id: str
    leaders: tuple[str | None, ...]
    is_compacted: bool = False

    @property
    def partitions(self) -> int:
        return len(self.leaders)

    def leader(self, partition: int) -> str | None:
        """None, too, for a partition that has come since."""
        return self.leaders[partition] if partition < len(self.leaders) else None


class Broker:
    """A cluster, by blocking calls. Use as `with`, or `close` it in the end."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self._thread = LoopThread()
        self._transports: dict[str | None, Transport] = {}
        self._addresses: dict[str, str] = {}

    def __reduce__(self) -> tuple[type[Broker], tuple[Access]]:
        return Broker, (self.access,)

    def __enter__(self) -> Broker:
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
        transports, self._transports = self._transports, {}
        try:
            for transport in transports.values():
                self._thread.run(transport.close())
        except Closed:
            return
        self._thread.stop()

    # what there is

    def topics(self) -> list[str]:
        """The names of all topics that may be seen, sorted."""
        answer = self.request("GET", join("topics"), repeatable=True)
        return decode(answer.body, _TopicNames).topics

    def topics_like(self, pattern: str) -> list[str]:
        """The names that the pattern matches in full. Raises re.error."""
        matches = re.compile(pattern).fullmatch
        return [name for name in self.topics() if matches(name)]

    def topic(self, name: str) -> TopicFacts:
        """Raises UnknownTopic."""
        found = decode(self.request("GET", join("topics", name), repeatable=True).body, Topic)
        names = [detail.leader for detail in found.partition_details]
        if not set(names) - {None} <= self._addresses.keys():
            self._addresses = self._advertised()
        leaders = tuple(self._addresses.get(name or "") for name in names)
        is_compacted = found.config.get("cleanup", "delete") != "delete"
        return TopicFacts(found.name, found.id, leaders, is_compacted)

    def spans(self, topic: str, partitions: Iterable[int]) -> dict[int, Span]:
        """Where each partition begins and ends, as of a moment after the call: one question,
        however many partitions. Raises UnknownPartition, UnknownTopic, or Unavailable where a
        partition, asked for or not, can't say."""
        numbers = list(partitions)
        answer = self.request(
            "GET", join("topics", topic, "partitions"), params={"current": "true"}, repeatable=True
        )
        rows = decode(answer.body, _Partitions).partitions
        found = {row.partition: Span(row.earliest, row.next) for row in rows}
        for number in numbers:
            if number not in found:
                raise UnknownPartition(topic, number)
        return {number: found[number] for number in numbers}

    def offsets_at(
        self, topic: str, partitions: Iterable[int], time_ms: int
    ) -> dict[int, int | None]:
        """In each partition the first offset whose log time is `time_ms` or later; None where no
        message has, as its leader confirms. Raises as `spans`."""
        params = {"from_time": str(time_ms), "limit": "1", "max_bytes": "1"}
        found: dict[int, int | None] = {}
        for number, page in self._pages(topic, partitions, params).items():
            first = next(page.frames(), None)
            found[number] = None if first is None else max(first.base_offset, page.log_start)
        return found

    def offset_at(self, topic: str, partition: int, time_ms: int) -> int | None:
        """As `offsets_at`, for one partition."""
        return self.offsets_at(topic, [partition], time_ms)[partition]

    # what is in it

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        leader: str | None = None,
        records_max: int = PAGE_RECORDS,
        bytes_max: int = PAGE_BYTES,
    ) -> FramePage:
        """Stored batches that cover `offset` on: at least one where there is any.

        An offset below the log's start reads from there: compare. Raises OffsetOutOfRange beyond
        the end, UnknownTopic, UnknownPartition.
        """
        params = {"offset": str(offset), "limit": str(records_max), "max_bytes": str(bytes_max)}
        return self._run(self._page(topic, partition, params, leader))

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool,
        leader: str | None = None,
    ) -> Answer:
        """One request, `leader` first. `repeatable`: it may safely happen twice."""
        return self._run(
            self._transport(leader).request(
                method, path, params=params, body=body, headers=headers, repeatable=repeatable
            )
        )

    def requests(self, calls: Sequence[Callable[[Transport], Coroutine[Any, Any, T]]]) -> list[T]:
        """What several calls over the given servers' transport answer, some at once, in order."""

        async def bounded() -> list[T]:
            turn = asyncio.Semaphore(TOGETHER_MAX)

            async def one(call: Callable[[Transport], Coroutine[Any, Any, T]]) -> T:
                async with turn:
                    return await call(self._transport(None))

            async with asyncio.TaskGroup() as task_group:
                tasks = [task_group.create_task(one(call)) for call in calls]
            return [task.result() for task in tasks]

        try:
            return self._run(bounded())
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    # private

    def _pages(
        self, topic: str, partitions: Iterable[int], params: Mapping[str, str]
    ) -> dict[int, FramePage]:
        numbers = list(partitions)

        def asking(number: int) -> Callable[[Transport], Coroutine[Any, Any, FramePage]]:
            return lambda _transport: self._confirmed_page(topic, number, params)

        return dict(zip(numbers, self.requests([*map(asking, numbers)]), strict=True))

    async def _confirmed_page(
        self, topic: str, partition: int, params: Mapping[str, str]
    ) -> FramePage:
        """A page that is not stale, or whose first messages are there. Raises Unavailable."""

        async def ask() -> tuple[FramePage, bool]:
            page = await self._page(topic, partition, params, None)
            return page, page.stale and not page.body

        return await confirmed(self._transport(None), f"{topic}:{partition}", ask)

    async def _page(
        self, topic: str, partition: int, params: Mapping[str, str], leader: str | None
    ) -> FramePage:
        answer = await self._transport(leader).request(
            "GET",
            join("topics", topic, "partitions", partition, "messages"),
            params=params,
            headers={"Accept": BATCH_MEDIA_TYPE},
            repeatable=True,
        )
        return frame_page(answer)

    def _advertised(self) -> dict[str, str]:
        try:
            answer = self.request("GET", join("cluster", "nodes"), repeatable=True)
        except (Forbidden, NotFound, BadRequest, Unauthenticated):
            return {}  # a key for some topics only: the given servers do
        nodes = decode(answer.body, _Nodes).nodes
        told = {node.id: node.http_url.rstrip("/") for node in nodes if node.http_url}
        return {name: url for name, url in told.items() if self.access.takes(url)}

    def _transport(self, leader: str | None) -> Transport:
        if leader not in self._transports:
            others = [server for server in self.access.servers if server != leader]
            self._transports[leader] = Transport(
                others if leader is None else [leader, *others],
                api_key=self.access.api_key,
                timeout_s=self.access.request_timeout_s,
                attempt_timeout_s=ATTEMPT_TIMEOUT_S,
                retry=RetryPolicy(attempts_max=ATTEMPTS_MAX),
                tls=self.access.tls(),
            )
        return self._transports[leader]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)


class _TopicNames(msgspec.Struct):
    topics: list[str]


class _Partitions(msgspec.Struct):
    partitions: list[Partition]


class _Nodes(msgspec.Struct):
    nodes: list[ClusterNode]

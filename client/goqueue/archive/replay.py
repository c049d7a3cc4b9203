"""A topic from archive and log, as one stream: in the order of log times, then as messages come."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from goqueue.archive.reader import ArchivedTopic
from goqueue.archive.seam import Archived, OnMissing, PartitionReplay, Place, Window, refuse
from goqueue.models.messages import Message, Page
from goqueue.models.times import Time
from goqueue.models.topics import Topic
from goqueue.transport.pages import FOLLOW_WAIT_S, PAGE_LIMIT, interleaved, merged
from goqueue.wire.errors import (
    BadRequest,
    Conflict,
    OffsetOutOfRange,
    UnknownPartition,
    UnknownTopic,
)


class TopicReplaced(Conflict):
    """The topic was deleted while it was read, and what was read last may be of another one."""

    code = "topic_replaced"
    text = "the topic was deleted meanwhile"


class Cluster(Protocol):
    """What is asked of the client."""

    async def topic(self, name: str, *, current: bool = False) -> Topic: ...

    async def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        limit: int = 100,
        wait_s: float = 0.0,
        from_time: Time | None = None,
    ) -> Page: ...


class LiveTopic:
    """A topic of the cluster, for as long as it has its id."""

    def __init__(self, cluster: Cluster, topic: Topic) -> None:
        self._cluster, self._topic = cluster, topic

    async def read(self, partition: int, offset: int, wait_s: float, from_ms: int | None) -> Page:
        """The next page. Raises TopicReplaced where it is not of this topic."""
        name = self._topic.name
        try:
            page = await self._cluster.read(
                name, partition, offset, limit=PAGE_LIMIT, wait_s=wait_s, from_time=from_ms
            )
        except (OffsetOutOfRange, UnknownPartition):  # of one that is shorter, maybe
            await self._check()
            raise
        if page.topic_id != self._topic.id:
            await self._check()
        return page

    async def _check(self) -> None:
        if (await self._cluster.topic(self._topic.name)).id != self._topic.id:
            raise TopicReplaced(f"{self._topic.name} was deleted while it was read")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of a topic is to be replayed. `offsets` is where each partition begins: one for all, or
    by partition (0 where it has none), or what tells it."""

    topic: str
    partition: int | None = None
    offsets: int | Mapping[int, int] | Callable[[int], int] = 0
    from_ms: int | None = None
    to_ms: int | None = None
    topic_id: str | None = None

    def window(self, partition: int) -> Window:
        given = self.offsets
        if isinstance(given, int):
            offset = given
        else:
            offset = given.get(partition, 0) if isinstance(given, Mapping) else given(partition)
        return Window(offset, self.from_ms, self.to_ms)


class TopicReplay:
    """One reading of a topic. Open it, then read `runs` once."""

    def __init__(
        self,
        replays: Sequence[PartitionReplay],
        ends: Sequence[int],
        live: LiveTopic | None,
        now_ms: Callable[[], int],
        to_ms: int | None,
    ) -> None:
        """`ends`: where each of the replays stops, but for those that follow."""
        self._replays, self._ends, self._live = replays, ends, live
        self._now_ms, self._to_ms = now_ms, to_ms

    @classmethod
    async def open(
        cls,
        cluster: Cluster,
        wanted: Wanted,
        *,
        archive: str | None = None,
        on_missing: OnMissing = refuse,
    ) -> TopicReplay:
        """Find the topic, in the cluster and in the archive at this URL, by default that which the
        topic names; without any, what retention has deleted is missing.

        Raises UnknownTopic, UnknownPartition, and what opening an archive does.
        """
        topic = await find_topic(cluster, wanted)
        url = archive or (topic.archive if topic is not None else None)
        if topic is None and url is None:
            raise UnknownTopic(wanted.topic)
        archived = None
        if url is not None:
            topic_id = wanted.topic_id if topic is None else topic.id
            archived = ArchivedTopic(url, wanted.topic, topic_id, is_live=topic is not None)
            await archived.current()
        return await cls.of(cluster, wanted, topic, archived, on_missing)

    @classmethod
    async def of(
        cls,
        cluster: Cluster,
        wanted: Wanted,
        topic: Topic | None,
        archived: Archived | None,
        on_missing: OnMissing = refuse,
    ) -> TopicReplay:
        """As `open`, of what was found; `archived` is looked into only where that is needed."""
        live = None if topic is None else LiveTopic(cluster, topic)
        logs = {one.partition: one for one in topic.partition_details} if topic else {}
        ends = {number: log.next for number, log in logs.items()}
        if archived is not None and live is None:
            ends = (await archived.current()).positions()
        numbers = sorted(ends) if wanted.partition is None else [wanted.partition]
        if wanted.partition is not None and wanted.partition not in ends:
            raise UnknownPartition(wanted.topic, wanted.partition)
        replays = [
            PartitionReplay(
                wanted.topic,
                number,
                wanted.window(number),
                archived=archived,
                live=None
                if live is None or topic is None
                else (live, Place(logs[number].earliest, topic.is_compacted)),
                on_missing=on_missing,
            )
            for number in numbers
        ]
        return cls(replays, [ends[number] for number in numbers], live, _now_ms, wanted.to_ms)

    async def runs(self, *, follow: bool = False) -> AsyncGenerator[list[Message], None]:
        """Runs of messages to where the topic ended when it was opened; `follow` goes on with new
        ones as they come. Raises MessagesMissing or what `on_missing` does, TopicReplaced."""
        if follow and self._live is None:
            raise BadRequest("a topic that is deleted can't be followed")
        pages = [
            self._pages(replay, end) for replay, end in zip(self._replays, self._ends, strict=True)
        ]
        try:
            async with aclosing(merged(pages)) as runs:
                async for run in runs:
                    yield run
        finally:
            for one in pages:
                await one.aclose()
        if follow:
            coming = interleaved([self._pages(replay, None) for replay in self._replays])
            async with aclosing(coming) as runs:
                async for run in runs:
                    yield run

    async def _pages(self, replay: PartitionReplay, end: int | None) -> AsyncGenerator[Page, None]:
        """Runs as pages with messages; a followed one ends when nothing wanted can come."""
        async with aclosing(replay.runs(end, FOLLOW_WAIT_S)) as runs:
            async for run in runs:
                if run:
                    yield Page(run[0].topic, run[0].partition, run, run[-1].offset + 1, 0, 0)
                elif end is None and self._to_ms is not None and self._now_ms() > self._to_ms:
                    return


async def find_topic(cluster: Cluster, wanted: Wanted) -> Topic | None:
    """The topic of the cluster, or None where it has none of the wanted name and id. Its ends are
    as its leaders know them. Raises `Unavailable` where they don't tell."""
    try:
        topic = await cluster.topic(wanted.topic, current=True)
    except UnknownTopic:
        return None
    return topic if wanted.topic_id in (None, topic.id) else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

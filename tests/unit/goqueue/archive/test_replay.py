"""A topic is read in the order of log times, and never goes over into another of its name."""

from __future__ import annotations

import pytest

from goqueue.archive.replay import LiveTopic, TopicReplaced, TopicReplay, Wanted, find_topic
from goqueue.errors import BadRequest, OffsetOutOfRange, UnknownPartition, UnknownTopic
from goqueue.models.messages import Message, Page
from goqueue.models.times import Time
from goqueue.models.topics import Partition, Topic


class Cluster:
    """A topic of three partitions, whose messages' log times interleave; it may be made anew."""

    def __init__(self) -> None:
        self.id = "ab-1"
        self.is_deleted = False
        self.end = 4

    async def topic(self, name: str, *, current: bool = False) -> Topic:
        if self.is_deleted:
            raise UnknownTopic(name)
        details = [Partition(number, next=self.end) for number in range(3)]
        return Topic(name, 3, self.id, partition_details=details)

    async def read(
        self,
        topic: str,
        partition: int = 0,
        offset: int = 0,
        *,
        limit: int = 100,
        wait_s: float = 0.0,
        from_time: Time | None = None,
    ) -> Page:
        if offset > self.end:
            raise OffsetOutOfRange(offset, 0, self.end)
        found = [
            Message(topic, partition, at, 100 * at + 10 * ((partition + at) % 3), b"")
            for at in range(offset, min(self.end, offset + 2))
        ]
        return Page(topic, partition, found, offset + len(found), 0, self.end, self.id)


async def opened(cluster: Cluster, wanted: Wanted) -> TopicReplay:
    return await TopicReplay.of(cluster, wanted, await cluster.topic("orders"), None)


async def test_partitions_come_in_the_order_of_their_log_times() -> None:
    replay = await opened(Cluster(), Wanted("orders"))
    found = [one for run in [run async for run in replay.runs()] for one in run]
    assert len(found) == 12
    assert [one.timestamp_ms for one in found] == sorted(one.timestamp_ms for one in found)


async def test_each_partition_may_begin_elsewhere_and_one_may_be_read_alone() -> None:
    replay = await opened(Cluster(), Wanted("orders", offsets={0: 4, 1: 3}))
    runs = [run async for run in replay.runs()]
    assert sorted((one.partition, one.offset) for run in runs for one in run) == [
        (1, 3), (2, 0), (2, 1), (2, 2), (2, 3),
    ]  # fmt: skip
    only = await opened(Cluster(), Wanted("orders", 1, 2))
    assert [one.offset for run in [run async for run in only.runs()] for one in run] == [2, 3]
    with pytest.raises(UnknownPartition):
        await opened(Cluster(), Wanted("orders", 3))


async def test_a_topic_made_anew_while_it_is_read_ends_the_reading() -> None:
    cluster = Cluster()
    live = LiveTopic(cluster, await cluster.topic("orders"))
    assert len((await live.read(0, 0, 0.0, None)).messages) == 2

    cluster.id = "ab-9"
    with pytest.raises(TopicReplaced):
        await live.read(0, 2, 0.0, None)
    cluster.end = 1
    with pytest.raises(TopicReplaced):  # and not that the offset is none
        await live.read(0, 2, 0.0, None)


async def test_a_topic_is_found_by_its_id_where_one_is_asked_for() -> None:
    cluster = Cluster()
    assert (await find_topic(cluster, Wanted("orders"))) is not None
    assert (await find_topic(cluster, Wanted("orders", topic_id="ab-1"))) is not None
    assert (await find_topic(cluster, Wanted("orders", topic_id="ab-0"))) is None
    cluster.is_deleted = True
    assert (await find_topic(cluster, Wanted("orders"))) is None
    with pytest.raises(UnknownTopic):
        await TopicReplay.open(cluster, Wanted("orders"))


async def test_what_is_deleted_can_not_be_followed() -> None:
    replay = TopicReplay([], [], None, lambda: 0, None)
    with pytest.raises(BadRequest, match="can't be followed"):
        await anext(replay.runs(follow=True))

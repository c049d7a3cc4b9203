"""Figures over the cluster: rates, what does not answer, and many topics without a stall."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from goqueue.wire.batch import encode_columns
from goqueue.wire.errors import Unavailable, UnknownTopic
from node.api.figures import PartitionQueueStats
from node.broker.node import NodeBroker
from node.http.console import templates
from node.http.console.census import FRESH_S, POINTS_MAX, Census
from node.http.server.app import HttpFront
from tests.steps import Steps, longest_stretch
from tests.unit.node.http.conftest import Client


class Watch:
    """A census whose clock is the test's, over a broker that counts questions."""

    def __init__(self, broker: NodeBroker) -> None:
        self.now_s = 1000.0
        self.asked: list[str] = []
        self.silent: set[int] = set()
        self.fault: Exception | None = None
        self._ask = broker.figures.queue_stats
        broker.figures.queue_stats = self._stats  # type: ignore[method-assign]
        self.census = Census(
            broker, clock_s=lambda: self.now_s, wall_ms=lambda: round(self.now_s * 1000)
        )

    async def _stats(self, topic: str | None = None) -> list[PartitionQueueStats]:
        assert topic is not None, "never everything at once"
        self.asked.append(topic)
        if self.fault is not None:
            raise self.fault
        found: Sequence[PartitionQueueStats] = await self._ask(topic)
        return [one for one in found if one.partition not in self.silent]


@pytest.fixture
def watch(broker: NodeBroker) -> Watch:
    return Watch(broker)


async def put(broker: NodeBroker, count: int, partition: int = 0, topic: str = "orders") -> None:
    await broker.records.append(topic, partition, encode_columns([b"x"] * count), deadline_s=30)


async def test_rates_are_of_all_partitions_between_two_looks(
    broker: NodeBroker, watch: Watch, orders: str
) -> None:
    await put(broker, 7)
    first = await watch.census.topic(orders)
    await put(broker, 30)
    await put(broker, 10, partition=2)
    watch.now_s += 4
    second = await watch.census.topic(orders)

    assert first.published_rate is None
    assert second.published_rate == 10.0
    assert [point.published for point in watch.census.points(orders)] == [10.0]
    assert second.stored[2] == 47


async def test_however_many_look_a_topic_is_asked_for_once_a_second(
    watch: Watch, orders: str
) -> None:
    await asyncio.gather(*(watch.census.topic(orders) for _ in range(50)))
    assert len(watch.asked) == 1

    watch.now_s += FRESH_S
    await watch.census.topic(orders)
    assert len(watch.asked) == 2


async def test_a_partition_that_comes_back_is_no_burst_and_none_is_lost(
    broker: NodeBroker, watch: Watch, orders: str
) -> None:
    await put(broker, 1000)
    watch.silent = {0}
    figures = await watch.census.topic(orders)
    assert (figures.answered, figures.partitions) == (2, 3)

    watch.silent = set()
    watch.now_s += 2
    figures = await watch.census.topic(orders)
    assert (figures.answered, figures.published_rate) == (3, 0.0)


async def test_the_last_figures_stay_where_nobody_answers(
    broker: NodeBroker, watch: Watch, orders: str
) -> None:
    await put(broker, 5)
    before = await watch.census.topic(orders)
    watch.fault = Unavailable("not now")
    watch.now_s += 60

    assert await watch.census.topic(orders) is before
    sweep = await watch.census.all()
    assert (sweep.missing, sweep.oldest_s) == (0, 60.0)


async def test_only_topics_that_are_there_are_remembered(
    broker: NodeBroker, watch: Watch, orders: str
) -> None:
    with pytest.raises(UnknownTopic):
        await watch.census.topic("missing")
    await watch.census.topic(orders)
    await broker.topics.delete_topic(orders)

    assert (await watch.census.all()).topics == []
    assert watch.census.points(orders) == []


async def test_points_are_bounded(watch: Watch, orders: str) -> None:
    for _ in range(POINTS_MAX + 20):
        watch.now_s += 2
        await watch.census.topic(orders)

    assert len(watch.census.points(orders)) == POINTS_MAX


async def test_a_sweep_ends_in_time_and_the_next_goes_on(
    broker: NodeBroker, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(100):
        await broker.topics.create_topic(f"t-{n}", {"partitions": 1})
    ask = watch.census._known

    async def slow(name: str) -> Any:
        watch.now_s += 0.05
        return await ask(name)

    monkeypatch.setattr(watch.census, "_known", slow)
    first = await watch.census.all()
    second = await watch.census.all()
    third = await watch.census.all()

    assert 0 < len(first.topics) < len(second.topics) <= len(third.topics)
    assert first.missing > 0
    asked_of_first = watch.asked[: len(first.topics)]
    assert not set(asked_of_first) & set(watch.asked[len(first.topics) : len(second.topics)])


HELD_STEPS_MAX = 60_000
"""33,000 today, of which making a page are a thousand; unsliced, one takes 1,500,000."""


async def test_a_thousand_topics_with_five_thousand_partitions_do_not_hold_the_loop(
    broker: NodeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them answer as the one topic does that is there."""
    await broker.topics.create_topic("one", {"partitions": 5})
    names, stats = [f"topic-{n:04}" for n in range(1000)], await broker.figures.queue_stats("one")

    async def queue_stats(topic: str) -> list[PartitionQueueStats]:
        return [replace(one, topic=topic) for one in stats]

    monkeypatch.setattr(broker.topics, "list_topics", lambda: names)
    monkeypatch.setattr(broker.topics, "partition_count", lambda _: 5)
    monkeypatch.setattr(broker.figures, "queue_stats", queue_stats)
    front = HttpFront(broker, port=0)
    await front.start()
    try:
        async with aiohttp.ClientSession() as session:
            client = Client(session, front)
            assert (await client.get("/ui")).status == 200  # templates are compiled by now
            for path in ("/ui", "/ui?page=100", "/ui/topics?page=20", "/ui/groups", "/ui/dead"):
                with Steps() as counted:
                    clock = SimpleNamespace(perf_counter=counted.clock_s)
                    monkeypatch.setattr(templates, "time", clock)
                    held, answer = await longest_stretch(counted, client.get(path))
                assert answer.status == 200 and len(answer.body) < 120_000, path
                assert held < HELD_STEPS_MAX, path
    finally:
        await front.stop()

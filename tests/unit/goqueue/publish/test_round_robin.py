"""Messages without a key begin at a random partition, and go round from there."""

from __future__ import annotations

import random

from goqueue import AsyncClient
from goqueue.publish.round_robin import TOPICS_MAX, RoundRobin

PARTITIONS = 6


async def test_clients_that_publish_one_message_each_reach_all_partitions(url: str) -> None:
    reached = set()
    async with AsyncClient(url) as setup:
        await setup.create_topic("jobs", partitions=PARTITIONS)
        for _ in range(200):
            async with AsyncClient(url) as client:
                reached.add((await client.publish("jobs", "x")).partition)
            if len(reached) == PARTITIONS:
                break

    assert reached == set(range(PARTITIONS))


async def test_producers_begin_anywhere(url: str) -> None:
    reached = set()
    async with AsyncClient(url) as client:
        await client.create_topic("jobs", partitions=PARTITIONS)
        for _ in range(200):
            async with client.producer(linger_ms=0) as producer:
                reached.add((await producer.publish("jobs", "x")).partition)
            if len(reached) == PARTITIONS:
                break

    assert reached == set(range(PARTITIONS))


async def test_one_client_goes_round_in_each_topic(url: str) -> None:
    async with AsyncClient(url) as client:
        for topic in ("a", "b"):
            await client.create_topic(topic, partitions=PARTITIONS)
        places = [
            [(await client.publish(topic, "x")).partition for topic in ("a", "b")]
            for _ in range(PARTITIONS)
        ]

    for of_one in zip(*places, strict=True):
        assert set(of_one) == set(range(PARTITIONS))


def test_the_turns_of_many_topics_are_bounded() -> None:
    round_robin = RoundRobin(random.Random(1))

    for number in range(TOPICS_MAX + 10):
        round_robin.take(f"topic-{number}")

    assert len(round_robin._now) == TOPICS_MAX

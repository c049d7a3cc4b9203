"""Events through the client, against a real node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from goqueue import AsyncClient, Client
from goqueue.errors import UnknownPartition, UnknownTopic
from goqueue.testing import Broker

FIRST = 3
"""The entry of the first message: a leader begins with two of its own."""


@pytest.fixture
def url(goqueue_broker: Broker) -> str:
    return goqueue_broker.url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        await client.create_topic("orders", partitions=1)
        for number in range(3):
            await client.publish("orders", "v", key=b"\xff", message_id=f"id-{number}")
        yield client


async def test_events_of_a_partition_are_iterated_over(client: AsyncClient) -> None:
    found = [event async for event in client.events("orders", 0) if event.event_type == "PUBLISHED"]

    assert [event.offset for event in found] == [0, 1, 2]
    assert [event.index for event in found] == [FIRST, FIRST + 1, FIRST + 2]
    first = found[0]
    assert (first.id, first.event_type, first.seq) == ("orders:0:0", "PUBLISHED", 0)
    assert (first.key, first.message_id, first.lane) == (b"\xff", "id-0", "normal")
    assert first.attributes is not None
    assert "produced_at_ms" in first.attributes


async def test_reading_goes_on_after_an_index_and_ends_with_another(client: AsyncClient) -> None:
    found = client.events("orders", 0, FIRST, until=FIRST + 1)

    assert [(event.event_type, event.offset) async for event in found] == [
        ("REPLICATED", 0),
        ("PUBLISHED", 1),
    ]


async def test_who_follows_is_told_what_comes(client: AsyncClient) -> None:
    async def next_offset() -> int:
        async for event in client.events("orders", 0, FIRST + 2, follow=True):
            if event.event_type == "PUBLISHED":
                return event.offset
        raise AssertionError("it ended")

    coming = asyncio.create_task(next_offset())
    await asyncio.sleep(0)
    await client.publish("orders", "more")

    assert await coming == 3


async def test_what_is_not_there_has_no_events(client: AsyncClient) -> None:
    with pytest.raises(UnknownTopic):
        await client.events_page("none", 0)
    with pytest.raises(UnknownPartition):
        await client.events_page("orders", 7)


async def test_the_blocking_client_tells_the_same(client: AsyncClient, url: str) -> None:
    def read() -> tuple[list[int], int]:
        with Client(url) as blocking:
            return (
                [
                    event.offset
                    for event in blocking.events("orders", 0)
                    if event.event_type == "PUBLISHED"
                ],
                blocking.events_page("orders", 0, limit=1).events.offset[0],
            )

    assert await asyncio.to_thread(read) == ([0, 1, 2], 0)

"""A page or a topic that no leader confirms ends nothing: it is asked for again, for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from goqueue import AsyncClient
from goqueue.errors import Unavailable
from node.http.fake.broker import FakeBroker
from node.http.server.app import HttpFront
from tests.unit.goqueue.conftest import QUICK


@pytest.fixture
async def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
async def near(broker: FakeBroker) -> AsyncIterator[AsyncClient]:
    """A client of the broker, which holds six messages."""
    front = HttpFront(broker, port=0)
    await front.start()
    async with AsyncClient(f"http://127.0.0.1:{front.port}", retry=QUICK, timeout_s=0.5) as client:
        await client.create_topic("t", partitions=1)
        for number in range(6):
            await client.publish("t", str(number), partition=0)
        yield client
    await front.stop()


async def values(client: AsyncClient, limit: int = 1000) -> list[str]:
    return [message.text async for page in client.pages("t", 0, limit=limit) for message in page]


@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize("end", [0, 2, 5])
async def test_pages_return_all_however_often_an_answer_is_stale(
    broker: FakeBroker, near: AsyncClient, end: int, limit: int
) -> None:
    broker.hide("t", 0, end, answers=7)

    assert await values(near, limit) == ["0", "1", "2", "3", "4", "5"]


async def test_a_page_says_that_it_is_stale_in_a_header_and_in_json(
    broker: FakeBroker, near: AsyncClient
) -> None:
    broker.hide("t", 0, 2, answers=1)
    page = await near.read("t", 0)
    assert (len(page), page.next_offset, page.stale) == (2, 2, True)
    assert not (await near.read("t", 0)).stale

    broker.hide("t", 0, 2, answers=1)
    path = "/v1/topics/t/partitions/0/messages"
    told = await near.transport.request("GET", path, repeatable=True)
    assert b'"stale":true' in told.body


async def test_pages_that_nobody_confirms_end_in_an_error_after_what_there_is(
    broker: FakeBroker, near: AsyncClient
) -> None:
    broker.hide("t", 0, 2, answers=1 << 30)
    found = list[str]()

    with pytest.raises(Unavailable, match="t:0 from offset 2 on: no leader has confirmed") as told:
        async for page in near.pages("t", 0):
            found += [message.text for message in page]

    assert found == ["0", "1"]
    assert told.value.retriable


async def test_a_topic_that_is_to_be_current_is_asked_for_until_it_is(
    broker: FakeBroker, near: AsyncClient
) -> None:
    broker.hide("t", 0, 2, answers=3)
    stale = await near.topic("t")
    assert (stale.stale, [one.next for one in stale.partition_details]) == (True, [2])
    assert [one.stale for one in await near.partitions("t")] == [True]

    broker.hide("t", 0, 2, answers=3)
    found = await near.topic("t", current=True)
    assert (found.stale, [one.next for one in found.partition_details]) == (False, [6])

    broker.hide("t", 0, 2, answers=1 << 30)
    with pytest.raises(Unavailable, match="topic t"):
        await near.topic("t", current=True)


async def test_a_replay_reads_on_to_the_end_that_leaders_confirm(
    broker: FakeBroker, near: AsyncClient
) -> None:
    broker.hide("t", 0, 2, answers=2)

    assert [message.text async for message in near.replay("t")] == ["0", "1", "2", "3", "4", "5"]

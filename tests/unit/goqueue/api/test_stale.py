"""A page or a topic that no leader confirms ends nothing: it is asked for again, for a while."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from goqueue import AsyncClient
from goqueue.errors import Unavailable
from node.assembly import NodeAssembly
from tests.lagging import Lagging
from tests.one_node import one_node
from tests.unit.goqueue.conftest import QUICK


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with one_node() as started:
        yield started


@pytest.fixture
async def near(node: NodeAssembly) -> AsyncIterator[AsyncClient]:
    """A client of the node, which holds six messages."""
    async with AsyncClient(url(node), retry=QUICK) as client:
        await client.create_topic("t", partitions=1)
        for number in range(6):
            await client.publish("t", str(number), partition=0)
        yield client


@pytest.fixture
async def hurried(node: NodeAssembly, near: AsyncClient) -> AsyncIterator[AsyncClient]:
    """As `near`, and soon gives up."""
    async with AsyncClient(url(node), retry=QUICK, timeout_s=1.5) as client:
        yield client


def url(node: NodeAssembly) -> str:
    return f"http://127.0.0.1:{node.front.port}"


@pytest.fixture
def replica(node: NodeAssembly) -> Lagging:
    return Lagging(node.broker)


async def values(client: AsyncClient, limit: int = 1000) -> list[str]:
    return [message.text async for page in client.pages("t", 0, limit=limit) for message in page]


@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize("end", [0, 2, 5])
async def test_pages_return_all_however_often_an_answer_is_stale(
    replica: Lagging, near: AsyncClient, end: int, limit: int
) -> None:
    replica.hide(end, answers=7)

    assert await values(near, limit) == ["0", "1", "2", "3", "4", "5"]


async def test_a_page_says_that_it_is_stale_in_a_header_and_in_json(
    replica: Lagging, near: AsyncClient
) -> None:
    replica.hide(2, answers=1)
    page = await near.read("t", 0)
    assert (len(page), page.next_offset, page.stale) == (2, 2, True)
    assert not (await near.read("t", 0)).stale

    replica.hide(2, answers=1)
    path = "/v1/topics/t/partitions/0/messages"
    told = await near.transport.request("GET", path, repeatable=True)
    assert b'"stale":true' in told.body


async def test_pages_that_nobody_confirms_end_in_an_error_after_what_there_is(
    replica: Lagging, hurried: AsyncClient
) -> None:
    replica.hide(2, answers=1 << 30)
    found = list[str]()

    with pytest.raises(Unavailable, match="t:0 from offset 2 on: no leader has confirmed") as told:
        async for page in hurried.pages("t", 0):
            found += [message.text for message in page]

    assert found == ["0", "1"]
    assert told.value.retriable


async def test_a_topic_that_is_to_be_current_is_asked_for_until_it_is(
    replica: Lagging, near: AsyncClient, hurried: AsyncClient
) -> None:
    replica.hide(2, answers=3)
    stale = await near.topic("t")
    assert (stale.stale, [one.next for one in stale.partition_details]) == (True, [2])
    assert [one.stale for one in await near.partitions("t")] == [True]

    replica.hide(2, answers=3)
    found = await near.topic("t", current=True)
    assert (found.stale, [one.next for one in found.partition_details]) == (False, [6])

    replica.hide(2, answers=1 << 30)
    with pytest.raises(Unavailable, match="topic t"):
        await hurried.topic("t", current=True)


async def test_a_replay_reads_on_to_the_end_that_leaders_confirm(
    replica: Lagging, near: AsyncClient
) -> None:
    replica.hide(2, answers=2)

    assert [message.text async for message in near.replay("t")] == ["0", "1", "2", "3", "4", "5"]

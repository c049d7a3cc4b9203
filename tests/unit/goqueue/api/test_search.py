"""Finding messages through the client, against a real node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from goqueue import AsyncClient, Client, FoundPage
from goqueue.errors import BadRequest, NotFound, UnknownTopic
from node.api.search import NotSearched, SearchPage
from node.broker.node import NodeBroker
from node.http.server.app import HttpFront
from tests.one_node import one_node

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


@pytest.fixture
async def broker() -> AsyncIterator[NodeBroker]:
    async with one_node() as node:
        await node.broker.topics.create_topic("orders", {"partitions": 2})
        yield node.broker


@pytest.fixture
async def url(broker: NodeBroker) -> AsyncIterator[str]:
    front = HttpFront(broker, port=0)
    await front.start()
    yield f"http://127.0.0.1:{front.port}"
    await front.stop()


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url) as client:
        await client.publish(
            "orders",
            "a",
            key=b"\xff",
            partition=0,
            message_id="first:1",
            headers={"traceparent": PARENT, "shop": "berlin mitte"},
        )
        await client.publish("orders", "b", key="k", partition=1)
        yield client


def ids(page: FoundPage) -> list[str]:
    assert page.complete
    return [message.id for message in page]


async def test_messages_are_found_by_what_they_carry(client: AsyncClient) -> None:
    assert ids(await client.search("orders", message_id="first:1")) == ["orders:0:0"]
    assert ids(await client.search(trace_id=TRACE)) == ["orders:0:0"]
    assert ids(await client.search("orders", key=b"\xff")) == ["orders:0:0"]
    assert ids(await client.search("orders", key="k")) == ["orders:1:0"]
    assert ids(await client.search("orders", headers={"shop": "berlin mitte"})) == ["orders:0:0"]
    assert ids(await client.search("orders", key="k", partition=0)) == []
    assert ids(await client.search("orders", start="2099-01-01T00:00:00Z")) == []


async def test_a_found_message_has_its_states_and_its_bytes(client: AsyncClient) -> None:
    (received,) = await client.receive("g", ["orders"], partitions=[0])
    (found,) = await client.search("orders", group="g", state=["in_flight", "dead"])

    assert (found.value, found.key, found.message_id) == (b"a", b"\xff", "first:1")
    assert (found.states, found.status, found.trace_id) == (
        {"g": "in_flight"},
        "in_progress",
        TRACE,
    )
    await received.ack()
    assert ids(await client.search(group="g", status="completed")) == ["orders:0:0"]


async def test_pages_go_on_with_next(client: AsyncClient) -> None:
    first = await client.search("orders", limit=1)
    rest = await client.search("orders", limit=1, next=first.next)

    assert not first.complete
    assert {first.messages[0].id, *ids(rest)} == {"orders:0:0", "orders:1:0"}
    assert rest.next is None


async def test_what_was_not_searched_is_told(
    client: AsyncClient, broker: NodeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = broker.lookup.search

    async def in_part(*asked: Any, **options: Any) -> SearchPage:
        found = await search(*asked, **options)
        return replace(found, not_searched=[NotSearched("orders", 1, "no leader answers")])

    monkeypatch.setattr(broker.lookup, "search", in_part)

    page = await client.search("orders", message_id="none")

    assert (len(page), page.complete) == (0, False)
    assert page.not_searched[0].reason == "no leader answers"


async def test_a_timeline_is_told_by_place_and_by_the_producers_id(client: AsyncClient) -> None:
    by_place = await client.timeline("orders:0:0")
    by_id = await client.timeline("first:1", topic="orders")

    assert by_id == by_place
    assert (by_id.message_id, by_id.partition, by_id.offset) == ("first:1", 0, 0)
    assert next(iter(by_id)).type == "PUBLISHED"
    assert by_id.events[0].time.tzinfo is not None
    with pytest.raises(NotFound):
        await client.timeline("none", topic="orders")
    with pytest.raises(BadRequest):
        await client.timeline("first")


async def test_what_makes_no_sense_is_refused(client: AsyncClient) -> None:
    with pytest.raises(BadRequest):
        await client.search(state="lost")
    with pytest.raises(UnknownTopic):
        await client.search("nothing")


async def test_the_blocking_client_finds_the_same(client: AsyncClient, url: str) -> None:
    def ask() -> tuple[list[str], str]:
        with Client(url) as blocking:
            page = blocking.search("orders", key="k")
            return [message.id for message in page], blocking.timeline("orders:1:0").id

    assert await asyncio.to_thread(ask) == (["orders:1:0"], "orders:1:0")

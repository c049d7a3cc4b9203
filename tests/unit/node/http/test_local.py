"""The front as a program of the same process asks it: no socket, the same answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator

import pytest

from node.assembly import NodeAssembly
from node.http.server.app import HttpFront
from node.http.server.local import LocalAnswer
from tests.one_node import eventually, one_node, partition_of

JSON = {"Content-Type": "application/json"}


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with one_node(**{"broker.autoCreateTopics": True}) as node:
        yield node


@pytest.fixture
async def front(node: NodeAssembly) -> AsyncIterator[HttpFront]:
    """One that listens nowhere."""
    front = HttpFront(node.broker, port=None, console=False)
    await front.start()
    yield front
    await front.stop()


async def post(front: HttpFront, target: str, body: object) -> LocalAnswer:
    return await front.ask("POST", target, JSON, json.dumps(body).encode())


async def publish(front: HttpFront, *values: str) -> LocalAnswer:
    rows = [{"value": value, "partition": 0} for value in values]
    return await post(front, "/v1/topics/orders/messages", {"messages": rows})


async def test_what_is_published_is_read_and_errors_are_the_same(front: HttpFront) -> None:
    published = await publish(front, "a", "b")
    page = "/v1/topics/orders/partitions/0/messages"
    read = await front.ask("GET", f"{page}?offset=1", {})
    missing = await front.ask("GET", "/v1/topics/none", {})

    assert (published.status, read.status, missing.status) == (200, 200, 404)
    assert [one["value"] for one in json.loads(read.body)["messages"]] == ["b"]
    assert json.loads(missing.body)["code"] == "unknown_topic"
    assert front.port == 0


async def test_a_large_answer_comes_whole_and_is_charged_no_longer(front: HttpFront) -> None:
    values = [f"{number}-" + "x" * 2000 for number in range(500)]
    assert (await publish(front, *values)).status == 200
    page = await front.ask("GET", "/v1/topics/orders/partitions/0/messages?limit=500", {})

    assert [one["value"] for one in json.loads(page.body)["messages"]] == values
    assert {budget.kind: budget.used for budget in front.budgets.all if budget.used} == {}


async def test_a_compressed_body_is_read(front: HttpFront) -> None:
    body = gzip.compress(json.dumps({"messages": [{"value": "x" * 10_000}]}).encode())
    headers = {**JSON, "Content-Encoding": "gzip"}
    answer = await front.ask("POST", "/v1/topics/orders/messages", headers, body)

    assert answer.status == 200


async def test_who_gives_up_a_wait_leaves_nothing_leased(
    node: NodeAssembly, front: HttpFront
) -> None:
    await publish(front, "first")
    asked = {"topic": "orders", "limit": 1, "wait": "30s"}
    await post(front, "/v1/groups/workers/receive", asked)
    waiting = asyncio.create_task(post(front, "/v1/groups/workers/receive", asked))
    await eventually(lambda: front.requests_in_flight == 1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await eventually(lambda: front.requests_in_flight == 0)
    await publish(front, "second")

    received = await post(front, "/v1/groups/workers/receive", asked)
    (message,) = json.loads(received.body)["messages"]
    assert (message["value"], message["attempt"]) == ("second", 1)
    assert partition_of(node.broker, "orders", 0)


async def test_a_stop_ends_a_wait_and_waits_for_its_answer(front: HttpFront) -> None:
    await publish(front, "first")
    await post(front, "/v1/groups/workers/receive", {"topic": "orders"})
    asked = {"topic": "orders", "wait": "30s"}
    waiting = asyncio.create_task(post(front, "/v1/groups/workers/receive", asked))
    await eventually(lambda: front.requests_in_flight == 1)

    await front.stop()

    assert json.loads((await waiting).body)["messages"] == []


async def test_who_came_by_a_socket_of_others_is_served(front: HttpFront) -> None:
    await publish(front, "first")
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    await front.admit(ours)
    reader, writer = await asyncio.open_connection(sock=theirs)
    writer.write(b"GET /v1/topics/orders HTTP/1.1\r\nHost: localhost\r\n\r\n")

    assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()

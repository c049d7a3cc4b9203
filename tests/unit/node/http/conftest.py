"""A front over a real broker, a client that reads JSON, and one that writes raw bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import uvloop
from yarl import URL

from goqueue.wire.batch import encode_columns
from node.broker.node import NodeBroker
from node.http.budget.limits import HttpLimits
from node.http.server.app import Entrance, HttpFront
from tests.one_node import Clock, Keys, TimedLoop, cluster_of, one_node
from tests.one_node import eventually as holds


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes
    json: Any


class Client:
    """Requests to one front."""

    def __init__(self, session: aiohttp.ClientSession, front: HttpFront) -> None:
        self._session = session
        self.front = front

    async def __call__(self, method: str, path: str, json: Any = None, **options: Any) -> Answer:
        url = URL(f"http://127.0.0.1:{self.front.port}{path}", encoded=True)
        async with self._session.request(method, url, json=json, **options) as answer:
            body = await answer.read()
            is_json = answer.content_type == "application/json"
            return Answer(
                answer.status,
                dict(answer.headers),
                body,
                await answer.json() if is_json and body else None,
            )

    async def get(self, path: str, **options: Any) -> Answer:
        return await self("GET", path, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> Answer:
        return await self("POST", path, json, **options)

    async def raw(self, data: bytes, deadline_s: float = 30) -> tuple[int, bytes]:
        """Send bytes on a connection of their own; the status and everything after the head."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.front.port)
        try:
            writer.write(data)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), deadline_s)
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r")[0] or 0)
            return int(head.split()[1]), await reader.readexactly(length)
        finally:
            writer.close()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Where sockets are accepted one by one, also the loop that nodes run on."""
    usual: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": TimedLoop}
    uv = {"uvloop": uvloop.new_event_loop}
    return usual | uv if item.path.stem == "test_handshakes" else usual


@pytest.fixture
async def clock() -> Clock:
    return Clock(loop=asyncio.get_running_loop())


@pytest.fixture
def settings() -> dict[str, object]:
    """Of the node, beside those that all have."""
    return {}


@pytest.fixture
async def broker(clock: Clock, settings: dict[str, object]) -> AsyncIterator[NodeBroker]:
    async with one_node(clock, **settings) as node:
        yield node.broker


@pytest.fixture
def limits() -> HttpLimits:
    return HttpLimits()


@pytest.fixture
def keys(broker: NodeBroker, clock: Clock) -> Iterator[Keys]:
    with ThreadPoolExecutor(1) as workers:
        yield Keys(cluster_of(broker), clock, workers)


@pytest.fixture
async def front(broker: NodeBroker, limits: HttpLimits, keys: Keys) -> AsyncIterator[HttpFront]:
    front = HttpFront(broker, port=0, limits=limits, entrance=Entrance(keys=keys))
    await front.start()
    yield front
    await front.stop()


@pytest.fixture
async def client(front: HttpFront) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, front)


@pytest.fixture
async def orders(broker: NodeBroker) -> str:
    """A topic of three partitions."""
    await broker.topics.create_topic("orders", {"partitions": 3})
    return "orders"


@pytest.fixture
def put(broker: NodeBroker, orders: str) -> Callable[..., Awaitable[None]]:
    """Stores values in partition 0 of `orders`; columns as `encode_columns` takes them."""

    async def store(*values: bytes, partition: int = 0, **columns: Any) -> None:
        batch = encode_columns(list(values), columns.pop("keys", None), **columns)
        await broker.records.append(orders, partition, batch, deadline_s=30)

    return store


@pytest.fixture
def take(client: Client, orders: str) -> Callable[..., Awaitable[list[dict[str, Any]]]]:
    """Receives from `orders` for the group `workers`."""

    async def receive(**body: Any) -> list[dict[str, Any]]:
        answer = await client.post("/groups/workers/receive", {"topic": orders, **body})
        assert answer.status == 200, answer.body
        return answer.json["messages"]

    return receive


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Waits until a condition holds; fails after half a minute."""
    return holds

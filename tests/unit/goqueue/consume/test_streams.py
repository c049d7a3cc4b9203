"""Streams of a consumer: which way it goes, and what becomes of what a stream had delivered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from goqueue import AsyncClient, AsyncConsumer, OutgoingMessage, Received, RetryPolicy
from goqueue.consume import streams
from goqueue.errors import GoQueueError, ReceiptExpired
from node.assembly import NodeAssembly
from node.http.request.call import NoMetrics
from node.http.server.app import HttpFront, Observers
from tests.one_node import eventually, one_node
from tests.unit.goqueue.consume.conftest import fronting

QUICK = RetryPolicy(attempts_max=4, backoff_s=0.001, backoff_max_s=0.005)


class Requests(NoMetrics):
    """Counts what a front was asked, by route."""

    def __init__(self) -> None:
        self.routes: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    def observe(
        self, method: str, route: str, status: int, seconds: float, trace_id: str = ""
    ) -> None:
        self.routes[route.rsplit("/", 1)[-1]] += 1

    def stream_ended(self, how: str) -> None:
        self.ended[how] += 1


@pytest.fixture
async def node() -> AsyncIterator[NodeAssembly]:
    async with one_node() as node:
        await node.broker.upgrade.finish_level()
        yield node


@pytest.fixture
def requests() -> Requests:
    return Requests()


@pytest.fixture
async def url(node: NodeAssembly, requests: Requests) -> AsyncIterator[str]:
    async with fronting(node.broker, requests) as url:
        yield url


@pytest.fixture
async def client(url: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(url, retry=QUICK) as client:
        await client.create_topic("orders", partitions=4)
        yield client


async def publish(client: AsyncClient, count: int) -> None:
    messages = [OutgoingMessage(str(number), partition=number % 4) for number in range(count)]
    await client.publish_many("orders", messages)


async def work(consumer: AsyncConsumer, count: int) -> list[Received]:
    found: list[Received] = []
    while len(found) < count:
        message = await consumer.next(20.0)
        assert message is not None
        await message.ack()
        found.append(message)
    return found


async def begun(consumer: AsyncConsumer) -> None:
    """Its stream has begun, and its partitions are there."""
    await eventually(lambda: consumer._line.stream is not None and len(consumer.assignment) == 4)


def break_off(consumer: AsyncConsumer) -> None:
    """Reset the connection of its stream."""
    stream = consumer._line.stream
    assert stream is not None
    transport = stream._socket._opened._conn.transport  # type: ignore[attr-defined]
    transport.abort()


async def test_messages_settles_and_heartbeats_go_over_the_stream(
    client: AsyncClient, requests: Requests
) -> None:
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        await begun(consumer)
        before = requests.routes.copy()
        await publish(client, 20)
        await work(consumer, 20)
        after = requests.routes - before

    assert (after["receive"], after["settle"], after["heartbeat"]) == (0, 0, 0)
    assert requests.ended == {"closed": 1}
    assert (await client.lag("billing")).total_lag == 0


async def test_who_does_not_want_a_stream_polls(client: AsyncClient, requests: Requests) -> None:
    await publish(client, 4)
    async with AsyncConsumer(client, "billing", "orders", stream=False) as consumer:
        await work(consumer, 4)

    assert not requests.routes["stream"]
    assert requests.routes["receive"]


async def test_a_server_that_knows_no_streams_is_polled_and_asked_again_later(
    node: NodeAssembly, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a proxy that lets no upgrade through, or a cluster before its level is finished."""
    monkeypatch.setattr(streams, "LOOK_AGAIN_S", 0.02)
    lets = False

    async def pass_on(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/stream") and not lets:
            return web.Response(status=404)
        raise web.HTTPTemporaryRedirect(url + str(request.rel_url))

    async with AsyncClient(url) as direct:
        await direct.create_topic("orders", partitions=4)
        await publish(direct, 4)
        consumer = AsyncConsumer(direct, "billing", "orders")
        transport, opened = direct.transport, direct.transport.socket
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", pass_on)
        server = TestServer(app)
        await server.start_server(shutdown_timeout=0)
        refusing = AsyncClient(str(server.make_url("")).rstrip("/"))
        monkeypatch.setattr(transport, "socket", refusing.transport.socket)
        async with consumer:
            await work(consumer, 4)
            assert consumer._line.stream is None

            monkeypatch.setattr(transport, "socket", opened)
            await begun(consumer)
            await publish(direct, 4)
            await work(consumer, 4)
        await refusing.close()
        await server.close()


async def test_what_a_broken_stream_had_delivered_comes_again_and_late_acks_say_so(
    client: AsyncClient, requests: Requests
) -> None:
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        await begun(consumer)
        await publish(client, 4)
        first = await consumer.next(20.0)
        assert first is not None
        await eventually(lambda: len(consumer._bench._buffer) == 3)

        break_off(consumer)
        await eventually(lambda: requests.ended["lost"] == 1)
        with pytest.raises(ReceiptExpired):
            await first.ack()
        found = await work(consumer, 4)

    assert sorted(message.text for message in found) == ["0", "1", "2", "3"]
    assert {message.attempt for message in found} == {2}
    assert {message.last_reason for message in found} == {"consumer lost"}


async def test_a_stream_is_followed_by_one_to_another_server(
    node: NodeAssembly, client: AsyncClient, url: str, requests: Requests
) -> None:
    other = Requests()
    async with (
        fronting(node.broker, other) as second,
        AsyncClient([second, url], retry=QUICK) as both,
    ):
        consumer = AsyncConsumer(both, "billing", "orders")
        await consumer.start()
        await begun(consumer)
        assert other.routes["join"] == 1
        break_off(consumer)
        await eventually(lambda: other.ended["lost"] == 1)
        await begun(consumer)
        await publish(client, 4)
        found = await work(consumer, 4)
        await consumer.close()

    assert requests.ended["closed"] == 1
    assert {message.attempt for message in found} == {1}


async def test_a_node_that_stops_gives_back_what_it_had_delivered_and_polls_go_on_elsewhere(
    node: NodeAssembly, client: AsyncClient, url: str
) -> None:
    other = Requests()
    stopping = HttpFront(node.broker, port=0, observers=Observers(metrics=other))
    await stopping.start()
    servers = [f"http://127.0.0.1:{stopping.port}", url]
    async with AsyncClient(servers, retry=QUICK) as both:
        consumer = AsyncConsumer(both, "billing", "orders")
        await consumer.start()
        await begun(consumer)
        await publish(client, 4)
        await eventually(lambda: len(consumer._bench._buffer) == 4)

        await stopping.stop()
        found = await work(consumer, 4)
        await consumer.close()

    assert other.ended == {"moved": 1}
    assert {message.attempt for message in found} == {1}


async def test_a_message_that_nobody_means_to_end_comes_again_after_a_lease_of_its_own(
    client: AsyncClient,
) -> None:
    """Its stream would keep it for ever."""
    await client.put_group("billing", visibility_timeout="1s")
    await publish(client, 1)
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        assert await consumer.next(20.0) is not None
        again = await consumer.next(20.0)

        assert again is not None
        assert again.attempt == 2
        await again.ack()


async def test_a_settle_that_no_stream_takes_goes_as_a_request(
    client: AsyncClient, requests: Requests
) -> None:
    await publish(client, 1)
    async with AsyncConsumer(client, "billing", "orders") as consumer:
        await begun(consumer)
        message = await consumer.next(20.0)
        assert message is not None
        before = requests.routes["settle"]

        settled = await message.nack("x" * 300_000, delay="1h")

        assert settled.state == "requeued"
        assert requests.routes["settle"] == before + 1


async def test_a_closed_consumer_gives_back_what_waits_without_an_attempt(
    client: AsyncClient,
) -> None:
    await publish(client, 8)
    async with AsyncConsumer(client, "billing", "orders", prefetch=8) as consumer:
        await begun(consumer)
        assert await consumer.next(20.0) is not None
    found: list[Received] = []
    while len(found) < 8:
        try:
            found += await client.receive("billing", "orders", limit=8, wait=0.1)
        except GoQueueError as error:
            assert error.code == "stale_generation"
            await asyncio.sleep(0.002)

    assert {message.attempt for message in found} == {1}

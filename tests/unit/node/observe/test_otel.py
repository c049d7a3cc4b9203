"""Spans of a node: made where the incoming context is sampled, received by a collector."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from goqueue.wire.batch import BATCH_MEDIA_TYPE, encode_columns
from node.http.server.app import HttpFront, Observers
from node.observe.otel import DELIVERED_MAX, OtelExport
from tests.one_node import one_node
from tests.unit.node.observe.otlp_collector import Collector, attributes

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED = f"00-{TRACE}-00f067aa0ba902b7-01"
UNSAMPLED = f"00-{TRACE}-00f067aa0ba902b7-00"


class Scene:
    """A front that exports to a collector."""

    def __init__(self, url: str, export: OtelExport, collector: Collector) -> None:
        self._url = url
        self._export = export
        self._collector = collector

    async def post(self, path: str, body: Any, **headers: str) -> dict[str, Any]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
        async with (
            aiohttp.ClientSession() as session,
            session.post(self._url + path, headers=headers, data=content) as answer,
        ):
            assert answer.status < 300, await answer.text()
            return await answer.json()  # type: ignore[no-any-return]

    async def publish(self, *messages: dict[str, Any], **headers: str) -> dict[str, Any]:
        return await self.post("/topics/orders/messages", {"messages": messages}, **headers)

    async def receive(self, **headers: str) -> list[dict[str, Any]]:
        body = {"topic": "orders", "limit": 10}
        answer = await self.post("/groups/billing/receive", body, **headers)
        return answer["messages"]  # type: ignore[no-any-return]

    async def collected(self) -> Collector:
        """All that was exported."""
        await self._export.stop()
        return self._collector


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Collector().serve() as collector:
        export = OtelExport(
            collector.url, node="node-1", version="1", headers={"x-key": "secret"}, flush_s=0.1
        )
        await export.start()
        async with one_node() as node:
            await node.broker.topics.create_topic("orders", {"partitions": 1})
            front = HttpFront(node.broker, port=0, observers=Observers(spans=export))
            await front.start()
            try:
                yield Scene(f"http://127.0.0.1:{front.port}", export, collector)
            finally:
                await front.stop()
                await export.stop()


async def test_a_message_is_followed_from_publish_to_ack_by_its_own_context(scene: Scene) -> None:
    await scene.publish({"value": "x", "headers": {"traceparent": SAMPLED}})
    (message,) = await scene.receive()
    await scene.post("/groups/billing/ack", {"receipt": message["receipt"]})

    collector = await scene.collected()

    (publish,) = collector.named("publish orders", "goqueue")
    (receive,) = collector.named("receive orders")
    (ack,) = collector.named("ack orders")
    for span in (publish, receive, ack):
        assert span.trace_id.hex() == TRACE and span.parent_span_id.hex() == SAMPLED[36:52]
        assert [link.span_id.hex() for link in span.links] == [SAMPLED[36:52]]
    assert attributes(ack)["messaging.message.id"] == "orders:0:0"
    assert attributes(ack)["messaging.operation.type"] == "settle"
    assert attributes(receive)["messaging.consumer.group.name"] == "billing"
    assert collector.headers[0]["x-key"] == "secret"


async def test_a_requests_context_reaches_its_messages_and_is_returned(scene: Scene) -> None:
    own = SAMPLED.replace("00f067aa0ba902b7", "1" * 16)
    await scene.publish(
        {"value": "a"},
        {"value": "b", "headers": {"traceparent": own}},
        traceparent=SAMPLED,
        tracestate="vendor=1",
    )

    first, second = await scene.receive()

    assert first["headers"] == {"traceparent": SAMPLED, "tracestate": "vendor=1"}
    assert second["headers"] == {"traceparent": own}


@pytest.mark.parametrize(
    "context",
    [UNSAMPLED, "", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", SAMPLED.upper(), SAMPLED + "-more"],
)
async def test_what_is_not_sampled_or_no_context_makes_no_span(scene: Scene, context: str) -> None:
    await scene.publish({"value": "x"}, **({"traceparent": context} if context else {}))
    (message,) = await scene.receive()
    await scene.post("/groups/billing/ack", {"receipt": message["receipt"]})

    assert (await scene.collected()).spans == []
    stored = message.get("headers") or {}
    assert stored == ({"traceparent": UNSAMPLED} if context == UNSAMPLED else {})


async def test_a_record_batchs_contexts_are_found(scene: Scene) -> None:
    headers = [(("traceparent", SAMPLED.encode()),), ()]
    batch = encode_columns([b"a", b"b"], None, timestamps_ms=1, headers=headers)
    await scene.post(
        "/topics/orders/partitions/0/messages", batch, **{"Content-Type": BATCH_MEDIA_TYPE}
    )

    (publish,) = (await scene.collected()).named("publish orders")

    assert publish.trace_id.hex() == TRACE
    assert attributes(publish)["messaging.batch.message_count"] == 2


async def test_a_settle_that_fails_is_told_with_its_code(scene: Scene) -> None:
    await scene.publish({"value": "x"})
    (message,) = await scene.receive()
    for _ in range(2):
        await scene.post(
            "/groups/billing/settle",
            {"settles": [{"receipt": message["receipt"], "action": "ack"}]},
            traceparent=SAMPLED,
        )

    _, second = (await scene.collected()).named("ack orders") + (await scene.collected()).named(
        "ack"
    )

    assert attributes(second)["error.type"] == "not_in_flight"


async def test_what_is_remembered_of_deliveries_is_bounded() -> None:
    from node.api.spans import Work

    export = OtelExport("http://127.0.0.1:9", node="node-1", version="1")
    for start in range(0, DELIVERED_MAX + 300, 100):
        places = [("orders", 0, offset) for offset in range(start, start + 100)]
        context = (SAMPLED, "")
        export.tell(Work("receive", 1, None, "orders", 100, places, [context] * 100))

    assert len(export._delivered) == DELIVERED_MAX
    assert ("orders", 0, 0) not in export._delivered


async def test_a_collector_that_is_not_there_costs_no_request(scene: Scene) -> None:
    export = OtelExport("http://127.0.0.1:9", node="node-1", version="1", flush_s=0.1)
    await export.start()
    async with one_node() as node:
        front = HttpFront(node.broker, port=0, observers=Observers(spans=export))
        await front.start()
        try:
            other = Scene(f"http://127.0.0.1:{front.port}", export, Collector())
            await other.post("/topics", {"name": "orders"})
            for _ in range(20):
                await other.publish({"value": "x"}, traceparent=SAMPLED)
        finally:
            await front.stop()
            await export.stop()

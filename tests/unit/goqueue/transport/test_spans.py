"""Spans of an application: of what it creates, sends, receives, processes and settles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from goqueue import AsyncClient, AsyncConsumer, OutgoingMessage, Received
from goqueue.errors import UnknownPartition
from goqueue.tracing import processing
from tests.one_node import serving

Finished = Callable[[], dict[str, list[ReadableSpan]]]
KEPT_CONTEXT = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with serving() as url, AsyncClient(url) as client:
        await client.create_topic("orders", partitions=1)
        yield client


@pytest.fixture
async def finished(monkeypatch: pytest.MonkeyPatch) -> Finished:
    """The spans that ended, by name."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    def by_name() -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    return by_name


def links(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def span_id(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


async def test_a_consumers_spans_link_to_the_send_of_one_message(
    client: AsyncClient, finished: Finished
) -> None:
    await client.publish("orders", "hello")
    (message,) = await client.receive("billing", "orders")
    await message.ack()

    spans = finished()
    (send,), (receive,), (ack,) = spans["send orders"], spans["receive orders"], spans["ack orders"]
    assert (send.kind, receive.kind, ack.kind) == (
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CLIENT,
    )
    assert links(receive) == links(ack) == [span_id(send)]
    assert message.headers[0][0] == "traceparent"
    assert ack.attributes is not None
    assert ack.attributes["messaging.operation.type"] == "settle"
    assert ack.attributes["messaging.message.id"] == "orders:0:0"
    assert ack.attributes["messaging.consumer.group.name"] == "billing"


async def test_messages_of_calls_that_share_a_request_have_a_send_each(
    client: AsyncClient, finished: Finished
) -> None:
    await asyncio.gather(*(client.publish("orders", str(n)) for n in range(4)))
    messages = await client.read("orders", 0)

    sends = {span_id(span) for span in finished()["send orders"]}
    carried = {dict(message.headers)["traceparent"].split(b"-")[2] for message in messages}
    assert len(sends) == 4
    assert {int(span, 16) for span in carried} == sends


async def test_messages_of_a_batch_have_a_creation_each(
    client: AsyncClient, finished: Finished
) -> None:
    await client.publish_many("orders", ["a", "b"])

    spans = finished()
    (send,) = spans["send orders"]
    assert send.kind == SpanKind.CLIENT
    assert sorted(links(send)) == sorted(map(span_id, spans["create orders"]))
    assert send.attributes is not None and send.attributes["messaging.batch.message_count"] == 2


async def test_a_producers_messages_carry_the_context_in_which_each_was_sent(
    client: AsyncClient, finished: Finished
) -> None:
    with trace.get_tracer_provider().get_tracer("test").start_as_current_span("checkout") as ours:
        async with client.producer(linger_ms=1) as producer:
            await producer.publish("orders", "x")

    spans = finished()
    (create,), (send,) = spans["create orders"], spans["send orders"]
    assert create.parent is not None and create.parent.span_id == ours.get_span_context().span_id
    assert links(send) == [span_id(create)] and send.parent is None
    (stored,) = (await client.read("orders")).messages
    assert f"{span_id(create):016x}" in dict(stored.headers)["traceparent"].decode()


async def test_a_context_that_the_application_gave_stays(
    client: AsyncClient, finished: Finished
) -> None:
    await client.publish("orders", "x", headers={"traceparent": KEPT_CONTEXT})
    (message,) = await client.receive("billing", "orders")

    assert dict(message.headers) == {"traceparent": KEPT_CONTEXT.encode()}
    assert links(finished()["receive orders"][0]) == [int("b" * 16, 16)]


async def test_a_handler_runs_in_a_span_that_tells_its_failure(
    client: AsyncClient, finished: Finished
) -> None:
    await client.publish("orders", "x")
    inside: list[bool] = []

    async with AsyncConsumer(client, "billing", "orders") as consumer:

        async def handler(_message: Received) -> None:
            inside.append(trace.get_current_span().is_recording())
            consumer.stop()
            raise ValueError("broken")

        await asyncio.wait_for(consumer.run(handler), 30)

    (process,), (nack,) = finished()["process orders"], finished()["nack orders"]
    assert inside == [True] and process.kind == SpanKind.CONSUMER
    assert process.status.status_code == StatusCode.ERROR
    assert process.attributes is not None and process.attributes["error.type"] == "ValueError"
    assert links(process) == links(nack) == [span_id(finished()["send orders"][0])]


async def test_who_iterates_has_a_span_by_the_librarys_processing(
    client: AsyncClient, finished: Finished
) -> None:
    await client.publish("orders", "x")
    (message,) = await client.receive("billing", "orders")

    with processing(message):
        await message.ack()

    (process,), (ack,) = finished()["process orders"], finished()["ack orders"]
    assert ack.parent is not None and ack.parent.span_id == span_id(process)


async def test_a_refused_call_is_a_span_with_its_code(
    client: AsyncClient, finished: Finished
) -> None:
    with pytest.raises(UnknownPartition):
        await client.publish("orders", "x", partition=9)

    (send,) = finished()["send orders"]
    assert send.attributes is not None and send.attributes["error.type"] == UnknownPartition.code


async def test_an_empty_receive_makes_no_span(client: AsyncClient, finished: Finished) -> None:
    assert await client.receive("billing", "orders") == []

    assert finished() == {}


async def test_without_a_tracer_provider_nothing_is_added(client: AsyncClient) -> None:
    await client.publish("orders", "x")
    await client.publish_many("orders", [OutgoingMessage("y"), OutgoingMessage("z")])

    messages = await client.receive("billing", "orders")

    assert [message.headers for message in messages] == [(), (), ()]

"""Publish or handle orders with OpenTelemetry: one trace from the sale to its ack."""

from __future__ import annotations

import argparse
import asyncio
import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from goqueue import AsyncClient, AsyncConsumer, GoQueueError, Received


async def shop(servers: str, topic: str, count: int) -> None:
    """Sell things: each sale is a trace of its own, which its message carries on."""
    async with AsyncClient(servers) as client, client.producer() as producer:
        for number in range(count):
            with trace.get_tracer("shop").start_as_current_span("checkout"):
                published = await producer.publish(topic, f"order {number}", key=f"k{number}")
                print(f"published {published.id}")


async def worker(servers: str, topic: str, count: int) -> None:
    """Handle `count` orders: each handler runs in a span that links to its order's trace."""
    done = 0
    async with AsyncConsumer(servers, "billing", topic) as consumer:

        async def handle(message: Received) -> None:
            nonlocal done
            with trace.get_tracer("worker").start_as_current_span("charge"):
                print(f"charged {message.id}")
            done += 1
            if done == count:
                consumer.stop()

        await consumer.run(handle)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=("shop", "worker"))
    parser.add_argument("topic", nargs="?", default="orders")
    parser.add_argument("-n", "--count", type=int, default=3)
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--collector", default="http://127.0.0.1:4318")
    given = parser.parse_args()
    provider = TracerProvider(resource=Resource({"service.name": given.role}))
    exporter = OTLPSpanExporter(f"{given.collector}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    work = shop if given.role == "shop" else worker
    try:
        asyncio.run(work(given.server, given.topic, given.count))
    except GoQueueError as error:
        print(f"{error.message} ({error.code})", file=sys.stderr)
        return 1
    finally:
        provider.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())

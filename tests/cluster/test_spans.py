"""One message followed by an OTLP receiver, from its producer's span to the ack's, over two
processes and the nodes between them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.cluster.processes import ROOT, Cluster, eventually
from tests.unit.node.observe.otlp_collector import Collector, attributes

EXAMPLE = ROOT / "examples/tracing/tracing.py"


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector on a loop of its own."""
    loop, ready, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found = Collector()

    async def serve() -> None:
        async with found.serve():
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield found
    loop.call_soon_threadsafe(over.set)
    thread.join(10)
    loop.close()


def run(role: str, cluster: Cluster, collector: Collector) -> None:
    where = ["-n", "2", "--server", cluster[0].url, "--collector", collector.url]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), role, *where],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_message_is_followed_from_its_producer_to_its_ack(
    start: Callable[..., Cluster], collector: Collector
) -> None:
    cluster = start(
        3,
        "tracing.otlp.enabled=true",
        f"tracing.otlp.endpoint={collector.url}",
        "tracing.otlp.flushInterval=100ms",
    )
    cluster[0].ask("POST", "/topics", {"name": "orders", "num_partitions": 1})

    run("shop", cluster, collector)
    run("worker", cluster, collector)

    checkout, _ = eventually("the sales", lambda: pair(collector.named("checkout", "shop")))
    create = next(
        span
        for span in collector.named("create orders", "shop")
        if span.parent_span_id == checkout.span_id
    )
    for name in ("process orders", "ack orders"):
        spans = collector.named(name, "worker")
        assert len(linked(spans, create)) == 1, name
    assert len(linked(collector.named("send orders", "shop"), create)) == 1
    (process,) = linked(collector.named("process orders", "worker"), create)
    assert process.span_id in [s.parent_span_id for s in collector.named("charge", "worker")]
    (ack,) = linked(collector.named("ack orders", "worker"), create)
    assert str(attributes(ack)["messaging.message.id"]).startswith("orders:0:")
    assert checkout.trace_id == create.trace_id
    assert checkout.start_time_unix_nano <= create.start_time_unix_nano < ack.end_time_unix_nano

    for name in ("publish orders", "receive orders", "ack orders"):
        eventually(f"a node's {name}", partial(of_nodes, collector, name, create))


def of_nodes(collector: Collector, name: str, created: Span) -> list[Span]:
    return linked(collector.named(name, "goqueue"), created)


def pair(spans: list[Span]) -> list[Span]:
    return spans if len(spans) == 2 else []


def linked(spans: list[Span], to: Span) -> list[Span]:
    return [span for span in spans if any(link.span_id == to.span_id for link in span.links)]

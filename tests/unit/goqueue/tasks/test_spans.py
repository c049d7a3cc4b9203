"""Spans of tasks: they name the message and the task, and what a task sends is of its trace."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from goqueue import AsyncClient
from goqueue.tasks import Tasks
from tests.unit.goqueue.tasks.conftest import working


async def test_a_tasks_span_has_its_message_and_what_it_sends_has_its_trace(
    app: Tasks, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    @app.task
    def first() -> None:
        second.send()

    @app.task
    async def second() -> None:
        return None

    sent = await first.send_async()
    async with working(app) as work:
        await work.until(2)

    by_task = {
        span.attributes["messaging.goqueue.task"]: span
        for span in exporter.get_finished_spans()
        if span.name == "process tasks" and span.attributes is not None
    }
    assert by_task["first"].attributes["messaging.message.id"] == sent.id
    (page, *_) = [await client.search("tasks", trace_id=trace_id_of(by_task["first"]))]
    assert [message.id for message in page] == ["tasks:0:1"]


def trace_id_of(span: object) -> str:
    return f"{span.get_span_context().trace_id:032x}"  # type: ignore[attr-defined]

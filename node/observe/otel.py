"""Spans of what this node did with messages, exported by OTLP over HTTP. Off unless configured.

A span is made only where the request's or a message's own trace context says that it is sampled:
whoever began the trace decides. A request with many messages makes one span: beneath the request's
context, else beneath the first message's, with links to the messages' contexts. A settle knows its
messages by their places; what was delivered here not long ago is remembered for it. Export goes on
in a thread, in batches, and what it can't keep up with is dropped and counted there: no request
waits for it, and the timeline in the log, which is complete, does not depend on it.

Source: OpenTelemetry semantic conventions for messaging; the SDK's batch processor and exporter.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from node.api.spans import TRACEPARENT, TRACESTATE, Carried, Place, Work, is_sampled

if TYPE_CHECKING:  # the SDK costs memory, which only those pay who export
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link
    from opentelemetry.util.types import AttributeValue

DELIVERED_MAX = 10_000
"""Messages delivered here whose context is remembered until they are settled."""
QUEUE_MAX = 2048
BATCH_MAX = 512
EXPORT_TIMEOUT_S = 5.0
TRACES_PATH = "/v1/traces"
_SETTLES = frozenset(("ack", "nack", "reject", "extend", "release"))


class OtelExport:
    """A `Service` and `RequestSpans`. `endpoint` is a collector's base URL, or the whole one where
    it ends in /v1/traces; `flush_s` bounds how long a span waits to be sent."""

    def __init__(
        self,
        endpoint: str,
        *,
        node: str,
        version: str,
        service_name: str = "goqueue",
        headers: Mapping[str, str] | None = None,
        flush_s: float = 5.0,
    ) -> None:
        base = endpoint.rstrip("/").removesuffix(TRACES_PATH)
        self._url = base + TRACES_PATH
        self._resource = {
            "service.name": service_name,
            "service.version": version,
            "service.instance.id": node,
        }
        self._headers = dict(headers or {})
        self._flush_s = flush_s
        self._provider: TracerProvider | None = None
        self._delivered: OrderedDict[Place, Carried] = OrderedDict()

    async def start(self) -> None:
        """Nothing is connected to: a collector that is not there loses spans, never messages."""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

        logging.getLogger("opentelemetry").setLevel(logging.ERROR)
        exporter = OTLPSpanExporter(self._url, headers=self._headers, timeout=EXPORT_TIMEOUT_S)
        self._provider = TracerProvider(
            ParentBased(ALWAYS_OFF), Resource(self._resource), shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=QUEUE_MAX,
                max_export_batch_size=BATCH_MAX,
                schedule_delay_millis=self._flush_s * 1000,
            )
        )

    async def stop(self) -> None:
        """What waits is sent, as far as a collector takes it in time."""
        provider, self._provider = self._provider, None
        if provider is not None:
            await asyncio.to_thread(provider.shutdown)

    def tell(self, work: Work) -> None:
        sampled = [found for found in self._contexts(work) if is_sampled(found)]
        parent = work.request
        if parent is None or not is_sampled(parent):
            parent = sampled[0] if sampled else None
        if parent is None or self._provider is None:
            return
        from opentelemetry.trace import SpanKind, StatusCode

        span = self._provider.get_tracer("goqueue.node").start_span(
            f"{work.operation} {work.topic}".rstrip(),
            context=_context(parent),
            kind=SpanKind.SERVER,
            attributes=_attributes(work),
            links=_links(sampled),
            start_time=work.began_ns,
        )
        if work.error:
            span.set_attribute("error.type", work.error)
            span.set_status(StatusCode.ERROR)
        span.end()

    # -- private

    def _contexts(self, work: Work) -> list[Carried]:
        """Those of the messages, each once."""
        found = work.contexts
        if work.operation == "receive":
            self._remember(work)
        elif work.operation in _SETTLES:
            taken = self._delivered.get if work.operation == "extend" else self._settled
            found = [taken(place) for place in work.places]
        return list(dict.fromkeys(context for context in found if context is not None))

    def _remember(self, work: Work) -> None:
        for place, context in zip(work.places, work.contexts, strict=True):
            if context is not None and is_sampled(context):
                self._delivered[place] = context
                self._delivered.move_to_end(place)
        while len(self._delivered) > DELIVERED_MAX:
            self._delivered.popitem(last=False)

    def _settled(self, place: Place) -> Carried | None:
        return self._delivered.pop(place, None)


def _context(carried: Carried) -> Context:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {TRACEPARENT: carried[0], TRACESTATE: carried[1]}
    return TraceContextTextMapPropagator().extract(carrier, Context())


def _links(contexts: list[Carried]) -> list[Link]:
    from opentelemetry import trace

    spans = (trace.get_current_span(_context(context)) for context in contexts)
    return [trace.Link(span.get_span_context()) for span in spans]


def _attributes(work: Work) -> dict[str, AttributeValue]:
    kind = "settle" if work.operation in _SETTLES else work.operation
    found: dict[str, AttributeValue] = {
        "messaging.system": "goqueue",
        "messaging.operation.name": work.operation,
        "messaging.operation.type": "send" if kind == "publish" else kind,
    }
    if work.topic:
        found["messaging.destination.name"] = work.topic
    if work.group:
        found["messaging.consumer.group.name"] = work.group
    if work.count != 1:
        found["messaging.batch.message_count"] = work.count
    elif work.places:
        topic, partition, offset = work.places[0]
        found["messaging.message.id"] = f"{topic}:{partition}:{offset}"
        found["messaging.destination.partition.id"] = str(partition)
    return found

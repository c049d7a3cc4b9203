"""A stand-in for an OpenTelemetry collector: takes OTLP over HTTP and keeps what came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """`spans` are (service name, span), `headers` those of each export."""

    def __init__(self) -> None:
        self.url = ""
        self.spans: list[tuple[str, Span]] = []
        self.headers: list[dict[str, str]] = []

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Collector]:
        app = web.Application()
        app.router.add_post("/v1/traces", self._take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    def named(self, name: str, service: str = "") -> list[Span]:
        return [s for told, s in self.spans if s.name == name and service in ("", told)]

    async def _take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        body = await request.read()
        told = ExportTraceServiceRequest.FromString(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        for resource in told.resource_spans:
            facts = {fact.key: fact.value.string_value for fact in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [(facts.get("service.name", ""), span) for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")


def attributes(span: Span) -> dict[str, str | int]:
    return {fact.key: fact.value.string_value or fact.value.int_value for fact in span.attributes}

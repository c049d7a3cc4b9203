"""Spans by OpenTelemetry's conventions for messaging: create, send, receive, process, settle.

The API package alone is needed; which spans are recorded, sampled and exported is the
application's tracer provider's to say, and without one nothing is made. Consumers' spans link to
the context in which a message was created, as a batch has many. What a call links to is bounded.

Source: OpenTelemetry semantic conventions for messaging spans, W3C Trace Context.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from goqueue.transport.spans import Came, Ended, NoSpans
from goqueue.wire.errors import GoQueueError
from goqueue.wire.records import Headers

if TYPE_CHECKING:
    from goqueue.models.messages import Message, OutgoingMessage
    from goqueue.models.queued import Leased

LINKS_MAX = 128
"""Of one span: the default bound of the specification."""
TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
REASON_MAX = 200

_W3C = TraceContextTextMapPropagator()
_NONE = NoSpans()
Attributes = dict[str, AttributeValue]


class OtelSpans:
    """Implements `spans.Spans`. Costs one look-up while no tracer provider is set."""

    def is_active(self) -> bool:
        return _is_active()

    def created(self, topic: str, headers: Headers) -> Headers:
        if not _is_active() or _carries(name for name, _ in headers):
            return headers
        span = _tracer().start_span(
            f"create {topic}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("create", "create", topic),
        )
        span.end()
        return (*headers, *((name, value.encode()) for name, value in _injected(span).items()))

    def sending(
        self, topic: str, partition: int, messages: Sequence[Headers]
    ) -> AbstractContextManager[None]:
        if not _is_active():
            return nullcontext()
        attributes = _attributes("send", "send", topic, partition, len(messages))
        return _span(f"send {topic}", SpanKind.CLIENT, attributes, _links(messages), Context())

    def publishing(
        self, topic: str, messages: Sequence[OutgoingMessage]
    ) -> AbstractContextManager[Sequence[OutgoingMessage]]:
        return self._publishing(topic, messages) if _is_active() else nullcontext(messages)

    def receiving(self, group: str) -> AbstractContextManager[Came]:
        return self._receiving(group) if _is_active() else _NONE.receiving(group)

    def processing(self, message: Message) -> AbstractContextManager[None]:
        if not _is_active():
            return nullcontext()
        attributes = _attributes("process", "process", message.topic, message.partition)
        attributes |= _of_message(message)
        links = _links([message.headers])
        return _span(f"process {message.topic}", SpanKind.CONSUMER, attributes, links)

    def settling(self, action: str, messages: Sequence[Leased]) -> Ended:
        if not messages or not _is_active():
            return _NONE.settling(action, messages)
        first = messages[0]
        is_alone = len(messages) == 1
        attributes = _attributes(
            action,
            "settle",
            first.topic,
            first.partition if is_alone else None,
            None if is_alone else len(messages),
        )
        attributes |= _of_message(first) if is_alone else {GROUP: first.group}
        span = _tracer().start_span(
            f"{action} {first.topic}",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=_links(message.headers for message in messages),
        )

        def ended(error: GoQueueError | None) -> None:
            if error is not None:
                _fail(span, error)
            span.end()

        return ended

    def request_headers(self) -> Mapping[str, str]:
        if not _is_active():
            return {}
        return _injected(trace.get_current_span())

    # -- private

    @contextmanager
    def _publishing(
        self, topic: str, messages: Sequence[OutgoingMessage]
    ) -> Generator[Sequence[OutgoingMessage]]:
        """A single message is created by its "send"; several have a "create" each."""
        if len(messages) == 1 and not _carries(messages[0].headers or ()):
            kind = SpanKind.PRODUCER
        else:
            kind = SpanKind.CLIENT
            messages = [self._with_creation(topic, message) for message in messages]
        partition = messages[0].partition if len(messages) == 1 else None
        count = len(messages) if len(messages) > 1 else None
        attributes = _attributes("send", "send", topic, partition, count)
        links = [] if kind == SpanKind.PRODUCER else _links(map(_headers, messages))
        with _span(f"send {topic}", kind, attributes, links):
            if kind == SpanKind.PRODUCER:
                messages = [_with_context(messages[0], _injected(trace.get_current_span()))]
            yield messages

    def _with_creation(self, topic: str, message: OutgoingMessage) -> OutgoingMessage:
        headers = _headers(message)
        added = self.created(topic, headers)[len(headers) :]
        return _with_context(message, {name: value.decode() for name, value in added})

    @contextmanager
    def _receiving(self, group: str) -> Generator[Came]:
        """The span covers the wait, also where it is made after it."""
        began_ns = time.time_ns()
        came: list[Leased] = []
        yield came.extend
        if not came:
            return
        topics = {message.topic for message in came}
        topic = next(iter(topics)) if len(topics) == 1 else None
        attributes = _attributes("receive", "receive", topic, None, len(came))
        attributes[GROUP] = group
        span = _tracer().start_span(
            f"receive {topic}" if topic else "receive",
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=_links(message.headers for message in came),
            start_time=began_ns,
        )
        span.end()


GROUP = "messaging.consumer.group.name"
TASK = "goqueue-task"
"""The header that names a message's task, of `goqueue.tasks`."""


def _is_active() -> bool:
    """Whether the application has set a tracer provider."""
    provider = trace.get_tracer_provider()
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def _tracer() -> trace.Tracer:
    return trace.get_tracer_provider().get_tracer(
        "goqueue", schema_url="https://opentelemetry.io/schemas/1.37.0"
    )


def _attributes(
    operation: str,
    type_: str,
    topic: str | None,
    partition: int | None = None,
    count: int | None = None,
) -> Attributes:
    found: Attributes = {
        "messaging.system": "goqueue",
        "messaging.operation.name": operation,
        "messaging.operation.type": type_,
    }
    if topic is not None:
        found["messaging.destination.name"] = topic
    if partition is not None:
        found["messaging.destination.partition.id"] = str(partition)
    if count is not None:
        found["messaging.batch.message_count"] = count
    return found


def _of_message(message: Message) -> Attributes:
    found: Attributes = {
        "messaging.message.id": message.id,
        "messaging.message.body.size": len(message.value),
    }
    group, attempt = getattr(message, "group", ""), getattr(message, "attempt", 0)
    if group:
        found[GROUP] = group
        found["messaging.goqueue.attempt"] = attempt
    for name, value in message.headers:
        if name == TASK:
            found["messaging.goqueue.task"] = value.decode(errors="replace")[:REASON_MAX]
    return found


@contextmanager
def _span(
    name: str,
    kind: SpanKind,
    attributes: Attributes,
    links: Sequence[Link],
    context: Context | None = None,
) -> Generator[None]:
    """The current span of the block, which an error marks."""
    with _tracer().start_as_current_span(
        name,
        context,
        kind,
        attributes,
        links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            _fail(span, error)
            raise


def _fail(span: Span, error: BaseException) -> None:
    code = error.code if isinstance(error, GoQueueError) else type(error).__qualname__
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR, str(error)[:REASON_MAX])


def _injected(span: Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier


def _links(all_headers: Iterable[Headers]) -> list[Link]:
    """To the contexts of these messages' creation, each once, as far as they carry one."""
    found: dict[tuple[bytes, bytes], None] = {}
    for headers in all_headers:
        context = _context(headers)
        if context is not None:
            found.setdefault(context)
        if len(found) == LINKS_MAX:
            break
    links: list[Link] = []
    for parent, state in found:
        carrier = {TRACEPARENT: parent.decode("latin-1"), TRACESTATE: state.decode("latin-1")}
        span = trace.get_current_span(_W3C.extract(carrier, Context()))
        if span.get_span_context().is_valid:
            links.append(Link(span.get_span_context()))
    return links


def _context(headers: Headers) -> tuple[bytes, bytes] | None:
    parent = state = b""
    for name, value in headers:
        if name == TRACEPARENT:
            parent = value
        elif name == TRACESTATE:
            state = value
    return (parent, state) if parent else None


def _carries(names: Iterable[str]) -> bool:
    return any(name == TRACEPARENT for name in names)


def _headers(message: OutgoingMessage) -> Headers:
    given = message.headers or {}
    return tuple((n, v.encode() if isinstance(v, str) else v) for n, v in given.items())


def _with_context(message: OutgoingMessage, context: Mapping[str, str]) -> OutgoingMessage:
    if not context:
        return message
    return msgspec.structs.replace(message, headers={**(message.headers or {}), **context})

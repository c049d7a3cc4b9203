"""What an application does with messages, as spans: a facade, there without OpenTelemetry too.

With the extra `otel` installed and a tracer provider set by the application, publishing, receiving,
processing and settling make spans by OpenTelemetry's messaging conventions, and every message
carries its creation's W3C trace context in the headers `traceparent` and `tracestate`. Without
either, nothing is made and nothing costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from goqueue.wire.errors import GoQueueError
from goqueue.wire.records import Headers

if TYPE_CHECKING:  # these stand on the transport, which asks here
    from goqueue.models.messages import Message, OutgoingMessage
    from goqueue.models.queued import Leased

Ended = Callable[[GoQueueError | None], None]
"""Called once, with what went wrong."""
Came = Callable[[Sequence["Leased"]], None]
"""Called with what a receive brought."""


class Spans(Protocol):
    """Each method is one thing that an application does."""

    def is_active(self) -> bool:
        """Whether anything is recorded."""
        ...

    def created(self, topic: str, headers: Headers) -> Headers:
        """A message was accepted to travel in a batch: its headers, with its context."""
        ...

    def sending(
        self, topic: str, partition: int, messages: Sequence[Headers]
    ) -> AbstractContextManager[None]:
        """A request with messages that were created before is on its way."""
        ...

    def publishing(
        self, topic: str, messages: Sequence[OutgoingMessage]
    ) -> AbstractContextManager[Sequence[OutgoingMessage]]:
        """Messages are published by one call: the same, with their contexts."""
        ...

    def receiving(self, group: str) -> AbstractContextManager[Came]:
        """A receive; one that brings nothing makes no span."""
        ...

    def processing(self, message: Message) -> AbstractContextManager[None]:
        """A message is worked on in this block."""
        ...

    def settling(self, action: str, messages: Sequence[Leased]) -> Ended:
        """Messages are settled, until the answer is told."""
        ...

    def request_headers(self) -> Mapping[str, str]:
        """What a request made now carries of the current span."""
        ...


class NoSpans:
    """Implements `Spans` by nothing."""

    def is_active(self) -> bool:
        return False

    def created(self, topic: str, headers: Headers) -> Headers:
        return headers

    def sending(
        self, topic: str, partition: int, messages: Sequence[Headers]
    ) -> AbstractContextManager[None]:
        return nullcontext()

    def publishing(
        self, topic: str, messages: Sequence[OutgoingMessage]
    ) -> AbstractContextManager[Sequence[OutgoingMessage]]:
        return nullcontext(messages)

    def receiving(self, group: str) -> AbstractContextManager[Came]:
        return nullcontext(_nothing_came)

    def processing(self, message: Message) -> AbstractContextManager[None]:
        return nullcontext()

    def settling(self, action: str, messages: Sequence[Leased]) -> Ended:
        return _nothing_ended

    def request_headers(self) -> Mapping[str, str]:
        return {}


def processing(message: Message) -> AbstractContextManager[None]:
    """A span "process" around the work on one message, for those who iterate over a consumer;
    handlers given to `run` have one by themselves."""
    return SPANS.processing(message)


def _nothing_came(_messages: Sequence[Leased]) -> None:
    return None


def _nothing_ended(_error: GoQueueError | None) -> None:
    return None


def _spans() -> Spans:
    try:
        from goqueue.transport.otel import OtelSpans
    except ImportError:  # the extra `otel` is not installed
        return NoSpans()
    return OtelSpans()


SPANS: Spans = _spans()

"""What requests did with messages, for whoever exports spans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Carried = tuple[str, str]
"""A W3C trace context: traceparent, and tracestate ("" where there is none)."""
TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
"""Headers of requests and messages that hold them."""
SAMPLED = 0x01
"""A flag of a traceparent."""
Place = tuple[str, int, int]
"""topic, partition, offset"""

MESSAGES_MAX = 128
"""Of one request whose contexts are told: as many as a span may link to."""


@dataclass(frozen=True, slots=True)
class Work:
    """One span: `operation` is publish, receive, ack, nack, reject, extend or release.

    `places` and `contexts` are those of the first messages, a context None where the message
    carries none; of a settle, whose messages are known by their places only, there are none.
    """

    operation: str
    began_ns: int
    request: Carried | None
    topic: str
    count: int
    places: Sequence[Place] = ()
    contexts: Sequence[Carried | None] = ()
    group: str = ""
    error: str = ""


def is_sampled(carried: Carried) -> bool:
    """Whether whoever began the trace wants to see it."""
    return bool(int(carried[0][-2:], 16) & SAMPLED)


class RequestSpans(Protocol):
    """Who exports spans."""

    def tell(self, work: Work) -> None:
        """Something was done. Never raises, never waits."""
        ...

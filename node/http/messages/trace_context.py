"""W3C trace context: what a request or a message carries, and how a request's reaches its messages.

Source: W3C Trace Context, level 1. A header that is no such context is left alone, as if it were
not there; a message's own headers are never changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from goqueue.wire.batch import Headers
from goqueue.wire.errors import BadRequest
from node.api.spans import TRACEPARENT, TRACESTATE, Carried
from node.http.messages.columns import Rows

STATE_CHARACTERS_MAX = 512

_TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def of_request(headers: Mapping[str, str]) -> Carried | None:
    """What a request carries."""
    return _carried(headers.get(TRACEPARENT, ""), headers.get(TRACESTATE, ""))


def of_message(headers: Headers) -> Carried | None:
    """What a message carries."""
    parent = state = b""
    for name, value in headers:
        if name == TRACEPARENT:
            parent = value
        elif name == TRACESTATE:
            state = value
    if not parent:
        return None
    return _carried(parent.decode("latin-1"), state.decode("latin-1"))


def is_trace_id(text: str) -> bool:
    """Whether this is 32 hex digits, not all of them zero, in either case."""
    return _TRACE_ID.fullmatch(text.lower()) is not None and text.strip("0") != ""


def parse_trace_id(text: str) -> str:
    """In lower case. Raises BadRequest."""
    if not is_trace_id(text):
        want = "want 32 hex digits, not all of them 0"
        raise BadRequest(f"trace_id: {text[:64]!r} is not a trace id: {want}")
    return text.lower()


def as_headers(carried: Carried) -> Headers:
    """As a message carries it."""
    parent, state = carried
    told: Headers = ((TRACEPARENT, parent.encode()),)
    return (*told, (TRACESTATE, state.encode())) if state else told


def stamp(rows: Rows, carried: Carried | None) -> None:
    """Messages without a context get the request's, as headers."""
    if carried is None:
        return
    added = as_headers(carried)
    if rows.headers is None:
        rows.headers = list[Headers]([added] * len(rows))
        return
    rows.headers = [
        own if any(name == TRACEPARENT for name, _ in own) else (*own, *added)
        for own in rows.headers
    ]


def _carried(parent: str, state: str) -> Carried | None:
    if not _PARENT.fullmatch(parent):
        return None
    fits = len(state) <= STATE_CHARACTERS_MAX and state.isascii() and state.isprintable()
    return parent, state if fits else ""

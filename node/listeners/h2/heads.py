"""What a request asks, from its headers: one of a few things, of a topic, with a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from urllib.parse import unquote, unquote_plus

from goqueue.wire.errors import BadName, BadRequest, MethodNotAllowed, NotFound, Unauthenticated
from goqueue.wire.ids import is_name, validate_topic_name
from node.api.spans import TRACEPARENT, TRACESTATE, Carried
from node.http.messages.trace_context import of_request
from node.http.text.errors import HeadTooLarge
from node.listeners.topics import MINIQUEUE_SUFFIX

TARGET_BYTES_MAX = 4096
"""Of a path with its query."""
TARGETS_MAX = 1024
"""Which of those that were asked for last are remembered, with what they ask."""
CREDIT_MAX = 1_000
FIELD_BYTES = 32
"""What a header counts beside its text: RFC 9113, 6.5.2."""
QUERY_FIELDS_MAX = 8


class Asks(StrEnum):
    """What may be asked; the value names it in metrics."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    DELETE = "delete"


OPERATIONS: Mapping[Asks, str] = {
    Asks.PUBLISH: "publish",
    Asks.SUBSCRIBE: "streamGroup",
    Asks.DELETE: "deleteTopic",
}
"""By whose policy each is judged: the HTTP route's that does the same."""


@dataclass(frozen=True, slots=True)
class Head:
    """The headers of a request; names are in lower case."""

    method: str
    target: str
    """The path, with its query."""
    fields: Mapping[str, Sequence[str]]

    def one(self, name: str) -> str:
        """The first of this name, "" where there is none."""
        return next(iter(self.fields.get(name, ())), "")

    @property
    def token(self) -> str | None:
        """The API key; None where none is sent, and "" for what is none. Raises Unauthenticated
        where there is more than one."""
        found = {text.strip() for text in self.fields.get("x-api-key", ())}
        for text in self.fields.get("authorization", ()):
            scheme, _, token = text.strip().partition(" ")
            found.add(token.strip() if scheme.lower() == "bearer" else "")
        if len(found) > 1:
            raise Unauthenticated("an API key is sent once", reason="malformed")
        return found.pop() if found else None

    @property
    def body_bytes(self) -> int | None:
        """As announced; None where it is not. The library holds the body against it."""
        text = self.one("content-length")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    @property
    def trace(self) -> Carried | None:
        """The trace that it is part of: W3C's headers."""
        return of_request({name: self.one(name) for name in (TRACEPARENT, TRACESTATE)})


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked; `group` and `credit` are a subscriber's."""

    asks: Asks
    topic: str
    group: str = ""
    credit: int = 1


def head_of(given: Sequence[tuple[bytes, bytes]], bytes_max: int, fields_max: int) -> Head:
    """Raises HeadTooLarge, and BadRequest on what is no text. The library has held names and
    pseudo-headers against RFC 9113."""
    if sum(len(name) + len(value) + FIELD_BYTES for name, value in given) > bytes_max:
        raise HeadTooLarge(bytes_max)
    if len(given) > fields_max:
        raise BadRequest(f"more than {fields_max} headers")
    fields: dict[str, list[str]] = {}
    for name, value in given:
        fields.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    target = next(iter(fields.get(":path", ())), "")
    method = next(iter(fields.get(":method", ())), "")
    return Head(method, target, fields)


def wanted_of(head: Head) -> Wanted:
    """Raises NotFound, MethodNotAllowed (with what is allowed), BadName, BadRequest."""
    if len(head.target) > TARGET_BYTES_MAX:
        raise BadRequest("the path is too long")
    return _wanted(head.method, head.target)


@lru_cache(TARGETS_MAX)
def _wanted(method: str, target: str) -> Wanted:
    path, _, text = target.partition("?")
    query = _query(text)
    words = [_text(word) for word in path.removeprefix("/").split("/")]
    if words[0] in ("publish", "subscribe") and len(words) == 2 and words[1]:
        _require(method, "POST")
        asks = Asks(words[0])
    elif len(words) == 1 and words[0]:
        _require(method, "DELETE")
        asks = Asks.DELETE
    else:
        raise NotFound(
            f"no such route: {path[:200]}: there are POST /publish/TOPIC,"
            " POST /subscribe/TOPIC and DELETE /TOPIC"
        )
    topic = validate_topic_name(words[-1])
    known = ("group", "credit") if asks is Asks.SUBSCRIBE else ()
    for name in query:
        if name not in known:
            raise BadRequest(f"unknown query field {name[:64]!r}")
    if asks is Asks.SUBSCRIBE:
        return Wanted(asks, topic, _group(query, topic), _credit(query))
    return Wanted(asks, topic)


def _require(method: str, allowed: str) -> None:
    if method != allowed:
        raise MethodNotAllowed(f"{method[:20]} is not allowed here", allow=[allowed])


def _group(query: Mapping[str, str], topic: str) -> str:
    group = query.get("group", topic + MINIQUEUE_SUFFIX)
    if not is_name(group):
        raise BadName(f"bad group name {group[:64]!r}: names match [A-Za-z0-9][A-Za-z0-9._-]*")
    return group


def _credit(query: Mapping[str, str]) -> int:
    text = query.get("credit", "1")
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= CREDIT_MAX):
        raise BadRequest(f"credit: {text[:40]!r} is no number from 1 to {CREDIT_MAX}")
    return int(text)


def _text(word: str) -> str:
    try:
        return unquote(word, errors="strict")
    except UnicodeDecodeError:
        raise BadRequest("the path is not UTF-8") from None


def _query(text: str) -> dict[str, str]:
    fields: dict[str, str] = {}
    parts = text.split("&") if text else []
    if len(parts) > QUERY_FIELDS_MAX:
        raise BadRequest(f"more than {QUERY_FIELDS_MAX} query fields")
    for part in parts:
        name, _, value = part.partition("=")
        try:
            name, value = (unquote_plus(one, errors="strict") for one in (name, value))
        except UnicodeDecodeError:
            raise BadRequest("the query is not UTF-8") from None
        if name in fields:
            raise BadRequest(f"query field {name[:64]!r} is given twice")
        fields[name] = value
    return fields

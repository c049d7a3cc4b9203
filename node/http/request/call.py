"""What a handler works with: the request, its place in the routes, and what the front shares."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote_plus

import msgspec
from aiohttp import web

from goqueue.wire.errors import (
    BadName,
    BadRequest,
    OverBudget,
    Unavailable,
    UnknownPartition,
    UnknownTopic,
)
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX, is_name, validate_topic_name
from goqueue.wire.types import LEADER_HEADER
from node.api.auth.keys import KeyBroker
from node.api.auth.principal import Principal
from node.api.broker import Broker
from node.api.spans import RequestSpans
from node.api.times import Duration, parse_duration_ms
from node.http.auth.addresses import Addresses
from node.http.auth.scoped_broker import broker_for
from node.http.budget.limits import HttpLimits
from node.http.budget.lines import Lines
from node.http.budget.memory import Budgets, Held, Kind, Owner, owner_of
from node.http.budget.slices import SHARE, SLICE_BYTES, Share, Slices, Worker
from node.http.request.body import HeldBody
from node.http.request.turn import OneTurn
from node.http.text import json
from node.http.text.errors import decoded_too_large
from node.http.text.pieces import encode, weigh

QUERY_FIELDS_MAX = 64
LARGE = web.ResponseKey("large", object)
"""The value of an answer that is still to be encoded."""
JSON_HEADERS = {"Content-Type": "application/json"}

T = TypeVar("T")


class FrontMetrics(Protocol):
    """Where the front tells what it answered, and finds what /metrics shows."""

    def observe(
        self, method: str, route: str, status: int, seconds: float, trace_id: str = ""
    ) -> None:
        """One answer; `route` is the template, such as `/topics/{topic}/messages`, and the trace
        the one that the request is part of."""
        ...

    def tails_open(self, count: int) -> None:
        """So many are open now."""
        ...

    def tail_sent(self, topic: str, messages: int) -> None:
        """Messages were sent to a reader."""
        ...

    def tail_read(self, reader: str) -> None:
        """A partition was read: `shared`, for all at its end, or `own`, for one behind it."""
        ...

    def streams_open(self, count: int) -> None:
        """So many are open now."""
        ...

    def stream_sent(self, topic: str, messages: int) -> None:
        """Messages were given to a consumer."""
        ...

    def stream_ended(self, how: str) -> None:
        """closed, lost, silent, refused, moved or failed."""
        ...

    async def look(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in Prometheus' text format, or in OpenMetrics' for whom that header wants it;
        and the content type."""
        ...


class NoMetrics:
    """Counts nothing and shows nothing."""

    def observe(
        self, method: str, route: str, status: int, seconds: float, trace_id: str = ""
    ) -> None:
        return None

    def tails_open(self, count: int) -> None:
        return None

    def tail_sent(self, topic: str, messages: int) -> None:
        return None

    def tail_read(self, reader: str) -> None:
        return None

    def streams_open(self, count: int) -> None:
        return None

    def stream_sent(self, topic: str, messages: int) -> None:
        return None

    def stream_ended(self, how: str) -> None:
        return None

    async def look(self, accept: str = "") -> tuple[bytes, str]:
        return b"# no metrics\n", "text/plain; version=0.0.4; charset=utf-8"


class Tails(Protocol):
    """Who serves tails: `node.http.tail.stream`."""

    async def answer(self, call: Call, topic: str) -> web.Response:
        """A stream of the topic's messages, as the query asks for it."""
        ...


class Streams(Protocol):
    """Who serves streams: `node.http.stream.registry`."""

    async def answer(self, call: Call) -> web.StreamResponse:
        """The stream of the group in the path."""
        ...


@dataclass(slots=True)
class Shared:
    """One front's state, the same for all its calls."""

    broker: Broker
    limits: HttpLimits
    metrics: FrontMetrics
    host: str = "127.0.0.1"
    """What the front listens on."""
    spans: RequestSpans | None = None
    """Who is told what requests did; None where nobody exports spans."""
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    keys: KeyBroker | None = None
    """Where API keys are made; None where there are none."""
    budgets: Budgets = field(default_factory=Budgets)
    addresses: Addresses = field(default_factory=Addresses)
    lines: Lines = field(default_factory=Lines)
    slices: Slices = field(default_factory=Slices)
    worker: Worker = field(default_factory=Worker)
    turn: OneTurn = field(default_factory=OneTurn)
    tails: Tails = field(init=False)
    streams: Streams = field(init=False)
    browser_token: Callable[[web.BaseRequest], tuple[str, int]] = field(init=False)
    """What a page may open streams and tails with, for the key of this request, and how many
    seconds it may."""


class Call:
    """One request on its way through a handler."""

    __slots__ = (
        "_owner",
        "_query",
        "broker",
        "params",
        "principal",
        "readmit",
        "request",
        "shared",
    )

    def __init__(
        self,
        shared: Shared,
        request: web.BaseRequest,
        params: Mapping[str, str],
        principal: Principal | None = None,
    ) -> None:
        self.shared = shared
        self.request = request
        self.params = params
        self.principal = principal
        """Whose key the request came with; None where authentication is off, or nobody is asked."""
        self.broker: Broker = broker_for(shared.broker, principal)
        """The node's, as far as the key reaches."""
        self.readmit: Callable[[], Awaitable[object]] | None = None
        """Lets whoever asks in once more, or raises; None where nobody is asked."""
        self._query: dict[str, str] | None = None
        self._owner: Owner | None = None

    @property
    def limits(self) -> HttpLimits:
        return self.shared.limits

    @property
    def query(self) -> dict[str, str]:
        """The query's fields; the first one wins where a name is given twice."""
        if self._query is None:
            self._query = parse_query(self.request.raw_path)
        return self._query

    def admitted(self, principal: Principal | None) -> None:
        """It is known now who asks."""
        self.principal, self.broker = principal, broker_for(self.shared.broker, principal)
        self._owner = None
        self.stand_in_line()

    async def admit_again(self) -> None:
        """For what lasts longer than a request: raises Unauthenticated or Forbidden where the key
        has ended meanwhile."""
        if self.readmit is not None:
            await self.readmit()

    def stand_in_line(self) -> Share:
        """What is long of this task's work is done in the turns of whoever asks."""
        share = Share(self.shared.slices, self.shared.worker, self.owner.holder)
        SHARE.set(share)
        return share

    @property
    def owner(self) -> Owner:
        """Who memory for this request is charged to."""
        if self._owner is None:
            key_id = None if self.principal is None else self.principal.key_id
            address = self.shared.addresses.of(self.request)
            self._owner = owner_of(address, self.request.protocol, key_id)
        return self._owner

    def hold(self, kind: Kind, size: int = 0) -> Held:
        """A charge to whoever asks; it is the caller's to give back. Raises OverBudget."""
        return self.shared.budgets.hold(kind, self.owner, size)

    async def room(self, kind: Kind, size: int) -> Held:
        """As `hold`, after a moment in line where there is no room now."""
        return await self.shared.lines.wait(
            kind, self.owner.holder, self.limits.room_wait_s, lambda: self.hold(kind, size)
        )

    def topic(self) -> str:
        """The topic in the path. Raises BadName, also for `<topic>.dlq`: it is only looked at."""
        return validate_topic_name(self.params["topic"])

    def group(self) -> str:
        """The group in the path. Raises BadName."""
        return validate_group_name(self.params["group"])

    def partition(self) -> int:
        """The partition in the path; whether the topic has it is the broker's to say."""
        number = self.number("partition")
        if number > PARTITIONS_MAX:
            raise UnknownPartition(self.params["topic"], number)
        return number

    def number(self, name: str) -> int:
        """A whole number in the path, at most `OFFSET_MAX`. Raises BadRequest."""
        text = self.params[name]
        if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) > OFFSET_MAX:
            raise BadRequest(f"bad {name} {text[:40]!r}: want a number from 0")
        return int(text)

    def tell_leader(self, told: web.Response, topic: str, partition: int) -> web.Response:
        """An answer about one partition, with who leads it where that is another node."""
        leader = self.broker.records.leader_elsewhere(topic, partition)
        if leader is not None:
            told.headers[LEADER_HEADER] = leader
        return told

    async def partition_count(self, topic: str, at_least: int = 0) -> int:
        """The topic's partitions; the topic is created first where that is allowed. Fewer than
        `at_least` only where it has no more for certain."""
        try:
            count = self.broker.topics.partition_count(topic)
        except UnknownTopic:
            await self.broker.topics.ensure_topic(topic)
            count = self.broker.topics.partition_count(topic)
        return count if count >= at_least else await self._counted_anew(topic, at_least)

    async def readable_partition_count(self, topic: str, at_least: int = 0) -> int:
        """The topic's partitions, of one that another node has just created too; creates none. As
        for `at_least`, see `partition_count`."""
        try:
            count = self.broker.topics.partition_count(topic)
        except UnknownTopic:
            return len((await self.broker.topics.topic(topic)).partitions)
        return count if count >= at_least else await self._counted_anew(topic, at_least)

    async def _counted_anew(self, topic: str, at_least: int) -> int:
        """Another node may just have added some. Raises `Unavailable` where nobody can say."""
        view = await self.broker.topics.topic(topic)
        if len(view.partitions) < at_least and not view.is_current:
            raise Unavailable(f"partition {at_least - 1} of {topic} is not known here", topic=topic)
        return len(view.partitions)

    def query_int(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number; above `high` it is cut to it, below `low` it is refused."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) <= 19) or int(text) < low:
            raise BadRequest(f"{name}: {text[:40]!r} is not a whole number from {low}")
        return min(int(text), high)

    def query_flag(self, name: str) -> bool:
        return self.query.get(name, "false").lower() in ("", "1", "true", "yes")

    def query_wait_s(self) -> float:
        """How long to wait for messages, from `wait` or GoQueue's `timeout`; at most the cap."""
        for name in ("wait", "timeout"):
            if text := self.query.get(name):
                return min(parse_duration_ms(text, name) / 1000, self.limits.long_poll_s_max)
        return 0.0

    def body(self, bytes_max: int | None = None, kind: Kind = Kind.BODIES) -> HeldBody:
        bound = self.limits.body_bytes_max if bytes_max is None else bytes_max
        held = self.hold(kind)

        async def more(charge: Callable[[], None]) -> None:
            wait_s = self.limits.room_wait_s
            await self.shared.lines.wait(kind, self.owner.holder, wait_s, charge)

        return HeldBody(
            self.request, self.limits, held, bound, more if kind is Kind.BODIES else None
        )

    async def document(
        self, decoder: msgspec.json.Decoder[T], empty: bytes = b"", bytes_max: int | None = None
    ) -> T:
        """A small JSON body as its type; an absent body reads as `empty`. Raises BadRequest."""
        async with self.body(bytes_max or self.limits.document_bytes_max) as body:
            if body:
                json.require_json(self.request)
            if len(body) <= json.UNCHARGED_BYTES:
                return json.decode(body or empty, decoder)
            try:
                held = await self.room(Kind.ROWS, json.weight(body))
            except OverBudget as error:
                raise decoded_too_large(error) from None
            with held:
                return await json.decode_long(body, decoder)


def validate_group_name(name: str) -> str:
    """The name itself. Raises BadName."""
    if not is_name(name):
        raise BadName(
            f"bad group name {name[:64]!r}: names match [A-Za-z0-9][A-Za-z0-9._-]{{0,248}}",
            name=name[:64],
        )
    return name


def either(
    first: Duration | None, second: Duration | None, first_name: str, second_name: str
) -> Duration | None:
    """The one that was given, of two names for one thing. Raises BadRequest if they differ."""
    if first is not None and second is not None and first != second:
        raise BadRequest(f"{first_name} and {second_name} are given with different values")
    return second if first is None else first


def parse_query(raw_path: str) -> dict[str, str]:
    """Raises BadRequest on bytes that are not UTF-8, or too many fields."""
    _, _, text = raw_path.partition("?")
    fields: dict[str, str] = {}
    if not text:
        return fields
    parts = text.partition("#")[0].split("&")
    if len(parts) > QUERY_FIELDS_MAX:
        raise BadRequest(f"more than {QUERY_FIELDS_MAX} query fields")
    for part in parts:
        name, _, value = part.partition("=")
        try:
            fields.setdefault(
                unquote_plus(name, errors="strict"), unquote_plus(value, errors="strict")
            )
        except UnicodeDecodeError:
            raise BadRequest("the query is not UTF-8") from None
    return fields


def answer(value: Any, status: int = 200, *, weight: int | None = None) -> web.Response:
    """A JSON answer; of one that is large the value, which the front encodes in slices. `weight` is
    about its plain bytes, where that is known."""
    if (weigh(value, SLICE_BYTES) if weight is None else weight) > SLICE_BYTES:
        large = web.Response(status=status, headers=JSON_HEADERS)
        large[LARGE] = value
        return large
    return web.Response(body=encode(value), status=status, headers=JSON_HEADERS)


def answer_bytes(body: bytes, status: int = 200) -> web.Response:
    """A JSON answer that is encoded already."""
    return web.Response(body=body, status=status, headers=JSON_HEADERS)

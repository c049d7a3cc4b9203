"""Requests to a cluster over HTTP: which server, how long, and when it is safe to ask again.

Any node serves any request, so the servers are equal; the one that answered last is asked first
and the next one when it can't be reached or can't serve. What is for one partition goes to the
server that leads it, where that is known. A request is repeated by itself only if
the error says that it may succeed, and either nothing can have happened or the request may safely
happen twice (`repeatable`): a read, or a batch that carries a producer's sequence.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NoReturn
from urllib.parse import quote

import msgspec

from goqueue.transport.channel import Answer, Channel, Request, Socket
from goqueue.transport.leaders import Leaders, Place
from goqueue.transport.servers import HttpChannel
from goqueue.transport.spans import SPANS
from goqueue.wire.errors import (
    BadRequest,
    Busy,
    ConnectionFailed,
    GoQueueError,
    ServerError,
    Timeout,
)
from goqueue.wire.types import LEADER_HEADER
from goqueue.wire.unreadable import UNREADABLE

API_KEY = "GOQUEUE_API_KEY"
DEFAULT_SERVER = "http://127.0.0.1:8080"
RETRY_AFTER_S_MAX = 5.0
IDENTIFY_TIMEOUT_S = 5.0
TURN_S = 0.2
TIMEOUT_S_MIN = 0.001
"""aiohttp takes 0 for no timeout at all."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a request that may be repeated is repeated, within its timeout."""

    attempts_max: int = 10
    backoff_s: float = 0.05
    """Before the second attempt; doubled each time, with up to half of it taken off at random."""
    backoff_max_s: float = 1.0

    def pause_s(self, attempt: int, chance: float) -> float:
        """How long to wait after failed attempt number `attempt`, from 1; `chance` in [0, 1)."""
        longest = min(self.backoff_s * 2 ** min(attempt - 1, 30), self.backoff_max_s)
        return float(longest * (1 - chance / 2))


class Transport:
    """Asks the servers of one cluster. Opens connections when first used, on the running loop."""

    def __init__(
        self,
        servers: str | Sequence[str] | Channel,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        attempt_timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """`timeout_s` bounds a call with all its repeats, `attempt_timeout_s` each attempt. Servers
        are asked over HTTP, with key and TLS, unless a channel to them is given."""
        if isinstance(servers, str | Sequence):
            urls = parse_servers(servers)
            self._channel: Channel = HttpChannel(urls, headers=key_headers(api_key), tls=tls)
        else:
            self._channel = servers
        self.servers = list(self._channel.servers)
        self.timeout_s = timeout_s
        self.attempt_timeout_s = attempt_timeout_s
        self.retry = retry or RetryPolicy()
        self.chance: random.Random = chance or getattr(servers, "chance", None) or random.Random()
        """For pauses, and for where turns begin; a channel may have its own, as that of tests."""
        self._at = 0
        self._turned_s = float("-inf")
        self._leaders = Leaders(len(self.servers), self._identify)
        self.has_answered = False
        """Whether any server has answered yet."""

    @property
    def server(self) -> str:
        """The one that is asked next."""
        return self.servers[self._at]

    @property
    def channel(self) -> Channel:
        """What carries its requests."""
        return self._channel

    async def connect(self) -> None:
        """Open what can tell now that it can't be opened: a directory. Raises GoQueueError."""
        await self._channel.connect()

    async def close(self) -> None:
        """Close all connections. Idempotent; calls after it raise Closed."""
        await self._leaders.close()
        await self._channel.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool,
        wait_s: float = 0.0,
        timeout_s: float | None = None,
        towards: Place | None = None,
    ) -> Answer:
        """The answer, from whichever server gives one; `towards` is the partition that all of it is
        for, whose leader is asked first.

        `wait_s` is how long the server was asked to wait, added to every timeout. Raises the
        server's error, `ConnectionFailed`, or, where the request may have happened, `Timeout` or
        `OutcomeUnknown`. Where time ran out over repeats, it is the server's last error that is
        raised: it tells why there were repeats.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self.timeout_s if timeout_s is None else timeout_s) + wait_s
        maybe_happened = False
        told: GoQueueError | None = None
        for attempt in range(1, self.retry.attempts_max + 1):
            left_s = max(TIMEOUT_S_MIN, deadline - loop.time())
            is_cut_short = left_s < self.attempt_timeout_s + wait_s
            try:
                attempt_s = min(left_s, self.attempt_timeout_s + wait_s)
                at = self._server_for(towards)
                asked = {**(headers or {}), **SPANS.request_headers()}
                request = Request(method, path, params, body, asked)
                answer = await self._ask(at, request, attempt_s)
                if towards is not None:
                    self._leaders.learn(towards, at, answer.headers.get(LEADER_HEADER))
                return replace(answer, is_repeat=True) if maybe_happened else answer
            except GoQueueError as error:
                maybe_happened |= error.outcome == "unknown"
                pause_s = self._pause_s(error, attempt)
                left_s = deadline - loop.time()
                may_repeat = error.retriable and (repeatable or error.outcome == "none")
                if not may_repeat or attempt == self.retry.attempts_max or pause_s >= left_s:
                    hides_cause = is_cut_short and isinstance(error, Timeout)
                    final = told if hides_cause and told is not None else error
                    if maybe_happened:
                        final.outcome = "unknown"
                    raise final from error.__cause__
                told = error
            await asyncio.sleep(pause_s)
        raise AssertionError("at least one attempt is made")

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Sequence[tuple[str, str]],
        headers: Mapping[str, str],
        quiet_s: float,
    ) -> AsyncGenerator[AsyncIterator[bytes], None]:
        """The body of an answer without an end, as it comes; one attempt, at the server that is
        next. A server that fails is left: the next attempt is another's. Raises as `request`."""
        at = self._at
        request = Request("GET", path, params, None, {**headers, **SPANS.request_headers()})
        try:
            async with self._channel.stream(self.servers[at], request, quiet_s) as answer:
                if answer.status >= 300:
                    body = b"".join([piece async for piece in answer.pieces()])
                    self._refuse(at, Answer(answer.status, answer.headers, body))
                self.has_answered = True
                yield answer.pieces()
        except GoQueueError as error:
            if error.http_status >= 500:
                self._leave(at)
            raise

    @asynccontextmanager
    async def socket(
        self, path: str, *, answer_s: float, quiet_s: float
    ) -> AsyncGenerator[Socket, None]:
        """A WebSocket to the server that is next; one attempt, answered within `answer_s`. A server
        that fails, now or while it is open, is left: the next attempt is another's. Raises as
        `request`, also the answer of a server that opens none."""
        at, request = self._at, Request("GET", path, headers=SPANS.request_headers())
        server = self.servers[at]
        try:
            async with self._channel.socket(server, request, answer_s, quiet_s) as opened:
                if isinstance(opened, Answer):
                    raise error_of(opened)
                self.has_answered = True
                yield opened
        except GoQueueError as error:
            if error.http_status >= 500:
                self._leave(at)
            raise

    def pause_s(self, attempt: int) -> float:
        """How long to wait before number `attempt` of the repeats that a caller makes."""
        return self.retry.pause_s(attempt, self.chance.random())

    def turn_away(self) -> bool:
        """Ask another server first from now on, as the one that answered is about to stop. False
        where there is no other one. Those who find the same at once turn away once."""
        now_s = asyncio.get_running_loop().time()
        if len(self.servers) > 1 and now_s >= self._turned_s + TURN_S:
            self._turned_s = now_s
            self._leaders.lose(self._at)
            self._move_on(self._at)
        return len(self.servers) > 1

    def _pause_s(self, error: GoQueueError, attempt: int) -> float:
        told = error.data.get("retry_after_s")
        pause_s = self.pause_s(attempt)
        if isinstance(error, ConnectionFailed) and attempt < len(self.servers):
            return 0.0  # another server has not been asked yet
        if isinstance(told, int | float) and len(self.servers) == 1:
            return max(pause_s, min(float(told), RETRY_AFTER_S_MAX))
        return pause_s

    def _server_for(self, towards: Place | None) -> int:
        leader = None if towards is None else self._leaders.server(towards)
        return self._at if leader is None else leader

    async def _identify(self, at: int) -> str:
        timeout_s = min(IDENTIFY_TIMEOUT_S, self.attempt_timeout_s)
        request = Request("GET", "/version", None, None, SPANS.request_headers())
        answer = await self._ask(at, request, timeout_s)
        try:
            return msgspec.json.decode(answer.body, type=_Identity).node_id
        except UNREADABLE:
            return ""

    async def _ask(self, at: int, request: Request, timeout_s: float) -> Answer:
        server = self.servers[at]
        try:
            answer = await self._channel.ask(server, request, timeout_s)
        except GoQueueError:
            self._leave(at)
            raise
        self.has_answered = True
        if answer.status >= 300:
            self._refuse(at, answer)
        return answer

    def _refuse(self, at: int, answer: Answer) -> NoReturn:
        """Raise what the answer of this server tells."""
        if answer.status < 400:
            raise _redirected(self.servers[at], answer)
        failure = error_of(answer)
        if failure.retriable and answer.status >= 500:
            self._leave(at)
        elif failure.retriable:
            self._move_on(at)
        raise failure

    def _leave(self, at: int) -> None:
        """It can't be reached, or can't serve."""
        self._leaders.lose(at)
        self._move_on(at)

    def _move_on(self, at: int) -> None:
        if self._at == at:  # unless a request beside this one already has
            self._at = (at + 1) % len(self.servers)


class _Identity(msgspec.Struct):
    node_id: str = ""


def key_headers(api_key: str | None) -> dict[str, str]:
    """What a key is sent as; the environment's (`GOQUEUE_API_KEY`) where none is given. Raises
    BadRequest, which does not repeat it."""
    found = (api_key or os.environ.get(API_KEY) or "").strip()
    if not found:
        return {}
    if not (found.isascii() and found.isprintable()) or " " in found:
        raise BadRequest("the API key is not one: it has characters that no key has")
    return {"Authorization": f"Bearer {found}"}


def parse_servers(servers: str | Sequence[str]) -> list[str]:
    """Base URLs, from a list, or a text with commas or spaces between them. Raises BadRequest on
    what is no URL."""
    texts = re.split(r"[,\s]+", servers) if isinstance(servers, str) else list(servers)
    urls = [text.strip().rstrip("/") for text in texts if text.strip()]
    urls = [url if "://" in url else f"http://{url}" for url in urls]
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise BadRequest(f"not a server's URL: {url!r}")
    if not urls:
        raise BadRequest("no server is given")
    return urls


def join(*parts: object) -> str:
    """`/v1/topics/a%20b`: the parts behind the API's prefix, each quoted. Raises BadRequest where
    one is empty, because it would name another resource."""
    if "" in parts:
        raise BadRequest("a name is empty")
    return "/v1" + "".join("/" + quote(str(part), safe="") for part in parts)


def error_of(answer: Answer) -> GoQueueError:
    """The error that an answer with a status of 400 or more tells."""
    error: GoQueueError
    try:
        error = GoQueueError.from_body(msgspec.json.decode(answer.body, type=dict[str, object]))
        error.http_status = answer.status
    except UNREADABLE:
        text = answer.body[:200].decode(errors="replace").strip() or f"HTTP {answer.status}"
        error = Busy(text) if answer.status == 429 else _plain_error(answer.status, text)
    if error.outcome == "none" and _part_unknown(error.data.get("results")):
        error.outcome = "unknown"
    retry_after = answer.headers.get("Retry-After", "")
    if retry_after.isdigit():
        error.data.setdefault("retry_after_s", int(retry_after))
    return error


def _part_unknown(results: object) -> bool:
    """A publish that failed as a whole tells its first error; another part's may be worse."""
    parts: list[object] = results if isinstance(results, list) else []
    return any(isinstance(part, dict) and part.get("outcome") == "unknown" for part in parts)


def _plain_error(status: int, text: str) -> GoQueueError:
    # Not ours: a proxy before the servers, say. It can't know what happened behind it.
    error = ServerError(text, retriable=True) if status >= 500 else BadRequest(text)
    error.http_status = status
    return error


def _redirected(server: str, answer: Answer) -> GoQueueError:
    """No server of ours redirects, and no key is taken to where somebody else points."""
    where = answer.headers.get("Location", "")[:200]
    error = BadRequest(f"{server} redirects to {where}, which is not followed: name that server")
    error.code, error.http_status = "redirected", answer.status
    return error

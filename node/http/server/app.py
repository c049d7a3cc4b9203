"""The front itself: accepts connections, routes requests, and turns every error into one shape.

It runs on aiohttp's low-level server: the route table is ours, so is every 404, 405 and 413, and a
request costs a third less than through `aiohttp.web.Application` (21 against 31 microseconds).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from aiohttp import HttpVersion10, web

from goqueue.background import TaskSet
from goqueue.wire.errors import BadRequest, GoQueueError, ServerError
from node.api.auth.access import Access, OnAccess
from node.api.auth.keys import KeyBroker
from node.api.auth.principal import Principal, refused_by
from node.api.broker import Broker
from node.api.spans import RequestSpans
from node.http.auth.admission import Admission
from node.http.auth.authenticator import Authenticator
from node.http.auth.csrf_guard import METHODS, CsrfGuard
from node.http.budget.limits import HttpLimits
from node.http.budget.memory import Budgets, Kind
from node.http.budget.slices import Slices, Worker
from node.http.connections.client import LocalClient, client_of
from node.http.connections.crowd import Crowd
from node.http.connections.listener import Listener
from node.http.connections.protocol import FrontServer
from node.http.console.front import Console, is_for_console
from node.http.request.answers import finished
from node.http.request.call import Call, FrontMetrics, NoMetrics, Shared
from node.http.server.local import LocalAnswer, local_request, whole
from node.http.server.routes import ROUTER
from node.http.stream.registry import Streams
from node.http.tail.stream import Tails
from node.http.text.errors import encode_error, error_answer
from node.http.text.router import path_of

log = logging.getLogger(__name__)

UNMATCHED = "unmatched"
GIVEN_UP = 499
"""As what nobody reads is counted."""

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})(?:-.*)?")


@dataclass(frozen=True, slots=True)
class Entrance:
    """How clients come in, and who of them may."""

    ssl_context: ssl.SSLContext | None = None
    """HTTPS where one is given."""
    csrf_guard: CsrfGuard = field(default_factory=CsrfGuard)
    authenticator: Authenticator = field(default_factory=lambda: Authenticator(None))
    keys: KeyBroker | None = None


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told of requests."""

    metrics: FrontMetrics = field(default_factory=NoMetrics)
    spans: RequestSpans | None = None
    on_access: OnAccess | None = None


class HttpFront:
    """Serves a broker over HTTP or HTTPS, and programs of this process. A `Service`."""

    def __init__(
        self,
        broker: Broker,
        *,
        host: str = "127.0.0.1",
        port: int | None = 8080,
        entrance: Entrance | None = None,
        limits: HttpLimits | None = None,
        budgets: Budgets | None = None,
        observers: Observers | None = None,
        console: bool = True,
    ) -> None:
        """With a port of None it listens nowhere: it answers `ask`, and who comes by `admit`."""
        entrance, observers = entrance or Entrance(), observers or Observers()
        self._host = host
        self._port = port
        self._ssl_context = entrance.ssl_context
        self.limits = limits or HttpLimits()
        self.crowd = Crowd(self.limits)
        """Who is connected to this node, by whichever listener: they share it."""
        self._metrics = observers.metrics
        self.budgets = budgets or Budgets()
        self._shared = Shared(broker, self.limits, self._metrics, host)
        self._shared.spans = observers.spans
        self._shared.keys = entrance.keys
        self._shared.budgets = self.budgets
        self._shared.slices = Slices(quick=self.limits.quick_handover)
        self._shared.worker = Worker(quick=self.limits.quick_handover)
        self._tails = self._shared.tails = Tails(broker.records, self.budgets, self._metrics)
        self._streams = self._shared.streams = Streams(broker, self.limits, self._metrics)
        self._csrf_guard = entrance.csrf_guard
        self._authenticator = entrance.authenticator
        self._shared.addresses = self._authenticator.addresses
        self._shared.browser_token = self._authenticator.browser_token
        self._on_access = observers.on_access
        self._console = Console(self._shared, self._authenticator) if console else None
        self._server: FrontServer | None = None
        self._listener: Listener | None = None
        self._tasks = TaskSet("node", "sweep_failed")
        self._local = TaskSet("node", "local_request_failed", grace_s=self.limits.drain_s)
        self.requests_in_flight = 0
        self._request_prefix = os.urandom(6).hex()
        self._request_numbers = count(1)

    @property
    def port(self) -> int:
        """The port that is listened on, also where 0 was asked for; 0 where none is."""
        if self._listener is not None:
            self._port = self._listener.port or self._port
        return self._port or 0

    @property
    def connections(self) -> int:
        """Of all listeners of this node; those whose TLS is not done are some of them."""
        return self.crowd.open_count

    @property
    def admission(self) -> Admission:
        """The rule for keys, which other listeners ask, too."""
        return self._authenticator.admission

    @property
    def stopping(self) -> asyncio.Event:
        """Set by `begin_stop`."""
        return self._shared.stopping

    @property
    def bytes_in_flight(self) -> int:
        return self.budgets[Kind.BODIES].used

    async def start(self) -> None:
        """Listens when it returns; raises OSError where the address is not to be had."""
        loop = asyncio.get_running_loop()
        self._server = FrontServer(self._counted, self.limits, loop, self.budgets, self.crowd)
        if self._port is not None:
            self._listener = Listener(
                self._server, self._server.crowd, self._ssl_context, self.limits
            )
            await self._listener.start(self._host, self._port)
        self._tasks.begin(self._server.sweep_forever(), "http-sweeper")

    def begin_stop(self) -> None:
        """Fail readiness, end long polls, tails and streams; requests are still served."""
        self._shared.stopping.set()
        self._tails.wake()
        self._streams.begin_stop()

    async def stop(self) -> None:
        """Stop listening, let requests in progress finish within `drain_s`, close connections."""
        self.begin_stop()
        if self._listener is not None:
            await self._listener.stop()
        await self._tasks.stop()
        await self._local.stop()
        if self._server is not None:
            self._server.pre_shutdown()
            await self._server.shutdown(self.limits.drain_s)
        await self._shared.turn.stop()
        await self._tails.stop()
        await self._streams.stop()
        self._listener = self._server = None

    async def admit(self, accepted: socket.socket) -> None:
        """Serve who has connected to a socket that others listen on; it is this front's from now
        on. Raises OSError where it is gone."""
        assert self._server is not None
        await asyncio.get_running_loop().connect_accepted_socket(self._server, accepted)

    async def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> LocalAnswer:
        """The answer to a program of this process; `target` is the quoted path with its query.

        Who cancels this has hung up, as whoever closes a connection: a wait for messages ends then,
        and what was begun goes on, unless the front is about to stop.
        """
        client = LocalClient(asyncio.get_running_loop())
        work = self._local.begin(self._answered(client, method, target, headers, body))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            client.give_up()
            if self._shared.stopping.is_set():
                work.cancel()
            raise

    async def _answered(
        self,
        client: LocalClient,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
    ) -> LocalAnswer:
        request = local_request(client, method, target, headers, body)
        try:
            return await whole(await self._counted(request))
        except ConnectionError:
            if client.transport is not None:
                raise
            return LocalAnswer(GIVEN_UP, {}, b"")
        finally:
            client.let_go()

    async def _counted(self, request: web.BaseRequest) -> web.StreamResponse:
        client = client_of(request)
        self.requests_in_flight += 1
        try:
            return await self._handle(request)
        finally:
            self.requests_in_flight -= 1
            client.end()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """The one place where a request becomes an answer, whatever happens on the way."""
        if request.version < HttpVersion10:
            _refuse_nameless(request)
        started_s = time.monotonic()
        headers = request.headers
        request_id = headers.get("X-Request-ID")
        if request_id is None or not _REQUEST_ID.fullmatch(request_id):
            request_id = f"{self._request_prefix}-{next(self._request_numbers):x}"
        template, operation, code = UNMATCHED, "", ""
        principal: Principal | None = None
        answer: web.StreamResponse
        is_page = self._console is not None and is_for_console(request.raw_path)
        try:
            self._csrf_guard.check(request, is_page=is_page)
            if self._console is not None and is_page:
                page = await self._console.serve(request, request_id)
                answer, template, operation, principal, code = page
            elif request.method == "OPTIONS":
                answer = self._options(request)
            else:
                route, params = ROUTER.match(request.method, request.raw_path)
                template, operation = route.path, route.operation
                principal = await self._authenticator.admit(request, operation, params)
                call = Call(self._shared, request, params, principal)
                call.readmit = partial(self._authenticator.admit, request, operation, params)
                with call.stand_in_line():
                    answer = await finished(call, await route.handler(call))
        except GoQueueError as error:
            code, principal = error.code, principal or refused_by(error)
            answer = error_answer(error, {"request_id": request_id})
        except ConnectionError:
            raise
        except Exception:
            log.exception("request failed", extra={"request_id": request_id, "route": template})
            answer = error_answer(ServerError(), {"request_id": request_id})
        # the client may come in: its connection makes no room for others
        if principal is not None or (answer.status < 400 and not self._authenticator.is_locked):
            client_of(request).is_known = self.limits.keeps_known
        answer.headers["Server"] = "goqueue"
        answer.headers["X-Request-ID"] = request_id
        if self._authenticator.addresses.is_https(request):
            self._csrf_guard.keep_to_tls(request, answer)
        if "Origin" in headers and not is_page:
            self._csrf_guard.share(answer, headers["Origin"])
        if self._on_access is not None:
            target, remote = path_of(request.raw_path), self._authenticator.addresses.of(request)
            self._on_access(
                Access(
                    operation,
                    request.method,
                    target,
                    principal,
                    answer.status,
                    code,
                    request_id,
                    remote,
                )
            )
        took_s, trace_id = time.monotonic() - started_s, _trace_id(headers.get("traceparent", ""))
        self._metrics.observe(request.method, template, answer.status, took_s, trace_id)
        return answer

    def _options(self, request: web.BaseRequest) -> web.Response:
        if request.raw_path == "*":
            return web.Response(status=204, headers={"Allow": METHODS})
        found, _ = ROUTER.find(request.raw_path)
        return web.Response(status=204, headers={"Allow": ", ".join(sorted({*found, "OPTIONS"}))})


def _trace_id(traceparent: str) -> str:
    """The trace that a request is part of and that is recorded, empty for none: W3C's header."""
    found = _TRACE.fullmatch(traceparent)
    return "" if found is None or not int(found[2], 16) & 1 else found[1]


def _refuse_nameless(request: web.BaseRequest) -> None:
    """A request line without a version would be answered in a version that no client reads: told
    in HTTP/1.1 here, and cut off. Raises `ConnectionResetError`."""
    body = encode_error(BadRequest("a request line without a version of HTTP").to_body())
    head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
    if request.transport is not None:
        request.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        request.transport.close()
    raise ConnectionResetError

"""The console's own door: its routes, its headers, and errors as pages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from aiohttp import web

from goqueue.wire.errors import GoQueueError, MethodNotAllowed, ServerError, Unauthenticated
from node.api.auth.principal import Principal
from node.http.auth.authenticator import Authenticator, tokens_of
from node.http.auth.policies import ANYBODY, PAGE_ACTED, PAGE_SEEN, Policy
from node.http.console import (
    browse,
    cluster_page,
    dead_page,
    files,
    group_page,
    message_page,
    search_page,
    topic_page,
)
from node.http.console.login import LOGIN, Login, session_of, to_login
from node.http.console.parts import SECURITY_HEADERS, ConsoleParts, Visit
from node.http.request.call import Shared
from node.http.text.errors import CHALLENGE, RETRY_AFTER_S
from node.http.text.router import Router, path_of

log = logging.getLogger(__name__)

PREFIX = "/ui"

PageHandler = Callable[[Visit], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Page:
    """One page, or what belongs to one."""

    method: str
    path: str
    handler: PageHandler
    operation: str
    policy: Policy = PAGE_SEEN


class Served(NamedTuple):
    """An answer, the template of its route, and who was told it; `code` is the error's."""

    answer: web.Response
    template: str
    operation: str
    principal: Principal | None
    code: str


PAGES = (
    Page("GET", PREFIX, cluster_page.show, "showCluster"),
    Page("GET", PREFIX + "/topics", topic_page.show_all, "showTopics"),
    Page("GET", PREFIX + "/topics/{topic}", topic_page.show, "showTopic"),
    Page("GET", PREFIX + "/topics/{topic}/messages", browse.show, "showMessages"),
    Page("GET", PREFIX + "/topics/{topic}/delayed", browse.show_delayed, "showDelayed"),
    Page("GET", PREFIX + "/data/topics/{topic}", topic_page.rates, "showRates"),
    Page("GET", PREFIX + "/data/topics/{topic}/tail", browse.follow, "showTail"),
    Page("GET", PREFIX + "/groups", group_page.show_all, "showGroups"),
    Page("GET", PREFIX + "/groups/{group}", group_page.show, "showGroup"),
    Page("GET", PREFIX + "/messages", search_page.show, "showSearch"),
    Page("GET", PREFIX + "/messages/{id}", message_page.show, "showMessage"),
    Page("GET", PREFIX + "/dead", dead_page.show_all, "showDeadLetters"),
    Page("GET", PREFIX + "/dead/{group}/{topic}", dead_page.show, "showDeadLettersOf"),
    Page("POST", PREFIX + "/dead/{group}/{topic}", dead_page.act, "actOnDeadLetters", PAGE_ACTED),
    Page("GET", PREFIX + "/static/{file}", files.serve, "showFile", ANYBODY),
)


def is_for_console(raw_path: str) -> bool:
    path = path_of(raw_path)
    return path == PREFIX or path.startswith(PREFIX + "/")


class Console:
    """The pages of one front."""

    def __init__(self, shared: Shared, authenticator: Authenticator) -> None:
        self._shared = shared
        self._authenticator = authenticator
        login, sessions = Login(authenticator), authenticator.sessions
        pages = (
            *PAGES,
            Page("GET", LOGIN, login.show, "showLogin", ANYBODY),
            Page("POST", LOGIN, login.enter, "login", ANYBODY),
            Page("POST", PREFIX + "/logout", login.leave, "logout", ANYBODY),
        )
        self._router = Router[Page](pages, prefixes=("",))
        self._parts = ConsoleParts.of(shared, b"" if sessions is None else sessions.form_key)

    async def serve(self, request: web.BaseRequest, request_id: str) -> Served:
        """The answer, whatever happens."""
        template, operation, code = PREFIX + "/unmatched", "", ""
        visit = Visit(self._shared, request, {}, self._parts)
        visit.stand_in_line()
        try:
            try:
                page, params = self._router.match(request.method, request.raw_path)
                template, visit.params, operation = page.path, params, page.operation
                answer = await self._answer(visit, page)
                code = visit.problem
            except GoQueueError as error:
                code = error.code
                answer = await _error_page(visit, error, request_id)
            except ConnectionError:
                raise
            except Exception:
                log.exception("page failed", extra={"request_id": request_id, "route": template})
                answer = await _error_page(visit, ServerError(), request_id)
        except GoQueueError as error:  # not even the page around it can be made
            code = error.code
            answer = web.Response(text=error.message, status=error.http_status)
        answer.headers.update(SECURITY_HEADERS)
        return Served(answer, template, operation, visit.principal, code)

    async def _answer(self, visit: Visit, page: Page) -> web.Response:
        """The page, for whom it is; where nobody has logged in, the way there."""
        authenticator, request, policy = self._authenticator, visit.request, page.policy
        if not authenticator.is_locked or policy.roles is None:
            return await page.handler(visit)
        topic = visit.params.get("topic")
        sessions = authenticator.sessions
        if sessions is None or tokens_of(request):
            visit.readmit = partial(authenticator.admit_to, request, policy, "the console", topic)
            visit.admitted(await authenticator.admit_to(request, policy, "the console", topic))
            return await page.handler(visit)

        async def again() -> None:
            sessions.principal(session_of(visit))

        visit.readmit = again
        try:
            principal = sessions.principal(session_of(visit))
        except Unauthenticated:
            if request.method != "GET" or "/data/" in page.path:
                raise
            return to_login(visit)
        visit.admitted(principal)
        authenticator.allow(principal, policy, "the console", topic)
        return await page.handler(visit)


async def _error_page(visit: Visit, error: GoQueueError, request_id: str) -> web.Response:
    """The error as a page, with the status, and the code for programs in a header."""
    headers = {"X-GoQueue-Error": error.code, "Cache-Control": "no-store"}
    if error.http_status == 401:
        headers["WWW-Authenticate"] = CHALLENGE
    if error.retriable:
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if isinstance(error, MethodNotAllowed):
        allow = error.data.get("allow")
        headers["Allow"] = ", ".join(map(str, allow)) if isinstance(allow, list) else ""
    answer = await visit.page(
        "error.html",
        status=error.http_status,
        headers=headers,
        error=error,
        request_id=request_id,
        acted=visit.request.method == "POST",
    )
    if error.http_status in (408, 413):
        answer.force_close()
    return answer

"""The console's own door: its routes, its headers, and errors as pages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from goqueue.wire.errors import GoQueueError, MethodNotAllowed, ServerError
from node.http.call import Shared
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
from node.http.console.parts import SECURITY_HEADERS, ConsoleParts, Visit
from node.http.errors import RETRY_AFTER_S
from node.http.router import Router, path_of

log = logging.getLogger(__name__)

PREFIX = "/ui"

PageHandler = Callable[[Visit], Awaitable[web.Response]]


@dataclass(frozen=True, slots=True)
class Page:
    """One page, or what belongs to one."""

    method: str
    path: str
    handler: PageHandler


PAGES = (
    Page("GET", PREFIX, cluster_page.show),
    Page("GET", PREFIX + "/topics", topic_page.show_all),
    Page("GET", PREFIX + "/topics/{topic}", topic_page.show),
    Page("GET", PREFIX + "/topics/{topic}/messages", browse.show),
    Page("GET", PREFIX + "/topics/{topic}/delayed", browse.show_delayed),
    Page("GET", PREFIX + "/data/topics/{topic}", topic_page.rates),
    Page("GET", PREFIX + "/groups", group_page.show_all),
    Page("GET", PREFIX + "/groups/{group}", group_page.show),
    Page("GET", PREFIX + "/messages", search_page.show),
    Page("GET", PREFIX + "/messages/{id}", message_page.show),
    Page("GET", PREFIX + "/dead", dead_page.show_all),
    Page("GET", PREFIX + "/dead/{group}/{topic}", dead_page.show),
    Page("POST", PREFIX + "/dead/{group}/{topic}", dead_page.act),
    Page("GET", PREFIX + "/static/{file}", files.serve),
)


def is_for_console(raw_path: str) -> bool:
    path = path_of(raw_path)
    return path == PREFIX or path.startswith(PREFIX + "/")


class Console:
    """The pages of one front."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._router = Router[Page](PAGES, prefixes=("",))
        self._parts = ConsoleParts.of(shared)

    async def serve(self, request: web.BaseRequest, request_id: str) -> tuple[web.Response, str]:
        """The answer, whatever happens, and the template of its route."""
        template = PREFIX + "/unmatched"
        visit = Visit(self._shared, request, {}, self._parts)
        try:
            try:
                page, params = self._router.match(request.method, request.raw_path)
                template, visit.params = page.path, params
                answer = await page.handler(visit)
            except GoQueueError as error:
                answer = await _error_page(visit, error, request_id)
            except ConnectionError:
                raise
            except Exception:
                log.exception("page failed", extra={"request_id": request_id, "route": template})
                answer = await _error_page(visit, ServerError(), request_id)
        except GoQueueError as error:  # not even the page around it can be made
            answer = web.Response(text=error.message, status=error.http_status)
        answer.headers.update(SECURITY_HEADERS)
        return answer, template


async def _error_page(visit: Visit, error: GoQueueError, request_id: str) -> web.Response:
    """The error as a page, with the status, and the code for programs in a header."""
    headers = {"X-GoQueue-Error": error.code, "Cache-Control": "no-store"}
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

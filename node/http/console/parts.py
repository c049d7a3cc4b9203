"""What all pages of one front share, and one visit to a page."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import web

from goqueue.wire.errors import GoQueueError, Timeout
from node.http.console.acting import may_act, obstacle
from node.http.console.assets import Assets, packaged
from node.http.console.census import Census
from node.http.console.forgery import Tokens
from node.http.console.seen import SeenCensus
from node.http.console.templates import Templates
from node.http.request.call import Call, Shared

ANSWER_WITHIN_S = 3.0
"""How long a page waits for one of its parts; it is shown without it then, and says so."""
HTML = "text/html; charset=utf-8"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
SESSION = "goqueue_session"
THEMES = ("light", "dark")
SECTIONS = ("topics", "groups", "dead", "messages")

T = TypeVar("T")


@dataclass(slots=True)
class ConsoleParts:
    """One front's console."""

    templates: Templates
    assets: Assets
    census: Census
    tokens: Tokens

    @staticmethod
    def of(shared: Shared, form_key: bytes = b"") -> ConsoleParts:
        assets, tokens = packaged(), Tokens(key=form_key)
        return ConsoleParts(Templates(assets.url), assets, Census(shared.broker), tokens)


class Visit(Call):
    """One request on its way through a page."""

    __slots__ = ("parts", "problem", "visitor")

    def __init__(
        self,
        shared: Shared,
        request: web.BaseRequest,
        params: Mapping[str, str],
        parts: ConsoleParts,
    ) -> None:
        super().__init__(shared, request, params)
        self.parts = parts
        self.visitor = parts.tokens.known(request)
        """Who it is to the forms; empty for somebody new."""
        self.problem = ""
        """The code of an error that a page of its own tells."""

    @property
    def census(self) -> SeenCensus:
        """As far as the key reaches."""
        return SeenCensus(self.parts.census, self.principal)

    def visitor_cookie(self) -> str:
        """`Set-Cookie` of who this is to the forms: who it was, or somebody new."""
        if not self.visitor:
            self.visitor = self.parts.tokens.visitor(self.request)
        return self.parts.tokens.cookie(self.visitor, secure=self.is_https)

    @property
    def is_https(self) -> bool:
        """Whether the browser spoke TLS, maybe with a proxy."""
        return self.shared.addresses.is_https(self.request)

    def page_number(self) -> int:
        """Pages are counted from 1."""
        return self.query_int("page", 1, 1, 1_000_000)

    async def page(
        self,
        template: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        **values: Any,
    ) -> web.Response:
        """A page; not sent again where the browser has this very one."""
        text = await self.parts.templates.render(template, {**self._frame(), **values})
        body = text.encode()
        etag = f'W/"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        sent = {"Cache-Control": "private, no-cache", "ETag": etag, "Vary": "Cookie"}
        sent.update(headers or {})
        if status == 200 and self.request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=sent)
        return web.Response(body=body, status=status, headers={"Content-Type": HTML, **sent})

    def _frame(self) -> dict[str, Any]:
        """What the page around every page says."""
        view = self.broker.node.cluster_view()
        theme = self.request.cookies.get("goqueue_theme", "")
        section = (
            self.request.raw_path.partition("?")[0].removeprefix("/ui").strip("/").split("/")[0]
        )
        return {
            "node": view.node,
            "cluster_id": view.cluster_id,
            "version": self.broker.upgrade.version().version,
            "theme": theme if theme in THEMES else "",
            "section": section if section in SECTIONS else ("" if section else "cluster"),
            "out_of_touch": not view.has_quorum or view.controller is None,
            "may_act": may_act(self),
            "obstacle": obstacle(self),
            "who": self.principal,
            "is_session": SESSION in self.request.cookies,
            "form_token": self.parts.tokens.token(self.visitor) if self.visitor else "",
            "query": self.query_text(),
        }

    def query_text(self) -> str:
        """What is being searched for, to be shown again."""
        try:
            return self.query.get("q", "")[:1000]
        except GoQueueError:
            return ""


async def tried(
    ask: Callable[[], Awaitable[T]], within_s: float = ANSWER_WITHIN_S
) -> tuple[T | None, str]:
    """The answer, or None and why there is none: a page shows what it has."""
    try:
        async with asyncio.timeout(within_s):
            return await ask(), ""
    except TimeoutError:
        return None, f"no answer within {within_s:g} s"
    except GoQueueError as error:
        return None, error.message


async def answered(ask: Callable[[], Awaitable[T]], within_s: float = 10.0) -> T:
    """The answer that a page can't do without. Raises Timeout, or what it raises."""
    try:
        async with asyncio.timeout(within_s):
            return await ask()
    except TimeoutError:
        raise Timeout(f"no answer within {within_s:g} s: whoever leads does not answer") from None

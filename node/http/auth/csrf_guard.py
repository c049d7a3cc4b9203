"""Keeps web pages from elsewhere away from the API: a browser here reaches what its user does.

A page may send requests to any address that its visitor's browser can reach. What it must not: have
them obeyed (cross-site request forgery), read their answers (CORS), or be taken for a page of this
node because its own name was made to lead here (DNS rebinding). Programs send none of the headers
judged here but `Host`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar
from urllib.parse import urlsplit

from aiohttp import web

from goqueue.wire.errors import GoQueueError
from node.api.auth.hosts import address_of, is_loopback
from node.http.text.router import path_of

ANY_ORIGIN = "*"
HOSTS_KNOWN_MAX = 256
METHODS = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
_ASKED = "Content-Type, Accept, Authorization, X-API-Key, X-Request-ID"
_EXPOSED = (
    "X-Request-ID, X-RateLimit-Limit, X-RateLimit-Remaining, Retry-After, "
    "X-GoQueue-Next-Offset, X-GoQueue-Log-Start, X-GoQueue-End-Offset, "
    "X-GoQueue-Topic-Id, X-GoQueue-Stale, X-GoQueue-Leader"
)
PROBES = frozenset(("/livez", "/readyz", "/healthz"))
_LABEL = re.compile(r"[a-z0-9_-]*")
_OWN = ("same-origin", "none")
"""Of `Sec-Fetch-Site`: a page of this node, and what the user typed."""


class ForeignHost(GoQueueError):
    """Asked under a name that this node was not told is its own."""

    code, http_status = "foreign_host", 403
    text: ClassVar[str] = "this node was asked under a name that is not its own"


class ForeignOrigin(GoQueueError):
    """Sent by a page of another site."""

    code, http_status = "foreign_origin", 403
    text: ClassVar[str] = "the request comes from a page of another site"


class CertificateRequired(GoQueueError):
    """This node serves only clients with a certificate of its authorities."""

    code, http_status = "certificate_required", 401
    text: ClassVar[str] = "this node asks for a client certificate, and none was shown"


class CsrfGuard:
    """What one front asks of requests before it looks at them.

    `hosts` are names of this node beside loopback's; None: it may be asked under any. `origins` are
    those whose pages may use the API, as browsers write them; `*` is all. `needs_certificate`:
    whoever asks has shown one, but for probes, which can't. `hsts_s`: for how long browsers that
    came by TLS are told to come by nothing else.
    """

    def __init__(
        self,
        hosts: Iterable[str] | None = (),
        origins: Iterable[str] = (),
        *,
        needs_certificate: bool = False,
        hsts_s: int = 0,
    ) -> None:
        self._hsts = f"max-age={hsts_s}" if hsts_s else ""
        self._hosts = None if hosts is None else frozenset(name.lower() for name in hosts)
        self._origins = frozenset(origins)
        self._needs_certificate = needs_certificate
        self._known: dict[str, None] = {}

    def check(self, request: web.BaseRequest, *, is_page: bool) -> None:
        """Raises CertificateRequired, ForeignHost, or ForeignOrigin; of pages of the console the
        forms are protected, and looking is not."""
        if self._needs_certificate and path_of(request.raw_path) not in PROBES:
            transport = request.transport
            if transport is None or not transport.get_extra_info("peercert"):
                raise CertificateRequired
        self.check_host(request)
        if not is_page:
            self.check_origin(request)

    def check_host(self, request: web.BaseRequest) -> None:
        """Raises ForeignHost. Addresses and names without a dot are nobody's to register."""
        if self._hosts is None:
            return
        host = request.headers.get("Host", "")
        if host in self._known:
            return
        name = hostname(host)
        is_own = is_loopback(name) or bool(_LABEL.fullmatch(name)) or name in self._hosts
        if not (is_own or address_of(name) is not None):
            shown = _shown(name)
            raise ForeignHost(
                f"this node was asked as {shown!r}: it serves this machine only, under names"
                " of loopback and those in http.hosts",
                host=shown,
            )
        if len(self._known) < HOSTS_KNOWN_MAX:
            self._known[host] = None

    def check_origin(self, request: web.BaseRequest) -> None:
        """Raises ForeignOrigin where a browser says that a page of another site has sent it."""
        headers = request.headers
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
        if origin is not None:
            if self.allowed(origin) or _place(origin) == headers.get("Host"):
                return
            shown = _shown(origin)
            raise ForeignOrigin(
                f"pages of {shown!r} may not use this API: http.corsOrigins allows them",
                origin=shown,
            )
        if site is not None and site not in _OWN:
            raise ForeignOrigin

    def allowed(self, origin: str) -> str:
        """The value of Access-Control-Allow-Origin for pages from there; empty for none."""
        if ANY_ORIGIN in self._origins:
            return ANY_ORIGIN
        return origin if origin in self._origins else ""

    def keep_to_tls(self, request: web.BaseRequest, answer: web.StreamResponse) -> None:
        """Of a request that came by TLS. It holds for all ports of a name, so names that only this
        machine means are left alone; addresses can't be told of."""
        if self._hsts and not is_loopback(hostname(request.headers.get("Host", ""))):
            answer.headers["Strict-Transport-Security"] = self._hsts

    def share(self, answer: web.StreamResponse, origin: str) -> None:
        """Lets pages of an allowed origin read the answer; a preflight's is 204."""
        if self._origins and ANY_ORIGIN not in self._origins:
            answer.headers["Vary"] = "Origin"
        allowed = self.allowed(origin)
        if not allowed:
            return
        answer.headers["Access-Control-Allow-Origin"] = allowed
        answer.headers["Access-Control-Expose-Headers"] = _EXPOSED
        if answer.status == 204:
            answer.headers["Access-Control-Allow-Methods"] = METHODS
            answer.headers["Access-Control-Allow-Headers"] = _ASKED
            answer.headers["Access-Control-Max-Age"] = "86400"


def hostname(host: str) -> str:
    """The name or address of a `Host` header, without port and brackets, in small letters."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return host[:100]


def _shown(text: str) -> str:
    """As an answer can tell it: bytes of a header that are no UTF-8 are written out."""
    return text[:100].encode(errors="backslashreplace").decode()


def _place(origin: str) -> str:
    """Host and port of an origin, as `Host` has them; a blank, which is nobody's, where it has
    none."""
    try:
        return urlsplit(origin).netloc or " "
    except ValueError:
        return " "

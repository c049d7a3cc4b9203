"""Keeps other sites from sending forms in a visitor's name, and plans from being made up.

A form must come from this very origin, as the browser says, and carry the token that belongs to
the cookie of its page. Where nobody logs in, keys are the process's own: after a restart, pages are
loaded again.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from aiohttp import web

from goqueue.wire.errors import GoQueueError

COOKIE = "goqueue_console"
PLAN_S = 600
"""How long a dry run may be acted on."""
_VISITOR = re.compile(r"[A-Za-z0-9_-]{22}", re.ASCII)


class CrossSite(GoQueueError):
    """A form that was not sent from a page of this node."""

    code, http_status = "cross_site_request", 403
    text = "the form was not sent from a page of this console"


class PlanExpired(GoQueueError):
    """What is to be done is not what a dry run has shown of late."""

    code, http_status = "dry_run_required", 409
    text = "a dry run comes first, and this one is not known or too old"


class Tokens:
    """The tokens of one process, or of all that have the same key. `clock_s` is theirs too."""

    def __init__(self, clock_s: Callable[[], float] = time.time, key: bytes = b"") -> None:
        self._key = key or os.urandom(32)
        self._clock_s = clock_s

    def known(self, request: web.BaseRequest) -> str:
        """Who the cookie says it is; empty where it says nothing."""
        known = request.cookies.get(COOKIE, "")
        return known if _VISITOR.fullmatch(known) else ""

    def visitor(self, request: web.BaseRequest) -> str:
        """Who the cookie says it is, or somebody new."""
        return self.known(request) or _text(os.urandom(16))

    def cookie(self, visitor: str, *, secure: bool) -> str:
        """The value of `Set-Cookie`."""
        return f"{COOKIE}={visitor}; Path=/ui; HttpOnly; SameSite=Strict{'; Secure' * secure}"

    def token(self, visitor: str) -> str:
        return self._sign("form", visitor)

    def check_sender(self, request: web.BaseRequest) -> None:
        """What can be told before the form is read. Raises CrossSite."""
        check_origin(request)
        if not self.known(request):
            raise CrossSite("the form came without this page's cookie: load the page again")

    def check(self, request: web.BaseRequest, token: str) -> None:
        """Raises CrossSite."""
        check_origin(request)
        visitor = request.cookies.get(COOKIE, "")
        if not (visitor and hmac.compare_digest(self.token(visitor).encode(), token.encode())):
            raise CrossSite(
                "the form's token is not this page's: load the page again and repeat it"
            )

    def plan(self, *what: object) -> str:
        """A proof that a dry run of this was shown now."""
        at = str(int(self._clock_s()))
        return f"{at}.{self._sign('plan', at, *what)}"

    def check_plan(self, plan: str, *what: object) -> None:
        """Raises PlanExpired."""
        at, _, signature = plan.partition(".")
        wanted = self._sign("plan", at, *what)
        is_known = hmac.compare_digest(wanted.encode(), signature.encode())
        if not (is_known and self._clock_s() - int(at) <= PLAN_S):
            raise PlanExpired

    def _sign(self, *parts: object) -> str:
        text = "\0".join(f"{len(str(part))}:{part}" for part in parts)
        return _text(
            hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
        )


def check_origin(request: web.BaseRequest) -> None:
    """Whether the browser says that the page was this node's own. Raises CrossSite, also where the
    sender says nothing: programs have the API."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is None and origin is None:
        raise CrossSite("neither Origin nor Sec-Fetch-Site was sent: programs use the API")
    if site not in (None, "same-origin"):
        raise CrossSite
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host", ""):
        raise CrossSite


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")

"""Logging in with an API key, and out: the browser keeps a session, and never the key."""

from __future__ import annotations

import re
from urllib.parse import quote

from aiohttp import web

from goqueue.wire.errors import Forbidden, GoQueueError, NotFound, Unauthenticated
from node.api.auth.sessions import Sessions
from node.http.auth.authenticator import Authenticator
from node.http.auth.policies import PAGE_SEEN
from node.http.console.acting import is_own_machine
from node.http.console.forms import LOGIN_BYTES_MAX, read_form
from node.http.console.parts import SESSION, Visit
from node.http.text.errors import RETRY_AFTER_S

LOGIN = "/ui/login"
_NOT_TOLD = (
    "This node and browser have ended the session; whoever has a copy of it could go on at other"
    " nodes until it ends by itself, or the key is rotated. They were not told: "
)
_NEXT = re.compile(r"/ui(?:[/?][\x21-\x5b\x5d-\x7e]{0,1000})?", re.ASCII)
"""Within the console; no backslash, which browsers take for a slash."""


def to_login(visit: Visit) -> web.Response:
    """Where a visitor without a session is led, and back from there."""
    target = visit.request.raw_path
    return _lead(f"{LOGIN}?next={quote(target, safe='')}" if _is_within(target) else LOGIN)


class Login:
    """The pages of one front whose doors are locked."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def show(self, visit: Visit) -> web.Response:
        self._require_sessions()
        return await self._form(visit, visit.query.get("next", ""))

    async def enter(self, visit: Visit) -> web.Response:
        """A session for a key that holds and may see something. Raises CrossSite."""
        sessions = self._require_sessions()
        form = await read_form(visit, LOGIN_BYTES_MAX)
        following, key = form.get("next", ""), form.get("key", "").strip()
        try:
            self._authenticator.check_form(key)
            principal = await self._authenticator.prove(key, visit.request)
            visit.admitted(principal)
            if principal.role not in (PAGE_SEEN.roles or ()):
                role = principal.role.value
                raise Forbidden(f"a key of role {role} has nothing to see here", missing="role")
            session, life_s = sessions.begin(key)
        except GoQueueError as error:
            visit.problem = error.code
            return await self._form(visit, following, error)
        answer = _lead(following if _is_within(following) else "/ui")
        answer.headers.add("Set-Cookie", _cookie(visit, session, life_s))
        return answer

    async def leave(self, visit: Visit) -> web.Response:
        """Raises CrossSite."""
        sessions = self._require_sessions()
        await read_form(visit, LOGIN_BYTES_MAX)
        answer = _lead(LOGIN)
        try:
            await sessions.end(visit.request.cookies.get(SESSION, ""))
        except GoQueueError as error:
            visit.problem = error.code
            answer = await self._form(visit, "", error, _NOT_TOLD)
        answer.headers.add("Set-Cookie", _cookie(visit, "", 0))
        return answer

    def _require_sessions(self) -> Sessions:
        if self._authenticator.sessions is None:
            raise NotFound("this node asks for no key")
        return self._authenticator.sessions

    async def _form(
        self, visit: Visit, following: str, error: GoQueueError | None = None, lead: str = ""
    ) -> web.Response:
        headers = {"Cache-Control": "no-store", "Set-Cookie": visit.visitor_cookie()}
        if error is not None:
            headers["X-GoQueue-Error"] = error.code
            if error.retriable:
                headers["Retry-After"] = str(error.data.get("retry_after_s", RETRY_AFTER_S))
        return await visit.page(
            "login.html",
            status=200 if error is None else error.http_status,
            headers=headers,
            following=following if _is_within(following) else "",
            problem="" if error is None else lead + error.message,
            in_clear=not visit.is_https and not is_own_machine(visit),
        )


def session_of(visit: Visit) -> str:
    """Raises Unauthenticated where the browser has none."""
    session = visit.request.cookies.get(SESSION, "")
    if not session:
        raise Unauthenticated("log in first", reason="missing")
    return session


def _cookie(visit: Visit, session: str, life_s: int) -> str:
    secure = "; Secure" * visit.is_https
    return f"{SESSION}={session}; Path=/ui; Max-Age={life_s}; HttpOnly; SameSite=Strict{secure}"


def _is_within(path: str) -> bool:
    return _NEXT.fullmatch(path) is not None and not path.startswith(LOGIN)


def _lead(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path, "Cache-Control": "no-store"})

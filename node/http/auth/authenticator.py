"""The gate: whose key a request came with, and whether the key may do what is asked."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs

from aiohttp import web

from node.api.auth.key_verifier import KeyVerifier
from node.api.auth.principal import Principal
from node.api.auth.sessions import BrowserTokens, Sessions
from node.http.auth.addresses import Addresses
from node.http.auth.admission import Admission
from node.http.auth.failures import Failures
from node.http.auth.policies import Policy

FIELDS_MAX = 64
NO_KEY_LIFE_S = 60
FOR_BROWSERS = frozenset({"streamGroup", "tailTopic"})
"""What a browser can open without a header of its choice."""
BROWSER_TOKEN = "access_token"
OPENED = web.RequestKey("opened", bool)
"""A browser token was taken of this request: what it opened outlives it."""


class Authenticator:
    """Lets requests pass, or raises. Without an authenticator everybody passes, as nobody."""

    def __init__(
        self,
        key_verifier: KeyVerifier | None,
        *,
        metrics_anonymous: bool = False,
        failures: Failures | None = None,
        addresses: Addresses | None = None,
        sessions: Sessions | None = None,
        browser_tokens: BrowserTokens | None = None,
    ) -> None:
        self.admission = Admission(key_verifier, failures)
        """The rule for keys, which other listeners ask, too."""
        self.addresses = addresses or Addresses()
        self.sessions = sessions
        self.browser_tokens = browser_tokens
        self._anonymous = {"metrics"} if metrics_anonymous else set[str]()

    @property
    def is_locked(self) -> bool:
        return self.admission.is_locked

    async def admit(
        self, request: web.BaseRequest, operation: str, params: Mapping[str, str]
    ) -> Principal | None:
        """Who asks for this operation; None where nobody is asked.

        Raises Unauthenticated (401) without a key that holds, Forbidden (403) with one that may not
        do this, which names what is missing.
        """
        if not self.is_locked or operation in self._anonymous:
            return None
        policy, topic = self.admission.policy(operation), params.get("topic")
        browser_token = _browser_token_of(request) if operation in FOR_BROWSERS else ""
        if self.browser_tokens is not None and browser_token:
            principal = self.browser_tokens.principal(browser_token, is_open=OPENED in request)
            self.allow(principal, policy, operation, topic)
            request[OPENED] = True
            return principal
        return await self.admit_to(request, policy, operation, topic)

    def browser_token(self, request: web.BaseRequest) -> tuple[str, int]:
        """For the key that the request came with; where nobody is asked for a key, something that
        nobody looks at, so that an application is the same there."""
        if not self.is_locked or self.browser_tokens is None:
            return "none", NO_KEY_LIFE_S
        return self.browser_tokens.make(self._token(request))

    async def admit_to(
        self, request: web.BaseRequest, policy: Policy, what: str, topic: str | None
    ) -> Principal | None:
        """As `admit`, where the policy is at hand; `topic` is the one in the path."""
        if not self.is_locked or policy.roles is None:
            return None
        principal = self._usual(request)
        if principal is None:
            principal = await self.prove(self._token(request), request)
        self.allow(principal, policy, what, topic)
        return principal

    def _usual(self, request: web.BaseRequest) -> Principal | None:
        """Of one bearer that was proved before, told at the least cost."""
        headers = request.headers
        text = headers.get("Authorization", "")
        if text[:7] != "Bearer " or "X-API-Key" in headers:
            return None
        if len(headers.getall("Authorization")) != 1:
            return None
        return self.admission.known(text[7:])

    def allow(self, principal: Principal, policy: Policy, what: str, topic: str | None) -> None:
        """Raises Forbidden, naming what is missing."""
        self.admission.allow(principal, policy, what, topic)

    async def prove(self, token: str, request: web.BaseRequest) -> Principal:
        """As `Admission.prove`, from where the request comes."""
        return await self.admission.prove(token, self.addresses.of(request))

    def _token(self, request: web.BaseRequest) -> str:
        """The one token of a request. Raises Unauthenticated."""
        found = tokens_of(request)
        if not found:
            raise self.admission.missing()
        token = found.pop()
        self.check_form("" if found else token)
        return token

    def check_form(self, token: str) -> None:
        """Whether it may be a key at all. Raises Unauthenticated."""
        self.admission.check_form(token)


def _browser_token_of(request: web.BaseRequest) -> str:
    """The browser token in the query; a key in a header counts in its place."""
    if tokens_of(request):
        return ""
    query = request.raw_path.partition("?")[2]
    if BROWSER_TOKEN not in query:
        return ""
    try:
        found = parse_qs(query, max_num_fields=FIELDS_MAX).get(BROWSER_TOKEN, [""])
    except ValueError:
        return ""  # too many fields, which who handles the request refuses
    return found[0]


def tokens_of(request: web.BaseRequest) -> set[str]:
    """What the request says of its key: "" for what is none."""
    headers = request.headers
    if "Authorization" not in headers and "X-API-Key" not in headers:
        return set()
    found = {text.strip() for text in headers.getall("X-API-Key", [])}
    for text in headers.getall("Authorization", []):
        scheme, _, token = text.strip().partition(" ")
        found.add(token.strip() if scheme.lower() == "bearer" else "")
    return found

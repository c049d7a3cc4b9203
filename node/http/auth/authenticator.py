"""The gate: whose key a request came with, and whether the key may do what is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping

from aiohttp import web

from goqueue.wire.errors import Forbidden, Unauthenticated
from node.api.auth.key_verifier import KeyVerifier, Origin
from node.api.auth.principal import Principal, WrongRole
from node.api.auth.sessions import Sessions
from node.http.auth.addresses import Addresses
from node.http.auth.failures import Failures, TooManyFailures
from node.http.auth.policies import POLICIES, Policy, Reach

TOKEN_CHARACTERS_MAX = 512
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\.[\x21-\x7e]{16,}", re.ASCII)


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
    ) -> None:
        self._key_verifier = key_verifier
        self._failures = failures
        self.addresses = addresses or Addresses()
        self.sessions = sessions
        self._anonymous = {"metrics"} if metrics_anonymous else set[str]()

    @property
    def is_locked(self) -> bool:
        return self._key_verifier is not None

    async def admit(
        self, request: web.BaseRequest, operation: str, params: Mapping[str, str]
    ) -> Principal | None:
        """Who asks for this operation; None where nobody is asked.

        Raises Unauthenticated (401) without a key that holds, Forbidden (403) with one that may not
        do this, which names what is missing.
        """
        if self._key_verifier is None or operation in self._anonymous:
            return None
        policy = POLICIES.get(operation)
        if policy is None:
            raise Forbidden(f"nobody may ask for {operation}: it has no policy", missing="policy")
        return await self.admit_to(request, policy, operation, params.get("topic"))

    async def admit_to(
        self, request: web.BaseRequest, policy: Policy, what: str, topic: str | None
    ) -> Principal | None:
        """As `admit`, where the policy is at hand; `topic` is the one in the path."""
        if self._key_verifier is None or policy.roles is None:
            return None
        principal = self._usual(request)
        if principal is None:
            token = self._token(request)
            principal = self._key_verifier.known(token)
            if principal is None:
                principal = await self.prove(token, request)
        self.allow(principal, policy, what, topic)
        return principal

    def _usual(self, request: web.BaseRequest) -> Principal | None:
        """Of one bearer that was proved before, told at the least cost."""
        headers = request.headers
        text = headers.get("Authorization", "")
        if text[:7] != "Bearer " or "X-API-Key" in headers:
            return None
        if len(headers.getall("Authorization")) != 1 or self._key_verifier is None:
            return None
        return self._key_verifier.known(text[7:])

    def allow(self, principal: Principal, policy: Policy, what: str, topic: str | None) -> None:
        """Raises Forbidden, naming what is missing."""
        try:
            allow(principal, policy, what, topic)
        except Forbidden as error:
            if self._key_verifier is not None:
                self._key_verifier.denied(str(error.data.get("missing", "")))
            raise

    async def prove(self, token: str, request: web.BaseRequest) -> Principal:
        """As `Authenticator.prove`; raises TooManyFailures where too many keys from the request's
        address did not hold of late."""
        assert self._key_verifier is not None
        if self._failures is None:
            return await self._key_verifier.prove(token, Origin())
        address = self.addresses.of(request)
        try:
            self._failures.check(address)
        except TooManyFailures:
            self._key_verifier.refused("too_many")
            raise
        try:
            return await self._key_verifier.prove(token, self._failures.origin(address))
        except Unauthenticated:
            self._failures.add(address)
            raise

    def _token(self, request: web.BaseRequest) -> str:
        """The one token of a request. Raises Unauthenticated."""
        assert self._key_verifier is not None
        found = tokens_of(request)
        if not found:
            self._key_verifier.refused("missing")
            raise Unauthenticated(
                "an API key is needed: Authorization: Bearer <id>.<secret>, or X-API-Key",
                reason="missing",
            )
        token = found.pop()
        self.check_form("" if found else token)
        return token

    def check_form(self, token: str) -> None:
        """Whether it may be a key at all. Raises Unauthenticated."""
        if len(token) > TOKEN_CHARACTERS_MAX or not _TOKEN.fullmatch(token):
            if self._key_verifier is not None:
                self._key_verifier.refused("malformed")
            raise Unauthenticated(
                "this is no API key: one is sent, once, as <id>.<secret>", reason="malformed"
            )


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


def allow(principal: Principal, policy: Policy, what: str, topic: str | None) -> None:
    """Raises Forbidden, naming what is missing."""
    if policy.roles is not None and principal.role not in policy.roles:
        raise WrongRole(principal, policy.roles)
    if policy.reach is Reach.EVERYWHERE:
        principal.require_everywhere(what)
    if topic is not None:
        principal.require(topic)

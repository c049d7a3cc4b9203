"""Who is let in, however they came: one rule for keys, whatever protocol brings them.

Requests over HTTP pass `node.http.auth.authenticator`, which finds the key in them; other listeners
bring the key that their protocol has sent.
"""

from __future__ import annotations

import re

from goqueue.wire.errors import Forbidden, Unauthenticated
from node.api.auth.key_verifier import KeyVerifier, Origin
from node.api.auth.principal import Principal, WrongRole
from node.http.auth.failures import Failures, TooManyFailures
from node.http.auth.policies import POLICIES, Policy, Reach

TOKEN_CHARACTERS_MAX = 512
_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}\.[\x21-\x7e]{16,}", re.ASCII)


class Admission:
    """Proves keys and holds them against policies. Without a verifier everybody passes, as nobody.

    Whoever guesses waits: `failures` counts keys that do not hold, by the address they came from.
    """

    def __init__(self, key_verifier: KeyVerifier | None, failures: Failures | None = None) -> None:
        self._key_verifier = key_verifier
        self._failures = failures

    @property
    def is_locked(self) -> bool:
        return self._key_verifier is not None

    async def admit(
        self, token: str | None, address: str, operation: str, topic: str | None = None
    ) -> Principal | None:
        """Who brings this key for the operation of that name in `POLICIES`; None where nobody is
        asked. `topic` is the one that is named.

        Raises Unauthenticated without a key that holds, Forbidden with one that may not do this,
        TooManyFailures (429) where too many keys from the address did not hold of late.
        """
        policy = self.policy(operation)
        if self._key_verifier is None or policy.roles is None:
            return None
        principal = await self.prove(token, address)
        self.allow(principal, policy, operation, topic)
        return principal

    def policy(self, operation: str) -> Policy:
        """Raises Forbidden for an operation that nobody may ask for."""
        policy = POLICIES.get(operation)
        if policy is None:
            raise Forbidden(f"nobody may ask for {operation}: it has no policy", missing="policy")
        return policy

    def known(self, token: str) -> Principal | None:
        """Of a token that was proved before, told at the least cost."""
        return None if self._key_verifier is None else self._key_verifier.known(token)

    async def prove(self, token: str | None, address: str) -> Principal:
        """Whose key this is, which may have been proved before. Raises Unauthenticated, Busy where
        too many wait to be proved, and TooManyFailures."""
        assert self._key_verifier is not None
        if token is None:
            raise self.missing()
        principal = self._key_verifier.known(token)
        if principal is None:
            self.check_form(token)
            principal = await self._prove(token, address)
        return principal

    def allow(self, principal: Principal, policy: Policy, what: str, topic: str | None) -> None:
        """Raises Forbidden, naming what is missing."""
        try:
            allow(principal, policy, what, topic)
        except Forbidden as error:
            if self._key_verifier is not None:
                self._key_verifier.denied(str(error.data.get("missing", "")))
            raise

    def missing(self) -> Unauthenticated:
        """What is raised for who brings no key. It is counted."""
        if self._key_verifier is not None:
            self._key_verifier.refused("missing")
        return Unauthenticated(
            "an API key is needed: Authorization: Bearer <id>.<secret>, or X-API-Key",
            reason="missing",
        )

    def check_form(self, token: str) -> None:
        """Whether it may be a key at all. Raises Unauthenticated."""
        if len(token) > TOKEN_CHARACTERS_MAX or not _TOKEN.fullmatch(token):
            if self._key_verifier is not None:
                self._key_verifier.refused("malformed")
            raise Unauthenticated(
                "this is no API key: one is sent, once, as <id>.<secret>", reason="malformed"
            )

    async def _prove(self, token: str, address: str) -> Principal:
        assert self._key_verifier is not None
        if self._failures is None:
            return await self._key_verifier.prove(token, Origin())
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


def allow(principal: Principal, policy: Policy, what: str, topic: str | None) -> None:
    """Raises Forbidden, naming what is missing."""
    if policy.roles is not None and principal.role not in policy.roles:
        raise WrongRole(principal, policy.roles)
    if policy.reach is Reach.EVERYWHERE:
        principal.require_everywhere(what)
    if topic is not None:
        principal.require(topic)

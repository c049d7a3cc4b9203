"""Proves API keys: the slow part once for a secret, off the loop; then it is remembered.

What is remembered is held against the cluster's state at every request, so a key that is revoked or
rotated is so here as soon as this node has applied that: within a heartbeat of the cluster group's
leader. A node that hears of no leader goes on with the keys it knows, for as long as `stale_s`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from coordinator.access.api_keys import SECRETS_MAX, ApiKey, ApiKeys, KeySecret
from coordinator.commands.keys import SecretDigest
from goqueue.wire.errors import Busy, Unauthenticated, Unavailable
from node.api.auth.key_verifier import Origin
from node.api.auth.principal import Principal, Role
from node.security.key_proofs import KeysStale
from node.security.key_secrets import NOBODYS, is_of
from node.security.proving_queue import ProvingLine

NOWHERE = Origin()
PROVED_MAX = 8192
"""Secrets that are remembered as right; as many as wrong, apart: who guesses evicts no one."""

T = TypeVar("T")


class KeyFigures(Protocol):
    """Who counts. `result` is ok, missing, malformed, unknown, bad_secret, expired, revoked, busy,
    stale or too_many; `missing` is role, scope or policy."""

    def authenticated(self, result: str) -> None: ...

    def denied(self, missing: str) -> None: ...


class NoFigures:
    """Counts nothing."""

    def authenticated(self, result: str) -> None:
        return None

    def denied(self, missing: str) -> None:
        return None


@dataclass(slots=True)
class _Proof:
    """A secret that was right, for the key as it was then."""

    key: ApiKey
    digest: SecretDigest
    principal: Principal
    ends_ms: int
    """0 for never."""


class KeyChecks:
    """Implements `node.api.auth.key_verifier.Authenticator`. Loop thread only, but for the trying.

    `now_ms`: the later of this node's clock and the cluster group's log time. `is_stale`: whether
    this node has not heard of the cluster group for too long. `refresh`: see `ClusterHost.refresh`;
    asked before anybody is turned away, so a key that was just made holds on every node.
    """

    def __init__(
        self,
        keys: Callable[[], ApiKeys],
        now_ms: Callable[[], int],
        workers: ThreadPoolExecutor,
        figures: KeyFigures | None = None,
        is_stale: Callable[[], bool] = lambda: False,
        refresh: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._keys = keys
        self._now_ms = now_ms
        self._line = ProvingLine(workers)
        self._figures: KeyFigures = figures or NoFigures()
        self._is_stale = is_stale
        self._refresh = refresh
        self._names = hashlib.sha256(os.urandom(64))
        """What names begin with: of one block, so it costs nothing again."""
        self._proofs: OrderedDict[bytes, _Proof] = OrderedDict()
        self._refuted: OrderedDict[bytes, tuple[SecretDigest, ...]] = OrderedDict()
        """Which digests a wrong secret was tried against."""
        self._trying: dict[bytes, asyncio.Future[SecretDigest | None]] = {}

    def known(self, token: str) -> Principal | None:
        name = self._name(token)
        proof = self._proofs.get(name)
        if proof is None:
            return None
        key = self._keys().by_id.get(proof.key.id)
        if key is not proof.key:
            proof = self._renewed(name, proof, key)
            if proof is None:
                return None
        if 0 < proof.ends_ms <= self._now_ms() or self._is_stale():
            return None  # `prove` says why
        self._proofs.move_to_end(name)
        self._figures.authenticated("ok")
        return proof.principal

    async def prove(self, token: str, origin: Origin = NOWHERE) -> Principal:
        if self._is_stale():
            self._figures.authenticated("stale")
            raise KeysStale
        tried = await self._try(token, origin)
        if tried in ("unknown", "revoked", "bad_secret"):
            # this node may not have heard yet of a key, or a secret, that is new
            if self._refresh is not None and not await self._refresh():
                self._figures.authenticated("stale")
                raise Unavailable(
                    "this API key is not known here, and the cluster group's leader does not answer"
                )
            tried = await self._try(token, origin)
        if isinstance(tried, str):
            self._figures.authenticated(tried)
            if tried == "expired":
                raise Unauthenticated("this API key has expired", reason="expired")
            # who has not proved a secret is not told which ids there are
            raise Unauthenticated("this API key does not hold", reason="invalid")
        self._figures.authenticated("ok")
        return tried.principal

    def digest(self, token: str) -> SecretDigest | None:
        """Which secret of its key a token is that was proved; None of one that is not known."""
        proof = self._proofs.get(self._name(token))
        return None if proof is None else proof.digest

    def refused(self, result: str) -> None:
        self._figures.authenticated(result)

    def denied(self, missing: str) -> None:
        self._figures.denied(missing)

    # private

    async def _try(self, token: str, origin: Origin) -> _Proof | str:
        """The proof, or the result that there is none, as far as this node knows. It takes as long
        for an id that is not known: time does not tell which ids there are."""
        id, _, secret = token.partition(".")
        key = self._keys().by_id.get(id)
        digests = () if key is None else tuple(one.secret for one in key.secrets)
        digest = await self._matching(token, id, secret, digests, origin)
        if key is None:
            return "unknown"
        current = self._keys().by_id.get(id)
        if current is None or current.revoked_ms:  # maybe since it was tried
            return "revoked"
        found = _secret_of(current, digest)
        if found is None:
            return "bad_secret"
        proof = _proof(current, found, self._keys())
        self._remember(self._proofs, self._name(token), proof)
        return "expired" if 0 < proof.ends_ms <= self._now_ms() else proof

    def _name(self, token: str) -> bytes:
        """What a token is remembered by: of no use to who reads this memory."""
        name = self._names.copy()
        name.update(token.encode("utf-8", "surrogateescape"))
        return name.digest()

    def _renewed(self, name: bytes, proof: _Proof, key: ApiKey | None) -> _Proof | None:
        """The proof for a key that has changed since; None where it no longer holds."""
        secret = None if key is None else _secret_of(key, proof.digest)
        if key is None or secret is None:
            del self._proofs[name]
            return None
        renewed = self._proofs[name] = _proof(key, secret, self._keys())
        return renewed

    async def _matching(
        self,
        token: str,
        id: str,
        secret: str,
        digests: tuple[SecretDigest, ...],
        origin: Origin,
    ) -> SecretDigest | None:
        """The digest that is the secret's; the same question is worked on once."""
        name = self._name(token)
        if name in self._proofs:
            return self._proofs[name].digest
        if self._refuted.get(name) == digests:
            return None
        trying = self._trying.get(name)
        try:
            if trying is None:
                trying = self._line.join(id, origin, partial(_first_match, secret, digests))
                self._trying[name] = trying
                trying.add_done_callback(lambda _: self._trying.pop(name, None))
            found = await asyncio.shield(trying)
        except Busy:
            self._figures.authenticated("busy")
            raise
        if found is None:
            self._remember(self._refuted, name, digests)
        return found

    @staticmethod
    def _remember(where: OrderedDict[bytes, T], name: bytes, what: T) -> None:
        where[name] = what
        if len(where) > PROVED_MAX:
            where.popitem(last=False)


def _first_match(secret: str, digests: tuple[SecretDigest, ...]) -> SecretDigest | None:
    """Tries as many as a key may have, whatever there are."""
    spare = [NOBODYS] * (SECRETS_MAX - len(digests))
    matches = [digest for digest in (*digests, *spare) if is_of(secret, digest)]
    return matches[0] if matches and matches[0] is not NOBODYS else None


def _secret_of(key: ApiKey, digest: SecretDigest | None) -> KeySecret | None:
    return next((one for one in key.secrets if one.secret == digest), None)


def principal_of(key: ApiKey, keys: ApiKeys) -> Principal:
    """What the key may do."""
    groups = keys.group_prefixes.get(key.id)
    return Principal(
        key.id, Role(key.role), tuple(key.prefixes), None if groups is None else tuple(groups)
    )


def _proof(key: ApiKey, secret: KeySecret, keys: ApiKeys) -> _Proof:
    ends = [ms for ms in (key.expires_ms, secret.expires_ms) if ms]
    return _Proof(key, secret.secret, principal_of(key, keys), min(ends, default=0))

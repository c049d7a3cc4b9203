"""Tokens for browsers, which can send no key with a WebSocket or an EventSource.

A web application's own server, which has the key, asks for one and hands it to its page. It opens
streams and tails for a minute, as the key would; what is open goes on for as long as the key holds.
It is a proof that the key was shown (`key_proofs`), so that every node takes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from coordinator.access.api_keys import ApiKeys
from coordinator.commands.keys import SecretDigest
from goqueue.wire.errors import Unauthenticated
from node.api.auth.principal import Principal
from node.security.key_checks import principal_of
from node.security.key_proofs import KeyProofs

LIFE_S = 60
"""Long enough for a page to load; whoever finds one in a log later has nothing."""


class KeyBrowserTokens:
    """Implements `node.api.auth.sessions.BrowserTokens`. Without a secret of the cluster they hold
    on this node only, until its process ends."""

    def __init__(
        self,
        keys: Callable[[], ApiKeys],
        now_ms: Callable[[], int],
        digest_of: Callable[[str], SecretDigest | None],
        cluster_secret: bytes,
        is_stale: Callable[[], bool] = lambda: False,
    ) -> None:
        self._keys = keys
        secret = cluster_secret or os.urandom(32)
        label = b"goqueue browser token"
        self._proofs = KeyProofs(label, secret, keys, now_ms, digest_of, is_stale)

    def make(self, token: str) -> tuple[str, int]:
        return self._proofs.make(token, LIFE_S), LIFE_S

    def principal(self, browser_token: str, *, is_open: bool) -> Principal:
        proven = self._proofs.admit(browser_token, may_be_over=is_open)
        if proven is None:
            raise Unauthenticated(
                f"this browser token is over, which it is after {LIFE_S} seconds, or is none",
                reason="expired",
            )
        return principal_of(proven.key, self._keys())

"""Sessions of the console: proofs that a key was shown. Every node can check them, and none keeps
any but those that were logged out of.

A session names the key and its own end, under a code of authentication made with a secret of the
cluster and the stored digest of the key's secret. So it holds on every node and after restarts, and
ends with the secret: when it is rotated out, runs out, or its key is revoked. Nobody who has only a
disk, or only the cluster's secret, can make one.

One that is logged out of is over on this node at once, and on the others as soon as they have
applied a command of the cluster group (`coordinator.access.sessions`). Before that command's level
is finished it is over on this node only, until the process ends.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
from collections.abc import Awaitable, Callable

from coordinator.access.api_keys import ApiKey, ApiKeys
from coordinator.commands.keys import EndSession, SecretDigest
from goqueue.wire.errors import Unauthenticated, Unavailable
from log.levels import NotFinished
from node.api.auth.principal import Principal
from node.security.key_checks import principal_of

LIFE_S = 8 * 3600
"""A working day; then the key is shown again."""
ENDED_HERE_MAX = 4096
"""Sessions that this node remembers by itself until the cluster group has them; the oldest go."""
_SESSION = re.compile(
    r"(?P<id>[A-Za-z0-9][A-Za-z0-9_-]{0,62})\.(?P<ends>[0-9]{1,12})\.(?P<nonce>[A-Za-z0-9_-]{22})"
    r"\.(?P<code>[A-Za-z0-9_-]{43})",
    re.ASCII,
)


class KeySessions:
    """Implements `node.api.auth.sessions.Sessions`. Without a secret of the cluster its sessions
    are this process's own. `digest_of` tells which secret of its key a proved token is."""

    def __init__(
        self,
        keys: Callable[[], ApiKeys],
        now_ms: Callable[[], int],
        digest_of: Callable[[str], SecretDigest | None],
        cluster_secret: bytes,
        is_stale: Callable[[], bool] = lambda: False,
        tell: Callable[[EndSession], Awaitable[object]] | None = None,
    ) -> None:
        self._tell = tell
        self._ended_here: dict[str, None] = {}
        self._keys = keys
        self._now_ms = now_ms
        self._digest_of = digest_of
        self._is_stale = is_stale
        self._root = cluster_secret or os.urandom(32)

    @property
    def form_key(self) -> bytes:
        return _code(self._root, b"goqueue console forms")

    def begin(self, token: str) -> tuple[str, int]:
        digest = self._digest_of(token)
        if digest is None:
            raise Unauthenticated("this API key does not hold", reason="invalid")
        ends_s = self._now_ms() // 1000 + LIFE_S
        told = f"{token.partition('.')[0]}.{ends_s}.{_text(os.urandom(16))}"
        return f"{told}.{self._sign(told, digest)}", LIFE_S

    def principal(self, session: str) -> Principal:
        if self._is_stale():
            raise Unavailable(
                "this node has not heard of the cluster for too long to know which keys hold"
            )
        key, command = self._proven(session)
        ended = self._keys().sessions
        if command.nonce in self._ended_here or ended.is_ended(
            key.id, command.nonce, command.ends_s
        ):
            raise Unauthenticated("this session was logged out of", reason="invalid")
        return principal_of(key, self._keys())

    async def end(self, session: str) -> None:
        try:
            _, command = self._proven(session)
        except Unauthenticated:
            return  # it is over
        if command.nonce in self._ended_here:
            return
        while len(self._ended_here) >= ENDED_HERE_MAX:
            del self._ended_here[next(iter(self._ended_here))]
        self._ended_here[command.nonce] = None
        if self._tell is not None:
            with contextlib.suppress(NotFinished):
                await self._tell(command)

    def _proven(self, session: str) -> tuple[ApiKey, EndSession]:
        """Whose it is, and what would end it. Raises Unauthenticated."""
        found, now_ms = _SESSION.fullmatch(session), self._now_ms()
        if found is None or int(found["ends"]) * 1000 <= now_ms:
            raise Unauthenticated("the session is over: show the key again", reason="expired")
        key = self._keys().by_id.get(found["id"])
        told = session.rpartition(".")[0]
        for secret in [] if key is None else key.live_secrets(now_ms):
            if hmac.compare_digest(self._sign(told, secret.secret), found["code"]):
                assert key is not None
                return key, EndSession(key.id, found["nonce"], int(found["ends"]))
        raise Unauthenticated("the session has ended with its key", reason="invalid")

    def _sign(self, told: str, digest: SecretDigest) -> str:
        made_with = _code(self._root, b"goqueue console session" + digest.salt + digest.digest)
        return _text(_code(made_with, told.encode()))


def _code(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")

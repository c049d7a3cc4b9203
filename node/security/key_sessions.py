"""Sessions of the console: proofs that a key was shown (`key_proofs`). No node keeps any but those
that were logged out of.

One that is logged out of is over on this node at once, and on the others as soon as they have
applied a command of the cluster group (`coordinator.access.sessions`). Before that command's level
is finished it is over on this node only, until the process ends.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable

from coordinator.access.api_keys import ApiKey, ApiKeys
from coordinator.commands.keys import EndSession, SecretDigest
from goqueue.wire.errors import Unauthenticated
from log.levels import NotFinished
from node.api.auth.principal import Principal
from node.security.key_checks import principal_of
from node.security.key_proofs import KeyProofs, Proven, code_of

LIFE_S = 8 * 3600
"""A working day; then the key is shown again."""
ENDED_HERE_MAX = 4096
"""Sessions that this node remembers by itself until the cluster group has them; the oldest go."""


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
        self._root = cluster_secret or os.urandom(32)
        label = b"goqueue console session"
        self._proofs = KeyProofs(label, self._root, keys, now_ms, digest_of, is_stale)

    @property
    def form_key(self) -> bytes:
        return code_of(self._root, b"goqueue console forms")

    def begin(self, token: str) -> tuple[str, int]:
        return self._proofs.make(token, LIFE_S), LIFE_S

    def principal(self, session: str) -> Principal:
        key, command = _proven(self._proofs.admit(session))
        ended = self._keys().sessions
        if command.nonce in self._ended_here or ended.is_ended(
            key.id, command.nonce, command.ends_s
        ):
            raise Unauthenticated("this session was logged out of", reason="invalid")
        return principal_of(key, self._keys())

    async def end(self, session: str) -> None:
        try:
            _, command = _proven(self._proofs.check(session))
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


def _proven(proven: Proven | None) -> tuple[ApiKey, EndSession]:
    """Whose it is, and what would end it. Raises Unauthenticated."""
    if proven is None:
        raise Unauthenticated("the session is over: show the key again", reason="expired")
    return proven.key, EndSession(proven.key.id, proven.nonce, proven.ends_s)

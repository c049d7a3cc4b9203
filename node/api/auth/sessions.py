"""A visitor of the console who has shown an API key, as far as the front knows of it."""

from __future__ import annotations

from typing import Protocol

from node.api.auth.principal import Principal


class Sessions(Protocol):
    """Who gives out what a browser keeps instead of a key. It is implemented by
    `node.security.key_sessions`."""

    @property
    def form_key(self) -> bytes:
        """What protects forms; the same on all nodes where sessions are."""
        ...

    def begin(self, token: str) -> tuple[str, int]:
        """What the browser is to send from now on, and for how many seconds it holds. The token was
        proved right now. Raises Unauthenticated where it no longer holds."""
        ...

    async def end(self, session: str) -> None:
        """It counts no more: here from now on, and on every node once this returns. Raises what
        keeps the others from being told."""
        ...

    def principal(self, session: str) -> Principal:
        """Whose session it is. Raises Unauthenticated, or Unavailable where nobody can say."""
        ...

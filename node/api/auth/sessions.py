"""Whose API key was shown before, as far as the front knows of it."""

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


class BrowserTokens(Protocol):
    """Who makes what a page opens streams and tails with, in place of a key. It is implemented by
    `node.security.browser_tokens`."""

    def make(self, token: str) -> tuple[str, int]:
        """A browser token, and for how many seconds it opens something. The key's token was proved
        right now. Raises Unauthenticated where it no longer holds."""
        ...

    def principal(self, browser_token: str, *, is_open: bool) -> Principal:
        """Whose key it was made with; where what it opened is open, its own time does not matter.
        Raises Unauthenticated, or Unavailable where nobody can say."""
        ...

"""Who proves API keys, as the HTTP front asks it: `Authenticator`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from node.api.auth.principal import Principal


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a token comes from, and how many from there did not hold of late."""

    address: str = ""
    failures: int = 0


class KeyVerifier(Protocol):
    """Who proves secrets. `node.security.key_checks` implements it over the keys of the cluster."""

    def known(self, token: str) -> Principal | None:
        """Whose `id.secret` this is, where it was proved before and still holds; None for any other
        text. No more than a few microseconds."""
        ...

    async def prove(self, token: str, origin: Origin) -> Principal:
        """Raises Unauthenticated, or Busy where too many secrets wait to be proved: those go first
        that come from where fewer wrong ones came from."""
        ...

    def refused(self, result: str) -> None:
        """A request without a token that could be proved: `missing` or `malformed`."""
        ...

    def denied(self, missing: str) -> None:
        """A key was proved, and may not do this: it lacks `role` or `scope`."""
        ...

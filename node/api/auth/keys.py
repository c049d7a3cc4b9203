"""What the HTTP front asks of the node about API keys. Times are log time in Unix milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SecretView:
    """A secret that opens something now; `expires_ms` 0 is as long as its key."""

    created_ms: int
    expires_ms: int


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key without its secrets; `state` is active, expired or revoked, "" among the prefixes is
    every topic, or every group."""

    id: str
    name: str
    role: str
    prefixes: Sequence[str]
    group_prefixes: Sequence[str]
    state: str
    created_ms: int
    expires_ms: int
    revoked_ms: int
    secrets: Sequence[SecretView]


@dataclass(frozen=True, slots=True)
class NewSecret:
    """A key with a secret that nobody can be told again."""

    key: KeyView
    secret: str


class KeyBroker(Protocol):
    """The keys of the cluster, from any node."""

    async def create_key(
        self,
        id: str,
        *,
        name: str,
        role: str,
        prefixes: Sequence[str],
        expires_ms: int,
        group_prefixes: Sequence[str] = (),
    ) -> NewSecret:
        """An id is made up where none is given; without `group_prefixes` they are the topics'.
        Raises BadName, BadRequest with every problem, Conflict where there is a key with this id.
        """
        ...

    async def keys(self) -> list[KeyView]:
        """All that are remembered, by id."""
        ...

    async def key(self, id: str) -> KeyView:
        """Raises NotFound."""
        ...

    async def rotate_key(self, id: str, *, grace_ms: int, keep: str) -> NewSecret:
        """A further secret; those before it end after `grace_ms`. Raises NotFound, Conflict."""
        ...

    async def revoke_key(self, id: str) -> KeyView:
        """Raises NotFound; Conflict for the last admin's key."""
        ...

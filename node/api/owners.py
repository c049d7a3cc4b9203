"""What the HTTP front asks of the node about whom groups belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from node.api.queue import GroupView


@dataclass(frozen=True, slots=True)
class Ownership:
    """A group, by its id, and whose it is, as `GroupView` says."""

    id: int
    owner: str | None


class OwnerBroker(Protocol):
    """Whose groups are whose, from any node."""

    def ownership(self, group: str) -> Ownership | None:
        """As far as this node knows; None for no such group. Called for every request that names a
        group and whose key has prefixes."""
        ...

    async def find_ownership(self, group: str) -> Ownership | None:
        """As `ownership`, after this node has caught up."""
        ...

    def is_reserved(self, group: str) -> bool:
        """Whether the name begins as those of some key's groups do. Never before groups have
        owners."""
        ...

    async def assign_group(self, group: str, owner: str) -> GroupView:
        """Give the group to whoever reaches this prefix. Raises `UnknownGroup`, `BadConfig`, and
        `NotFinished` before groups have owners."""
        ...

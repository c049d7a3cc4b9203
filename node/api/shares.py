"""What the HTTP front asks of the node about the shares of tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from node.api.rules.rule import admins, scoped

Prefixes = tuple[str, ...]
"""What a key's topics, or groups, begin with: a tenant. With "" among them there is no share."""


class TenantShares(Protocol):
    """How much of what the cluster bounds a tenant may hold, as far as this node knows. Every
    method raises `ShareFull` (429) where what is about to be made is beyond it. What is there
    already, and would be changed only, is never beyond it."""

    @scoped(admins)
    def topic(self, prefixes: Prefixes, name: str, partitions: object) -> None:
        """A topic of so many partitions, of the default number where that is no number."""
        ...

    @scoped(admins)
    def partitions(self, prefixes: Prefixes, more: int) -> None: ...

    @scoped(admins)
    def group(self, prefixes: Prefixes, name: str) -> None: ...

    @scoped(admins)
    def member(self, prefixes: Prefixes, group: str, instance_id: str) -> None: ...

    @scoped(admins)
    def schedule(self, prefixes: Prefixes, schedule: Mapping[str, object]) -> None:
        """With the fields of `ScheduleView`."""
        ...

    @scoped(admins)
    def transactional_id(self, prefixes: Prefixes, id: str) -> None: ...

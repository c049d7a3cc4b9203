"""What the HTTP front asks of the node about the shares of tenants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Prefixes = tuple[str, ...]
"""What a key's topics, or groups, begin with: a tenant. With "" among them there is no share."""


class ShareBroker(Protocol):
    """How much of what the cluster bounds a tenant may hold, as far as this node knows. Every
    method raises `ShareFull` (429) where what is about to be made is beyond it. What is there
    already, and would be changed only, is never beyond it."""

    def topic(self, prefixes: Prefixes, name: str, partitions: object) -> None:
        """A topic of so many partitions, of the default number where that is no number."""
        ...

    def partitions(self, prefixes: Prefixes, more: int) -> None: ...

    def group(self, prefixes: Prefixes, name: str) -> None: ...

    def member(self, prefixes: Prefixes, group: str, instance_id: str) -> None: ...

    def schedule(self, prefixes: Prefixes, schedule: Mapping[str, object]) -> None:
        """With the fields of `ScheduleView`."""
        ...

    def transactional_id(self, prefixes: Prefixes, id: str) -> None: ...

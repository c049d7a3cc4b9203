"""A broker and who asks it: what rules judge by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from goqueue.wire.errors import UnknownGroup
from node.api.auth.principal import OutOfScope, Principal
from node.api.claims import Maker, Ownership


class Scope:
    """What a key with prefixes reaches of a broker. Whatever is refused raises OutOfScope (403),
    whether there is something or not.

    `broker` is the node's own `node.api.broker.Broker`, which rules may ask for what they judge by.
    It is declared above them, so its type is not named here."""

    __slots__ = ("broker", "principal")

    def __init__(self, broker: Any, principal: Principal) -> None:
        self.broker = broker
        self.principal = principal

    def covered(self, names: Sequence[str]) -> list[str]:
        """The topics among these that it reaches."""
        return list(filter(self.principal.covers, names))

    @property
    def is_everywhere(self) -> bool:
        """Whether it reaches every topic and every group."""
        return self.principal.is_everywhere and "" in self.principal.groups

    # groups

    def sees(self, group: str) -> bool:
        """Whether it reaches a group, or the group has no owner: then its topics say."""
        known = self.broker.owners.ownership(group)
        return known is None or self._reaches(group, known)

    async def judge(self, group: str) -> Ownership | None:
        """The group, None where there is none. One without an owner is let through."""
        owners = self.broker.owners
        known: Ownership | None = owners.ownership(group) or await owners.find_ownership(group)
        if known is not None and not self._reaches(group, known):
            raise self.beyond(group)
        return known

    async def maker(self, group: str) -> Maker:
        """For whom a call makes the group where there is none."""
        known = await self.judge(group)
        principal = self.principal
        if known is None:
            self.broker.shares.group(principal.groups, group)
        owner = principal.owner_of(group)
        if owner is None:
            if known is None and self.broker.owners.is_reserved(group):
                raise self.beyond(group)
            owner = next(iter(principal.groups), None)
        return Maker(owner, 0 if known is None else known.id)

    async def require_group(self, group: str) -> None:
        """One with an owner by that; else all that the group's members subscribe to."""
        known = await self.judge(group)
        if known is None or known.owner is None:
            self.require_subscribed(group)

    async def require_whole_group(self, group: str) -> None:
        """One with an owner by that; else all that the group has ever been in, as the leaders tell,
        who must all answer."""
        known = await self.judge(group)
        if known is not None and known.owner is not None:
            return
        self.require_subscribed(group)
        if self.principal.is_everywhere:
            return
        try:
            rows = await self.broker.positions.lag(group)
        except UnknownGroup:
            return
        if not all(self.principal.covers(row.topic) for row in rows):
            raise self.beyond(group)

    def require_subscribed(self, group: str) -> None:
        """All that the group's members subscribe to."""
        topics, patterns = self.broker.members.subscribed(group)
        principal = self.principal
        if not (
            all(map(principal.covers, topics)) and all(map(principal.covers_pattern, patterns))
        ):
            raise self.beyond(group)

    def beyond(self, group: str) -> OutOfScope:
        return OutOfScope(self.principal, f"group {group[:249]}", self.principal.groups)

    def _reaches(self, group: str, known: Ownership) -> bool:
        return known.owner is None or self.principal.reaches(group, known.owner)

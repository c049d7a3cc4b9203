"""What the HTTP front asks of the node about groups as such: `Groups` and `Owners`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

from node.api.claims import NOBODYS, Maker, Ownership
from node.api.figures import GroupPartitionView
from node.api.rules.groups import EVERY_GROUPS, in_topic_or_whole, whole
from node.api.rules.rule import admins, scoped
from node.api.rules.scope import Scope


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group: its settings and where it stands."""

    name: str
    id: int
    settings: Mapping[str, object]
    created_ms: int
    partitions: Sequence[GroupPartitionView] = ()
    stale: bool = False
    """Some leaders did not tell in time: partitions are missing, or stale themselves."""
    owner: str | None = None
    """The prefix that it belongs to, "" for every key of all groups, None for nobody."""


def _put(scope: Scope, method: Any) -> Any:
    async def checked(
        group: str, settings: Mapping[str, object], maker: Maker = NOBODYS
    ) -> GroupView:
        maker = await scope.maker(group)
        await scope.require_whole_group(group)
        return cast(GroupView, await method(group, settings, maker))

    return checked


def _put_for_all(_scope: Scope, method: Any) -> Any:
    async def made(name: str, settings: Mapping[str, object], maker: Maker = NOBODYS) -> GroupView:
        return cast(GroupView, await method(name, settings, EVERY_GROUPS))

    return made


def _described(scope: Scope, method: Callable[..., Awaitable[GroupView]]) -> Any:
    """As `in_topic_or_whole`; topics beyond the key's are left out."""

    async def seen(group: str, topic: str | None = None) -> GroupView:
        view = cast(GroupView, await in_topic_or_whole(scope, method)(group, topic))
        mine = [one for one in view.partitions if scope.principal.covers(one.topic)]
        return replace(view, partitions=mine)

    return seen


def _listed(scope: Scope, method: Callable[[], Awaitable[list[GroupView]]]) -> Any:
    async def seen() -> list[GroupView]:
        views = [view for view in await method() if scope.sees(view.name)]
        if scope.principal.is_everywhere or all(view.owner is not None for view in views):
            return views
        topics = await _topics_of_groups(scope)
        mine = scope.principal.covers
        return [
            view
            for view in views
            if view.owner is not None or all(map(mine, topics.get(view.name, ())))
        ]

    return seen


async def _topics_of_groups(scope: Scope) -> dict[str, set[str]]:
    """Where each group has been, and what its members subscribe to."""
    broker, found = scope.broker, dict[str, set[str]]()
    for one in await broker.figures.queue_stats():
        for group in one.groups:
            found.setdefault(group, set()).add(one.topic)
    for view in await broker.members.memberships():
        found.setdefault(view.group, set()).update(broker.members.subscribed(view.group)[0])
    return found


class Groups(Protocol):
    """Groups, whoever is in them."""

    @scoped(_put, admins=_put_for_all)
    async def put_group(
        self, name: str, settings: Mapping[str, object], maker: Maker = NOBODYS
    ) -> GroupView:
        """Create the group, or change the settings that are named. Raises `BadName`, `BadRequest`
        with every problem."""
        ...

    @scoped(_listed)
    async def list_groups(self) -> list[GroupView]:
        """All groups, without partitions, by name."""
        ...

    @scoped(_described)
    async def group(self, name: str, topic: str | None = None) -> GroupView:
        """Raises `NotFound` (code `unknown_group`)."""
        ...

    @scoped(whole)
    async def delete_group(self, name: str, *, force: bool = False) -> None:
        """Raises `UnknownGroup`, `GroupActive` (409) where it has members, unless by force."""
        ...


class Owners(Protocol):
    """Whose groups are whose, from any node."""

    @scoped(admins)
    def ownership(self, group: str) -> Ownership | None:
        """As far as this node knows; None for no such group. Called for every request that names a
        group and whose key has prefixes."""
        ...

    @scoped(admins)
    async def find_ownership(self, group: str) -> Ownership | None:
        """As `ownership`, after this node has caught up."""
        ...

    @scoped(admins)
    def is_reserved(self, group: str) -> bool:
        """Whether the name begins as those of some key's groups do. Never before groups have
        owners."""
        ...

    @scoped(admins)
    async def assign_group(self, group: str, owner: str) -> GroupView:
        """Give the group to whoever reaches this prefix. Raises `UnknownGroup`, `BadConfig`, and
        `NotFinished` before groups have owners."""
        ...

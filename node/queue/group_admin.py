"""Groups as the front asks for them: made, listed, changed and deleted in the cluster group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache

from coordinator.commands.queue import AssignGroup, DeleteGroup, PutGroup
from coordinator.groups.membership import SHARED
from coordinator.groups.settings import Group, GroupSettings
from delivery.config import GroupConfig
from goqueue.wire.errors import BadName, Unavailable, UnknownGroup
from goqueue.wire.ids import NAME_CHARACTERS_MAX, is_name
from log.levels import Feature
from node.api.claims import NOBODYS, Claim, Maker, Ownership
from node.api.figures import Figures
from node.api.groups import GroupView
from node.cluster.host import ClusterHost
from node.rpc.queue import GroupRef

COMMAND_DEADLINE_S = 15.0


class GroupsBroker:
    """Implements `node.api.groups`. Loop thread only.

    `defaults` are this node's settings of groups whose creator doesn't say.
    """

    def __init__(
        self, cluster: ClusterHost, figures: Figures, defaults: Mapping[str, object]
    ) -> None:
        self._cluster = cluster
        self._figures = figures
        self._defaults = dict(defaults)

    async def put_group(
        self, name: str, settings: Mapping[str, object], maker: Maker = NOBODYS
    ) -> GroupView:
        """Create the group, or change the settings that are named; names are `GroupConfig`'s.

        Raises BadName, BadConfig with every problem, GroupTaken.
        """
        _check_name(name)
        owner, judged = self._told(maker)
        command = PutGroup(name, dict(settings), self._defaults, owner=owner, judged=judged)
        await self._cluster.command(command, COMMAND_DEADLINE_S)
        return self.view(await self.find(name))

    async def ensure_group(
        self,
        name: str,
        settings: Mapping[str, object] | None = None,
        maker: Maker = NOBODYS,
    ) -> Group:
        """The group; created with these settings, and defaults, where there is none. Raises
        GroupTaken."""
        owner, judged = self._told(maker)
        known = self._cluster.state.groups.get(name)
        if known is not None:
            self._cluster.state.check_judged(known, owner, judged)
            return known
        _check_name(name)
        command = PutGroup(
            name, dict(settings or {}), self._defaults, ensure=True, owner=owner, judged=judged
        )
        await self._cluster.command(command, COMMAND_DEADLINE_S)
        return await self.find(name)

    async def list_groups(self) -> list[GroupView]:
        """All groups, without partitions, by name."""
        await self._cluster.refresh()
        groups = self._cluster.state.groups
        return [self.view(groups[name]) for name in sorted(groups)]

    async def group(self, name: str, topic: str | None = None) -> GroupView:
        """With its partitions, of this topic or of all."""
        found = self.view(await self.find(name))
        stats = await self._figures.queue_stats(topic)
        views = [one.groups[name] for one in stats if name in one.groups]
        return replace(found, partitions=views, stale=any(one.stale for one in stats))

    def view(self, group: Group) -> GroupView:
        """The group as the front shows it, without partitions."""
        owner = self._cluster.state.group_owners.get(group.id)
        return replace(group_view(group), owner=owner)

    # as Owners names them

    def ownership(self, group: str) -> Ownership | None:
        state = self._cluster.state
        known = state.groups.get(group)
        return None if known is None else Ownership(known.id, state.group_owners.get(known.id))

    async def find_ownership(self, group: str) -> Ownership | None:
        await self._cluster.refresh()
        return self.ownership(group)

    def is_reserved(self, group: str) -> bool:
        state = self._cluster.state
        return self._cluster.levels.speaks(Feature.SCOPES) and state.keys.is_reserved(group)

    async def assign_group(self, group: str, owner: str) -> GroupView:
        self._cluster.levels.require(Feature.SCOPES)
        found = await self.find(group)
        await self._cluster.command(AssignGroup(group, owner, found.id), COMMAND_DEADLINE_S)
        return self.view(await self.find(group))

    def _told(self, maker: Maker) -> tuple[str | None, int]:
        """The maker as commands say it: nothing before every node knows of it."""
        if maker.owner is None or not self._cluster.levels.speaks(Feature.SCOPES):
            return None, 0
        return maker.owner, maker.judged

    def require(self, feature: Feature) -> None:
        """Raises NotFinished below its level."""
        self._cluster.levels.require(feature)

    async def find(self, name: str) -> Group:
        """A group; where none of this name is known here, this node first catches up.

        Raises UnknownGroup, or Unavailable where nobody can say.
        """
        known = self._cluster.state.groups.get(name)
        if known is not None:
            return known
        is_current = await self._cluster.refresh()
        known = self._cluster.state.groups.get(name)
        if known is not None:
            return known
        if is_current:
            raise UnknownGroup(name[:NAME_CHARACTERS_MAX])
        problem = self._cluster.not_ready() or "the cluster group's leader does not answer"
        raise Unavailable(f"group {name[:64]} is not known here: {problem}", group=name[:64])

    async def delete_group(self, name: str, *, force: bool = False) -> None:
        """Raises UnknownGroup, GroupActive where it has members, unless by force. Its partitions
        drop what they hold of it as they learn of it."""
        group = await self.find(name)
        try:
            command = DeleteGroup(name, group.id, force)
            await self._cluster.command(command, COMMAND_DEADLINE_S)
        except UnknownGroup as error:
            if error.outcome == "none":  # else this very call may have deleted it, earlier
                raise


def group_config(group: Group) -> GroupConfig:
    """What the group's partitions obey."""
    return delivery_config(group.settings)


def delivery_config(settings: GroupSettings) -> GroupConfig:
    """The settings that partitions obey; the others are about members."""
    given = asdict(settings)
    return GroupConfig(**{name: given[name] for name in GroupConfig.__struct_fields__})


@lru_cache(maxsize=1024)
def group_ref(group: Group) -> GroupRef:
    """The group as partitions are told of it."""
    return GroupRef(group.id, group.name, group.version, group_config(group))


def claim_in(group: Group, claim: Claim) -> Claim:
    """Members that share partitions own none: whatever generation they name, leases judge."""
    is_shared = group.settings.mode == SHARED
    return Claim(claim.member) if is_shared and claim.generation > 0 else claim


def group_view(group: Group) -> GroupView:
    """The group as the front shows it, without partitions."""
    return GroupView(group.name, group.id, asdict(group.settings), group.created_ms)


def _check_name(name: str) -> None:
    if not is_name(name):
        raise BadName(f"bad group name {name[:64]!r}", name=name[:64])

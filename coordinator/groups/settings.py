"""The groups of the cluster: what each is set to, and which of its name is meant."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from coordinator.commands.queue import AssignGroup, DeleteGroup, GroupResult, PutGroup
from coordinator.errors import BadConfig, ClusterFull, GroupTaken
from goqueue.wire.errors import BadName, UnknownGroup
from goqueue.wire.ids import NAME_CHARACTERS_MAX, is_name
from goqueue.wire.types import Index

GROUPS_MAX = 10_000
HOUR_MS = 3600 * 1000
SESSION_MS = (1000, HOUR_MS)
"""The least and the most of a member's timeouts."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The settings of one group: those of its partitions, as `delivery.config.GroupConfig` explains
    them, and how its members share them."""

    visibility_ms: int = 30_000
    max_attempts: int = 3
    ordering: str = "none"
    start: str = "earliest"
    lane_max_wait_ms: int = 30_000
    lane_share: int = 5
    backoff_ms: int = 0
    backoff_ms_max: int = 60_000
    on_poison: str = "dead"
    halt_percent: int = 0
    halt_window: int = 100
    redrives_max: int = 5
    in_flight_max: int = 10_000
    dead_max: int = 100_000
    mode: str = "exclusive"
    """One member a partition; or `shared`: any member receives from any partition."""
    assignor: str = "sticky"
    session_timeout_ms: int = 30_000
    """A member that is not heard of for so long is gone; a join may ask for another one."""
    rebalance_timeout_ms: int = 60_000
    """How long a member may take to let go of a partition before it is fenced there."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group; `id` is its creation's index, `version` that of its last change."""

    name: str
    id: int
    version: int
    settings: GroupSettings
    created_ms: int


_BOUNDS = {
    "visibility_ms": (0, 12 * HOUR_MS),
    "max_attempts": (0, 1000),
    "lane_max_wait_ms": (0, 24 * HOUR_MS),
    "lane_share": (2, 100),
    "backoff_ms": (0, 12 * HOUR_MS),
    "backoff_ms_max": (0, 12 * HOUR_MS),
    "halt_percent": (0, 100),
    "halt_window": (1, 1000),
    "redrives_max": (0, 1000),
    "in_flight_max": (1, 10_000),
    "dead_max": (1, 1_000_000),
    "session_timeout_ms": SESSION_MS,
    "rebalance_timeout_ms": SESSION_MS,
}
_WORDS: dict[str, tuple[str, ...]] = {
    "mode": ("exclusive", "shared"),
    "assignor": ("sticky", "range", "roundrobin"),
    "ordering": ("none", "key"),
    "start": ("earliest", "latest"),
    "on_poison": ("dead", "park"),
}


class Groups:
    """All groups by name."""

    def __init__(
        self, groups: Iterable[Group] = (), owners: Iterable[tuple[int, str]] = ()
    ) -> None:
        self.by_name = {group.name: group for group in groups}
        self.owners = dict(owners)
        """By a group's id: the prefix that it belongs to, "" for every key of all groups. A group
        that is not here belongs to nobody: it is older than owners are, or made without a key."""
        self._by_id: dict[int, Group] | None = None

    def by_id(self) -> Mapping[int, Group]:
        """The same by id."""
        if self._by_id is None:
            self._by_id = {group.id: group for group in self.by_name.values()}
        return self._by_id

    def named(self, name: str) -> Group:
        """Raises UnknownGroup."""
        group = self.by_name.get(name)
        if group is None:
            raise UnknownGroup(name[:NAME_CHARACTERS_MAX])
        return group

    def put(self, index: Index, time_ms: int, command: PutGroup) -> GroupResult:
        """Raises BadName, BadConfig, ClusterFull, GroupTaken; then nothing has changed."""
        known = self.by_name.get(command.name)
        if known is None:
            return self._create(index, time_ms, command)
        self.check_judged(known, command.owner, command.judged)
        if not command.ensure:
            settings = group_settings(command.settings, known.settings)
            if settings != known.settings:
                known = dataclasses.replace(known, settings=settings, version=index)
                self._keep(known)
        return GroupResult(known.name, known.id, known.version)

    def delete(self, command: DeleteGroup) -> GroupResult:
        """Raises UnknownGroup, also where the name is another group's by now."""
        group = self.named(command.name)
        if command.id not in (0, group.id):
            raise UnknownGroup(command.name)
        del self.by_name[group.name]
        self.owners.pop(group.id, None)
        self._by_id = None
        return GroupResult(group.name, group.id, group.version)

    def assign(self, command: AssignGroup) -> GroupResult:
        """Raises UnknownGroup as `delete` does, BadConfig."""
        group = self.named(command.name)
        if command.id not in (0, group.id):
            raise UnknownGroup(command.name)
        _check_owner(command.owner)
        self.owners[group.id] = command.owner
        return GroupResult(group.name, group.id, group.version)

    def check_judged(self, known: Group, owner: str | None, judged: int) -> None:
        """Raises GroupTaken where a scope would have made a group, and another one did so first.

        Keys of all groups reach whatever is there, and a command that is sent again finds its own.
        """
        if owner and known.id != judged and self.owners.get(known.id) != owner:
            raise GroupTaken(known.name)

    def _create(self, index: Index, time_ms: int, command: PutGroup) -> GroupResult:
        if not is_name(command.name):
            raise BadName(f"bad group name {command.name[:64]!r}", name=command.name[:64])
        settings = group_settings({**command.defaults, **command.settings})
        if len(self.by_name) >= GROUPS_MAX:
            raise ClusterFull(f"there are {GROUPS_MAX} groups already")
        if command.owner is not None:
            _check_owner(command.owner)
            self.owners[index] = command.owner
        self._keep(Group(command.name, index, index, settings, time_ms))
        return GroupResult(command.name, index, index, created=True)

    def _keep(self, group: Group) -> None:
        self.by_name[group.name] = group
        self._by_id = None


def group_settings(
    changes: Mapping[str, object], base: GroupSettings | None = None
) -> GroupSettings:
    """The settings after a change. Raises BadConfig with every problem."""
    problems = []
    for name in sorted(changes):
        check = _FIELDS.get(name)
        problem = "unknown setting" if check is None else check(name, changes[name])
        if problem is not None:
            problems.append(f"{name[:80]}: {problem}")
    if problems:
        raise BadConfig(problems)
    changed = dataclasses.replace(base or GroupSettings(), **changes)  # type: ignore[arg-type]
    if base is not None and changed.ordering != base.ordering:
        raise BadConfig([f"ordering: cannot be changed; this group has {base.ordering}"])
    if changed.ordering != "key" and changed.on_poison == "park":
        raise BadConfig(["on_poison: park needs ordering: key, because it parks keys"])
    return changed


def _check_owner(owner: str) -> None:
    if owner and not is_name(owner):
        raise BadConfig([f"owner: {owner[:64]!r} is not a valid prefix of a group's name"])


def _check_number(name: str, value: object) -> str | None:
    low, high = _BOUNDS[name]
    if not isinstance(value, int) or isinstance(value, bool):
        return f"not a whole number: {str(value)[:40]!r}"
    return None if low <= value <= high else f"{value} is out of range, which is {low} to {high}"


def _check_word(name: str, value: object) -> str | None:
    words = _WORDS[name]
    return None if value in words else f"{str(value)[:40]!r} is none of {', '.join(words)}"


_FIELDS: dict[str, Callable[[str, object], str | None]] = {
    **dict.fromkeys(_BOUNDS, _check_number),
    **dict.fromkeys(_WORDS, _check_word),
}

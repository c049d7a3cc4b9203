"""The members of all groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from coordinator.errors import BadConfig
from coordinator.groups import SESSION_MS, Group, Groups
from coordinator.member_commands import (
    ExpireMembers,
    HandOver,
    JoinGroup,
    LeaveGroup,
    LetGo,
    MemberResult,
)
from coordinator.membership import Membership, MembershipRecord, MemberView, Topics
from goqueue.wire.errors import GroupActive, UnknownGroup
from goqueue.wire.ids import NAME_CHARACTERS_MAX, is_name

SUBSCRIPTIONS_MAX = 100
TEXT_CHARACTERS_MAX = 256


class Memberships:
    """By group; a group that never had a member has none. `topics` tells those that are alive."""

    def __init__(
        self,
        groups: Groups,
        topics: Callable[[], Topics],
        records: Iterable[MembershipRecord] = (),
    ) -> None:
        self._groups = groups
        self._topics = topics
        self.by_group = {record.group_id: Membership(record) for record in records}

    def dump(self) -> list[MembershipRecord]:
        """Equal wherever the same commands were applied."""
        return [self.by_group[id].dump() for id in sorted(self.by_group)]

    # -- what is asked

    def of(self, group: Group) -> Membership:
        """Empty for a group that never had a member."""
        return self.by_group.get(group.id) or Membership.of(group.id)

    def view(self, group: Group, member: str) -> MemberView:
        """What a member is told. Raises UnknownMember."""
        return self.of(group).view(member, group, self._topics())

    def check_changes(self, before: Group, mode: object) -> None:
        """Raises GroupActive where members share the partitions in another way."""
        if mode not in (None, before.settings.mode) and self.of(before).members:
            raise GroupActive(
                f"group {before.name} has members: its mode stays {before.settings.mode} until "
                "they have left",
                group=before.name,
            )

    def check_deletion(self, group: Group, *, force: bool) -> None:
        """Raises GroupActive."""
        members = self.of(group).members
        if members and not force:
            raise GroupActive(
                f"group {group.name} has {len(members)} active members",
                group=group.name,
                members=len(members),
            )

    # -- what happens

    def join(self, time_ms: int, command: JoinGroup) -> MemberResult:
        """Raises UnknownGroup, BadConfig, ClusterFull. That the topics exist is judged before."""
        group = self._group(command.group_id)
        _check(command)
        membership = self.by_group.get(group.id)
        if membership is None:
            membership = self.by_group[group.id] = Membership.of(group.id)
        membership.join(command, time_ms, group, self._topics())
        return MemberResult(command.member, membership.generation)

    def leave(self, time_ms: int, command: LeaveGroup) -> MemberResult:
        """Raises UnknownGroup, UnknownMember."""
        group = self._group(command.group_id)
        membership = self.of(group)
        membership.leave(command.member, time_ms, group, self._topics())
        return MemberResult(command.member, membership.generation)

    def expire(self, time_ms: int, command: ExpireMembers) -> MemberResult:
        """Raises UnknownGroup."""
        group = self._group(command.group_id)
        membership = self.of(group)
        membership.expire(command, time_ms, group, self._topics())
        return MemberResult("", membership.generation)

    def let_go(self, time_ms: int, command: LetGo) -> MemberResult:
        """Raises UnknownGroup, UnknownMember."""
        group = self._group(command.group_id)
        membership = self.of(group)
        membership.member(group.name, command.member)
        membership.let_go(command, time_ms)
        return MemberResult(command.member, membership.generation)

    def handed(self, time_ms: int, command: HandOver) -> MemberResult:
        """Raises UnknownGroup."""
        membership = self.of(self._group(command.group_id))
        membership.handed(command.handed, time_ms)
        return MemberResult("", membership.generation)

    def topics_changed(self, cause: str, time_ms: int) -> None:
        """Topics came or went, or grew."""
        topics = self._topics()
        by_id = self._groups.by_id()
        for id in sorted(self.by_group):
            self.by_group[id].topics_changed(cause, time_ms, by_id[id], topics)

    def group_deleted(self, group_id: int) -> None:
        """Its members learn so when they ask next."""
        self.by_group.pop(group_id, None)

    def _group(self, id: int) -> Group:
        group = self._groups.by_id().get(id)
        if group is None:
            raise UnknownGroup(str(id))
        return group


def _check(command: JoinGroup) -> None:
    problems = []
    if not is_name(command.member):
        problems.append(f"member: bad name {command.member[:64]!r}")
    if not command.topics and not command.patterns:
        problems.append("topics: a member subscribes to at least one topic or pattern")
    if len(command.topics) + len(command.patterns) > SUBSCRIPTIONS_MAX:
        problems.append(f"topics: more than {SUBSCRIPTIONS_MAX} topics and patterns")
    if any(not 0 < len(pattern) <= NAME_CHARACTERS_MAX for pattern in command.patterns):
        problems.append(f"patterns: each is 1 to {NAME_CHARACTERS_MAX} characters long")
    texts: Mapping[str, str] = {
        "client_id": command.client_id,
        "instance_id": command.instance_id,
        "host": command.host,
    }
    for name, text in texts.items():
        if len(text) > TEXT_CHARACTERS_MAX:
            problems.append(f"{name}: more than {TEXT_CHARACTERS_MAX} characters")
    timeouts = {
        "session_timeout_ms": command.session_timeout_ms,
        "rebalance_timeout_ms": command.rebalance_timeout_ms,
    }
    low, high = SESSION_MS
    for name, timeout in timeouts.items():
        if timeout and not low <= timeout <= high:
            problems.append(f"{name}: {timeout} is out of range, which is {low} to {high}")
    if problems:
        raise BadConfig(problems)

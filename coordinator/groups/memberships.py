"""The members of all groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from coordinator.commands.members import (
    ExpireMembers,
    HandOver,
    JoinGroup,
    LeaveGroup,
    LetGo,
    MemberResult,
)
from coordinator.errors import BadConfig, ClusterFull
from coordinator.groups.membership import GroupMembership, MembershipRecord, MemberView
from coordinator.groups.rebalances import MOVES_ALL_MAX, Rebalances
from coordinator.groups.settings import SESSION_MS, Group, Groups
from coordinator.groups.subscriptions import Patterns, Topics, subscription_problems
from goqueue.wire.errors import GroupActive, UnknownGroup
from goqueue.wire.ids import is_name

TEXT_CHARACTERS_MAX = 256
MEMBERS_TOTAL_MAX = 20_000
"""Over all groups."""
PLACES_MAX = 100_000
"""Partitions of all groups with members, each counted once a group, of about 200 bytes in a
snapshot."""


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
        self._patterns = Patterns()
        self.by_group = {r.group_id: GroupMembership(r, self._patterns) for r in records}
        self._seen: Topics | None = None
        """The topics that all groups have shared; None where that is not known."""

    def dump(self) -> list[MembershipRecord]:
        """Equal wherever the same commands were applied."""
        return [self.by_group[id].dump() for id in sorted(self.by_group)]

    # -- what is asked

    def of(self, group: Group) -> GroupMembership:
        """Empty for a group that never had a member."""
        return self.by_group.get(group.id) or GroupMembership.of(group.id, self._patterns)

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
                f"group {group.name} has {len(members)} active member{'s' * (len(members) != 1)}",
                group=group.name,
                members=len(members),
            )

    def check_topic(self, name: str, partitions: int) -> None:
        """Raises ClusterFull where the groups that would subscribe to a new topic have no room."""
        subscribing = sum(members.subscribes_to(name) for members in self.by_group.values())
        self._check_room(subscribing * partitions)

    # -- what happens

    def join(self, time_ms: int, command: JoinGroup) -> MemberResult:
        """Raises UnknownGroup, BadConfig, ClusterFull. That the topics exist is judged before."""
        group = self._group(command.group_id, command.group)
        check_join(command)
        topics = self._topics()
        membership = self.of(group)
        if command.member not in membership.members:
            total = sum(len(known.members) for known in self.by_group.values())
            if total >= MEMBERS_TOTAL_MAX:
                raise ClusterFull(f"groups have {MEMBERS_TOTAL_MAX} members in all already")
        self._check_room(membership.wanted_after(command, topics) - len(membership.target))
        membership.join(command, time_ms, group, topics)
        self.by_group[group.id] = membership
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
        self._bound_receipts()
        return MemberResult("", membership.generation)

    def topics_changed(self, cause: str, time_ms: int) -> None:
        """Topics came or went, or grew."""
        topics, seen = self._topics(), self._seen
        by_id = self._groups.by_id()
        changed = [
            name
            for name in sorted(topics.keys() | (seen or {}).keys())
            if seen is None or topics.get(name) != seen.get(name)
        ]
        for id in sorted(self.by_group):
            membership = self.by_group[id]
            if seen is None or membership.is_concerned(changed):
                membership.topics_changed(cause, time_ms, by_id[id], topics)
        self._seen = topics

    def group_deleted(self, group_id: int) -> None:
        """Its members learn so when they ask next."""
        self.by_group.pop(group_id, None)

    def _group(self, id: int, name: str = "") -> Group:
        group = self._groups.by_id().get(id)
        if group is None:
            raise UnknownGroup(name or str(id))
        return group

    def _bound_receipts(self) -> None:
        listed = sum(membership.rebalances.listed for membership in self.by_group.values())
        if listed <= MOVES_ALL_MAX:
            return
        rebalances = [membership.rebalances for _, membership in sorted(self.by_group.items())]
        for receipts in sorted(rebalances, key=_last_ms):
            if listed <= MOVES_ALL_MAX:
                return
            listed -= receipts.listed
            receipts.forget_moves()

    def _check_room(self, wanted: int) -> None:
        known = sum(len(membership.target) for membership in self.by_group.values())
        if wanted > 0 and known + wanted > PLACES_MAX:
            raise ClusterFull(
                f"groups with members have {known} partitions in all, of at most {PLACES_MAX}"
            )


def _last_ms(rebalances: Rebalances) -> int:
    """When the group rebalanced last."""
    return rebalances.known[-1].started_ms if rebalances.known else 0


def check_join(command: JoinGroup) -> None:
    """Whether it may be proposed at all. Raises BadConfig with every problem."""
    problems = []
    if not is_name(command.member):
        problems.append(f"member: bad name {command.member[:64]!r}")
    problems += subscription_problems(command.topics, command.patterns)
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

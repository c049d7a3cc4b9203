"""The coordinator's side of groups, where the cluster group is led: sessions, and partitions on
their way from one member to another.

It decides without I/O or clock, and remembers nothing that must survive: who is a member and who
has what is the cluster group's state, whose a partition is stands in the partition's own log. A new
leader begins with every session at its full length and does again what is not known to be done;
all of it may happen twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from coordinator.member_commands import (
    ExpireMembers,
    Handed,
    HandOver,
    LetGo,
    MemberCommand,
    Partition,
)
from coordinator.membership import HANDING, REVOKING, Holding, Membership
from goqueue.wire.types import GroupId

RESTING_MAX = 10_000
AGAIN_MS = 100
"""How soon what failed, or what a member still works on, is looked at again."""


@dataclass(frozen=True, slots=True)
class Naming:
    """An owner entry that is to be put into a partition's log. See `delivery.ops.Own`."""

    group: int
    partition: GroupId
    member: str
    generation: int
    fence: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """A member that does not say itself when it has let go: how much it has in flight is asked."""

    group: int
    partition: GroupId
    member: str


@dataclass(slots=True)
class Work:
    """What is to be done now. Each part is told how it ended: `answered`, `named`, `drained`."""

    commands: list[MemberCommand] = field(default_factory=list["MemberCommand"])
    namings: list[Naming] = field(default_factory=list["Naming"])
    drains: list[Drain] = field(default_factory=list["Drain"])


_Session = tuple[int, str]


class GroupCoordinator:
    """One leadership of the cluster group. `memberships` is its applied state."""

    def __init__(self, memberships: Callable[[], Mapping[int, Membership]]) -> None:
        self._memberships = memberships
        self._heard_ms: dict[_Session, int] = {}
        self._handed: dict[int, dict[Partition, Handed]] = {}
        self._busy: set[object] = set()
        """What is on its way: namings, drains, and what commands are about."""
        self._drained: set[Drain] = set()
        self._again_ms: dict[object, int] = {}
        """Until when what failed rests."""

    def heard(self, group: int, member: str, now_ms: int) -> bool:
        """A sign of life; whether the group has such a member."""
        membership = self._memberships().get(group)
        if membership is None or member not in membership.members:
            return False
        self._heard_ms[group, member] = now_ms
        return True

    def silent_ms(self, group: int, member: str, now_ms: int) -> int:
        """For how long a member was not heard of."""
        return now_ms - self._heard_ms.get((group, member), now_ms)

    def collect(self, now_ms: int) -> Work:
        """What is to be done at this log time."""
        work = Work()
        memberships = self._memberships()
        self._forget(memberships)
        for group, membership in memberships.items():
            self._add_expired(work, group, membership, now_ms)
            for held in membership.moving():
                self._add_moving(work, group, membership, held, now_ms)
            self._add_handed(work, group)
        return work

    def answered(self, command: MemberCommand, now_ms: int, *, applied: bool) -> None:
        """A command has ended: applied, refused, or nobody knows."""
        match command:
            case ExpireMembers():
                about: Sequence[object] = [(command.group_id, id) for id, _ in command.members]
            case LetGo():
                about = [(command.group_id, command.member, p) for p in command.partitions]
            case HandOver():
                about = [(command.group_id, HandOver)]
                if not applied:
                    waiting = self._handed.setdefault(command.group_id, {})
                    for row in command.handed:
                        waiting.setdefault(row.partition, row)
            case _:
                about = []
        for one in about:
            self._end(one, now_ms, again=not applied)

    def named(self, naming: Naming, owner: tuple[str, int, int] | None, now_ms: int) -> None:
        """Who the partition's log names after it, since when, and how many leases of others that
        ended; None where it is not known."""
        self._end(naming, now_ms, again=owner is None)
        if owner is not None:
            partition = _short(naming.partition)
            row = Handed(partition, *owner)
            self._handed.setdefault(naming.group, {})[partition] = row

    def drained(self, drain: Drain, in_flight: int | None, now_ms: int) -> None:
        """How much a member has in flight in a partition; None where it is not known."""
        self._end(drain, now_ms, again=in_flight != 0)
        if in_flight == 0:
            self._drained.add(drain)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When `collect` may have something to do, though nothing has happened."""
        wakes: list[int] = []
        for group, membership in self._memberships().items():
            for member in membership.members.values():
                if (group, member.id) not in self._busy:
                    heard_ms = self._heard_ms.get((group, member.id), now_ms)
                    wakes.append(heard_ms + member.session_timeout_ms)
            for held in membership.moving():
                wakes.append(self._moving_wake_ms(group, membership, held, now_ms))
        return None if not wakes else max(min(wakes), now_ms)

    # -- private

    def _add_expired(self, work: Work, group: int, membership: Membership, now_ms: int) -> None:
        expired: list[tuple[str, int]] = []
        for member in membership.members.values():
            session = (group, member.id)
            silent_ms = now_ms - self._heard_ms.setdefault(session, now_ms)
            if silent_ms >= member.session_timeout_ms and self._begin(session, now_ms):
                expired.append((member.id, silent_ms))
        if expired:
            work.commands.append(ExpireMembers(group, expired))

    def _add_moving(
        self, work: Work, group: int, membership: Membership, held: Holding, now_ms: int
    ) -> None:
        if held.state == HANDING:
            waiting = self._handed.get(group, {}).get(_short(held.partition))
            known = waiting is not None and waiting.generation >= held.generation
            naming = Naming(group, held.partition, held.member, held.generation, held.fence)
            if not known and self._begin(naming, now_ms):
                work.namings.append(naming)
            return
        member = membership.members[held.member]
        drain = Drain(group, held.partition, member.id)
        late = now_ms - held.since_ms >= member.rebalance_timeout_ms
        drained = drain in self._drained
        if late or drained:
            partition = _short(held.partition)
            if self._begin((group, member.id, partition), now_ms):
                self._drained.discard(drain)
                work.commands.append(LetGo(group, member.id, [partition], not drained))
        elif not member.lets_go and self._begin(drain, now_ms):
            work.drains.append(drain)

    def _add_handed(self, work: Work, group: int) -> None:
        handed = self._handed.get(group)
        if handed and (group, HandOver) not in self._busy:
            self._busy.add((group, HandOver))
            work.commands.append(HandOver(group, list(handed.values())))
            del self._handed[group]

    def _moving_wake_ms(
        self, group: int, membership: Membership, held: Holding, now_ms: int
    ) -> int:
        if held.state != REVOKING:
            naming = Naming(group, held.partition, held.member, held.generation, held.fence)
            return self._again_ms.get(naming, now_ms + AGAIN_MS)
        member = membership.members[held.member]
        deadline_ms = held.since_ms + member.rebalance_timeout_ms
        if member.lets_go:
            return deadline_ms
        drain = Drain(group, held.partition, member.id)
        return min(deadline_ms, self._again_ms.get(drain, now_ms + AGAIN_MS))

    def _begin(self, one: object, now_ms: int) -> bool:
        if one in self._busy or self._again_ms.get(one, now_ms) > now_ms:
            return False
        self._again_ms.pop(one, None)
        self._busy.add(one)
        return True

    def _end(self, one: object, now_ms: int, *, again: bool) -> None:
        self._busy.discard(one)
        if again:
            self._again_ms[one] = now_ms + AGAIN_MS

    def _forget(self, memberships: Mapping[int, Membership]) -> None:
        """What was about members and groups that are gone."""
        gone = [
            (group, member)
            for group, member in self._heard_ms
            if group not in memberships or member not in memberships[group].members
        ]
        for session in gone:
            del self._heard_ms[session]
        self._handed = {g: rows for g, rows in self._handed.items() if g in memberships}
        self._drained = {drain for drain in self._drained if drain.group in memberships}
        if len(self._again_ms) > RESTING_MAX:
            self._again_ms.clear()


def _short(partition: GroupId) -> Partition:
    return partition.topic.index, partition.partition

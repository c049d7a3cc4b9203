"""The coordinator's side of groups, where the cluster group is led: sessions, and partitions on
their way from one member to another.

It decides without I/O or clock, and remembers nothing that must survive: who is a member and who
has what is the cluster group's state, whose a partition is stands in the partition's own log. A new
leader begins with every session at its full length and does again what is not known to be done;
all of it may happen twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from coordinator.commands.members import (
    ExpireMembers,
    Handed,
    HandOver,
    LetGo,
    MemberCommand,
    Partition,
)
from coordinator.groups.holdings import HANDING, REVOKING, Holding, short
from coordinator.groups.membership import GroupMembership, Member
from goqueue.wire.types import PartitionId

T = TypeVar("T")

ROWS_MAX = 2000
"""Partitions, or members, that one command is about; the others follow."""
RESTING_MAX = 10_000
"""Of what failed; beyond it what has rested is forgotten."""
AGAIN_MS = 100
"""How soon what failed, or what a member still works on, is looked at again."""
DRAIN_SHARE, DRAIN_MS_MAX = 5, 2000
"""The longer a member works on, the later it is looked at again: after this share of the time."""


@dataclass(frozen=True, slots=True)
class Naming:
    """An owner entry that is to be put into a partition's log. See `delivery.entries.ops.Own`."""

    group: int
    partition: PartitionId
    member: str
    generation: int
    fence: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """A member that does not say itself when it has let go: how much it has in flight is asked.
    It was asked to let go at `since_ms`."""

    group: int
    partition: PartitionId
    member: str
    since_ms: int


@dataclass(slots=True)
class Work:
    """What is to be done now. Each part is told how it ended: `answered`, `named`, `drained`."""

    commands: list[MemberCommand] = field(default_factory=list["MemberCommand"])
    namings: list[Naming] = field(default_factory=list["Naming"])
    drains: list[Drain] = field(default_factory=list["Drain"])


class GroupCoordinator:
    """One leadership of the cluster group. `memberships` is its applied state."""

    def __init__(self, memberships: Callable[[], Mapping[int, GroupMembership]]) -> None:
        self._memberships = memberships
        self._heard_ms: dict[int, dict[str, int]] = {}
        self._handed: dict[int, dict[Partition, Handed]] = {}
        """What logs name, and the group's state does not know yet."""
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
        self._heard_ms.setdefault(group, {})[member] = now_ms
        return True

    def silent_ms(self, group: int, member: str, now_ms: int) -> int:
        """For how long a member was not heard of."""
        return now_ms - self._heard_ms.get(group, {}).get(member, now_ms)

    def collect(self, now_ms: int) -> Work:
        """What is to be done at this log time."""
        work = Work()
        memberships = self._memberships()
        self._forget(memberships, now_ms)
        for group, membership in memberships.items():
            self._add_expired(work, group, membership, now_ms)
            self._add_moving(work, group, membership, now_ms)
            self._add_handed(work, group, membership, now_ms)
        return work

    def answered(self, command: MemberCommand, now_ms: int, *, applied: bool) -> None:
        """A command has ended: applied, refused, or nobody knows."""
        again = not applied or isinstance(command, LetGo)  # which is refused where it is too early
        for one in _about(command):
            self._end(one, now_ms, again=again)
        if isinstance(command, HandOver) and applied:
            waiting = self._handed.get(command.group_id, {})
            for row in command.handed:
                if waiting.get(row.partition) == row:
                    del waiting[row.partition]

    def named(self, naming: Naming, owner: tuple[str, int, int] | None, now_ms: int) -> None:
        """Who the partition's log names after it, since when, and how many leases of others that
        ended; None where it is not known."""
        self._end(naming, now_ms, again=owner is None)
        if owner is not None:
            partition = short(naming.partition)
            rows = self._handed.setdefault(naming.group, {})
            known = rows.get(partition)
            if known is None or known.generation <= owner[1]:
                ended = owner[2]
                if known is not None and known.generation < owner[1]:
                    ended += known.ended
                rows[partition] = Handed(partition, owner[0], owner[1], ended)

    def drained(self, drain: Drain, in_flight: int | None, now_ms: int) -> None:
        """How much a member has in flight in a partition; None where it is not known."""
        waited_ms = now_ms - drain.since_ms
        pause_ms = max(AGAIN_MS, min(waited_ms // DRAIN_SHARE, DRAIN_MS_MAX))
        self._end(drain, now_ms, again=in_flight != 0, pause_ms=pause_ms)
        if in_flight == 0:
            self._drained.add(drain)

    def next_wake_ms(self, now_ms: int) -> int | None:
        """When `collect` may have something to do, though nothing has happened. What is on its way
        wakes nobody: its end does."""
        wakes: list[int] = []
        for group, membership in self._memberships().items():
            heard_ms = self._heard_ms.get(group, {})
            for id, member in membership.members.items():
                ends_ms = heard_ms.get(id, now_ms) + member.session_timeout_ms
                self._add_wake(wakes, (group, id), ends_ms)
            for held in membership.moving():
                self._add_moving_wakes(wakes, group, membership, held, now_ms)
            if any(self._news(group, membership)):
                self._add_wake(wakes, (group, HandOver), now_ms)
        return max(min(wakes), now_ms) if wakes else None

    # -- private

    def _add_expired(
        self, work: Work, group: int, membership: GroupMembership, now_ms: int
    ) -> None:
        expired: list[tuple[str, int]] = []
        heard_ms = self._heard_ms.setdefault(group, {})
        for id, member in membership.members.items():
            silent_ms = now_ms - heard_ms.setdefault(id, now_ms)
            if silent_ms >= member.session_timeout_ms and self._begin((group, id), now_ms):
                expired.append((id, silent_ms))
        if expired:
            work.commands += [ExpireMembers(group, part) for part in _parts(expired)]

    def _add_moving(self, work: Work, group: int, membership: GroupMembership, now_ms: int) -> None:
        let_go: dict[tuple[str, bool], list[Partition]] = {}
        for held in membership.moving():
            if held.state == HANDING:
                naming = _naming(group, held)
                if not self._is_named(group, held) and self._begin(naming, now_ms):
                    work.namings.append(naming)
                continue
            member, drain = membership.members[held.member], _drain(group, held)
            drained = drain in self._drained
            if drained or now_ms >= _ends_ms(held, member):
                partition = short(held.partition)
                if self._begin((group, member.id, partition), now_ms):
                    let_go.setdefault((member.id, not drained), []).append(partition)
            elif not member.lets_go and self._begin(drain, now_ms):
                work.drains.append(drain)
        for (id, fence), partitions in let_go.items():
            work.commands += [LetGo(group, id, part, fence) for part in _parts(partitions)]

    def _add_handed(self, work: Work, group: int, membership: GroupMembership, now_ms: int) -> None:
        waiting = self._handed.get(group, {})
        moving = membership.holdings.moving
        handing = {short(p) for p in moving if moving[p].state == HANDING} if waiting else ()
        for partition in [p for p in waiting if p not in handing]:
            del waiting[partition]
        news = list(islice(self._news(group, membership), ROWS_MAX))
        if news and self._begin((group, HandOver), now_ms):
            work.commands.append(HandOver(group, news))

    def _news(self, group: int, membership: GroupMembership) -> Iterator[Handed]:
        """Those that the group's state waits for. What was redirected meanwhile is kept for what it
        ended: that counts for the owner who is named next."""
        rows = self._handed.get(group, {})
        return (row for row in rows.values() if _is_news(membership, row))

    def _add_moving_wakes(
        self, wakes: list[int], group: int, membership: GroupMembership, held: Holding, now_ms: int
    ) -> None:
        if held.state == HANDING:
            if not self._is_named(group, held):
                self._add_wake(wakes, _naming(group, held), now_ms)
            return
        member, drain = membership.members[held.member], _drain(group, held)
        let_go = (group, member.id, short(held.partition))
        if drain in self._drained:
            self._add_wake(wakes, let_go, now_ms)
            return
        self._add_wake(wakes, let_go, _ends_ms(held, member))
        if not member.lets_go and now_ms < _ends_ms(held, member):
            self._add_wake(wakes, drain, now_ms)

    def _add_wake(self, wakes: list[int], one: object, at_ms: int) -> None:
        if one not in self._busy:
            wakes.append(max(at_ms, self._again_ms.get(one, at_ms)))

    def _is_named(self, group: int, held: Holding) -> bool:
        """Whether a log is known to name an owner who is not older; the state is told so next."""
        row = self._handed.get(group, {}).get(short(held.partition))
        return row is not None and row.generation >= held.generation

    def _begin(self, one: object, now_ms: int) -> bool:
        if one in self._busy or self._again_ms.get(one, now_ms) > now_ms:
            return False
        self._again_ms.pop(one, None)
        self._busy.add(one)
        return True

    def _end(self, one: object, now_ms: int, *, again: bool, pause_ms: int = AGAIN_MS) -> None:
        self._busy.discard(one)
        if again:
            self._again_ms[one] = now_ms + pause_ms

    def _forget(self, memberships: Mapping[int, GroupMembership], now_ms: int) -> None:
        """What was about members and groups that are gone, or partitions that moved on."""
        for group in [group for group in self._heard_ms if group not in memberships]:
            del self._heard_ms[group]
        for group, heard_ms in self._heard_ms.items():
            members = memberships[group].members
            if heard_ms.keys() - members.keys():
                self._heard_ms[group] = {m: at for m, at in heard_ms.items() if m in members}
        self._handed = {g: rows for g, rows in self._handed.items() if g in memberships and rows}
        self._drained = {drain for drain in self._drained if _is_asked(memberships, drain)}
        if len(self._again_ms) > RESTING_MAX:
            self._again_ms = {one: at for one, at in self._again_ms.items() if at > now_ms}


def _about(command: MemberCommand) -> Sequence[object]:
    """What a command is to bring about, as `_busy` knows it."""
    match command:
        case ExpireMembers():
            return [(command.group_id, id) for id, _ in command.members]
        case LetGo():
            return [(command.group_id, command.member, p) for p in command.partitions]
        case HandOver():
            return [(command.group_id, HandOver)]
        case _:
            return []


def _parts(rows: list[T]) -> list[list[T]]:
    return [rows[at : at + ROWS_MAX] for at in range(0, len(rows), ROWS_MAX)]


def _naming(group: int, held: Holding) -> Naming:
    return Naming(group, held.partition, held.member, held.generation, held.fence)


def _drain(group: int, held: Holding) -> Drain:
    return Drain(group, held.partition, held.member, held.since_ms)


def _ends_ms(held: Holding, member: Member) -> int:
    """When a member's time to let go is over."""
    return held.since_ms + member.rebalance_timeout_ms


def _is_news(membership: GroupMembership, row: Handed) -> bool:
    """Whether the group's state waits for what a log names."""
    held = membership.holdings.named(row.partition)
    return held is not None and held.state == HANDING and row.generation >= held.generation


def _is_asked(memberships: Mapping[int, GroupMembership], drain: Drain) -> bool:
    """Whether the member is still being asked to let go."""
    membership = memberships.get(drain.group)
    held = None if membership is None else membership.holdings.get(drain.partition)
    return held is not None and held.state == REVOKING and _drain(drain.group, held) == drain

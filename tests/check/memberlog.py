"""Judges the members of groups by the cluster group's log: every command, with what it came to.

G1   a partition is a member's only after an entry of its own log has named it; it is taken only
     from who let go of it or is gone; generations only grow
G4   a partition whose owner stays is not touched; assignment is sticky: a join moves at most a
     fair share, a leave only what the leaver had
G5   what a dead member had is somebody else's soon after its session has ended
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from coordinator.commands.codec import Command
from coordinator.commands.members import ExpireMembers, JoinGroup, LeaveGroup, LetGo
from coordinator.groups.membership import HANDING, OWNED, GroupMembership, Holding, Member
from goqueue.wire.types import PartitionId

Broken = Callable[[str, str], None]
Owners = Callable[[int, PartitionId], Iterable[tuple[str, int]]]
"""(member, generation) of all owner entries that a partition's log has for a group."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A membership as of one entry."""

    generation: int
    members: Mapping[str, Member]
    target: Mapping[PartitionId, str]
    holdings: Mapping[PartitionId, Holding]


@dataclass(slots=True)
class _Death:
    member: str
    partition: PartitionId
    until_s: float


class MemberLog:
    """What the cluster group has decided; `broken(rule, text)` is called for all that is wrong."""

    def __init__(self, broken: Broken, owners: Owners) -> None:
        self._broken = broken
        self._owners = owners
        self._seen: dict[int, _Seen] = {}
        self._deaths: dict[int, list[_Death]] = {}
        self.moved = 0
        """Partitions that changed hands."""

    def applied(
        self,
        command: Command,
        memberships: Mapping[int, GroupMembership],
        sticky: Callable[[int], bool],
        now_s: float,
    ) -> None:
        """A command has applied, refused or not; `sticky(group)` tells how it assigns."""
        for group, membership in memberships.items():
            after = _Seen(
                membership.generation,
                dict(membership.members),
                dict(membership.target),
                dict(membership.holdings),
            )
            before = self._seen.get(group, _Seen(0, {}, {}, {}))
            if after == before:
                continue
            self._seen[group] = after
            if after.generation < before.generation:
                self._broken("G1", f"generation {before.generation} became {after.generation}")
            for partition in sorted({*before.holdings, *after.holdings}):
                self._judge_holding(group, command, partition, before, after, now_s)
            if sticky(group):
                self._judge_moves(command, before, after)

    def told(
        self, group: int, member: str, generation: int, assigned: Iterable[PartitionId]
    ) -> None:
        """A member is told that these are its own."""
        for partition in assigned:
            known = self._owners(group, partition)
            if not any(who == member and since <= generation for who, since in known):
                told = f"{member} was told in {generation} that {partition} is its own"
                self._broken("G1", f"{told}, and its log does not say so")

    def died(self, group: int, member: str, until_s: float) -> None:
        """A member is dead, and nothing hinders: by then all it has is somebody else's."""
        seen = self._seen.get(group)
        for partition, held in sorted(seen.holdings.items()) if seen else ():
            if held.member == member and held.state != HANDING:
                death = _Death(member, partition, until_s)
                self._deaths.setdefault(group, []).append(death)

    def overdue(self, now_s: float) -> None:
        """Judge the dead whose partitions should be somebody else's by now."""
        for group, deaths in self._deaths.items():
            for death in [death for death in deaths if death.until_s < now_s]:
                deaths.remove(death)
                told = f"{death.partition} of {death.member}, which died"
                self._broken("G5", f"{told}, is nobody else's yet in group {group}")

    # -- private

    def _judge_holding(
        self,
        group: int,
        command: Command,
        partition: PartitionId,
        before: _Seen,
        after: _Seen,
        now_s: float,
    ) -> None:
        was, held = before.holdings.get(partition), after.holdings.get(partition)
        told = f"{partition} of group {group}"
        if held is not None and was is not None and held.generation < was.generation:
            self._broken("G1", f"{told}: generation {was.generation} became {held.generation}")
        if held is not None and held.state == OWNED and not _is_same(was, held):
            self._arrived(group, held, told, now_s)
        if was is None or was.state == HANDING:
            return
        if held is None or (held.state == HANDING or held.member != was.member):
            self._judge_loss(command, was, held, after, told)
        elif after.target.get(partition) == was.member and was.state == OWNED and held != was:
            self._broken("G4", f"{told} stays {was.member}'s, and became {held.state}")

    def _arrived(self, group: int, held: Holding, told: str, now_s: float) -> None:
        self.moved += 1
        if (held.member, held.generation) not in self._owners(group, held.partition):
            owner = f"{held.member}'s in {held.generation}"
            self._broken("G1", f"{told} became {owner}, and its log does not say so")
        deaths = self._deaths.get(group, [])
        for death in [death for death in deaths if death.partition == held.partition]:
            deaths.remove(death)
            if now_s > death.until_s:
                late_s = now_s - death.until_s
                self._broken("G5", f"{told}: {death.member}'s death was noticed {late_s:.2f} late")

    def _judge_loss(
        self, command: Command, was: Holding, held: Holding | None, after: _Seen, told: str
    ) -> None:
        """Who had it has let go of it, or is gone; or else the topic is."""
        if held is None:
            return
        if was.member not in after.members:
            fenced = not isinstance(command, LeaveGroup)
            if held.fence != fenced:
                self._broken("G1", f"{told}: {was.member} is gone, and is fenced: {held.fence}")
            return
        short = (was.partition.topic.index, was.partition.partition)
        let_go = isinstance(command, LetGo) and command.member == was.member
        if not let_go or short not in map(tuple, command.partitions) or was.state == OWNED:  # type: ignore[union-attr]
            self._broken("G1", f"{told} was taken from {was.member}, which had not let go")

    def _judge_moves(self, command: Command, before: _Seen, after: _Seen) -> None:
        subscriptions = [(m.topics, m.patterns) for m in (*before.members.values(),
                                                          *after.members.values())]  # fmt: skip
        if not subscriptions or any(one != subscriptions[0] for one in subscriptions):
            return
        moved = [p for p, who in after.target.items() if before.target.get(p, who) != who]
        if isinstance(command, JoinGroup) and len(after.members) > len(before.members):
            most = -(-len(after.target) // len(after.members))
            if len(moved) > most:
                self._broken("G4", f"a join moved {len(moved)} partitions, {most} are enough")
        elif isinstance(command, LeaveGroup | ExpireMembers):
            taken = [p for p in moved if before.target[p] in after.members]
            kept = [p for p in moved if p not in taken and _stays(before, after, p)]
            if len(taken) > len(kept):
                self._broken("G4", f"a leave took {taken} from who stays, and left {kept}")


def _stays(before: _Seen, after: _Seen, partition: PartitionId) -> bool:
    """Whether who was to let go of it for the leaver keeps it instead."""
    held = before.holdings.get(partition)
    return held is not None and held.member == after.target.get(partition)


def _is_same(was: Holding | None, held: Holding) -> bool:
    if was is None or was.state == HANDING:
        return False
    return (was.member, was.generation) == (held.member, held.generation)

"""Bugs of groups with members: in what the cluster group decides, in who coordinates, and in what
owner entries do."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from coordinator.commands.members import ExpireMembers, Handed
from coordinator.groups.coordinator import GroupCoordinator, Naming, Work
from coordinator.groups.membership import (
    HANDING,
    OWNED,
    REVOKING,
    GroupMembership,
    Member,
    MemberView,
    Topics,
)
from coordinator.groups.settings import Group
from delivery.entries.ops import (
    FORCED,
    Delivered,
    Granted,
    Own,
    OwnedResult,
    Result,
    Settled,
    StaleResult,
)
from delivery.group.operations import GroupOperations
from delivery.group.state import GroupState, Owner
from delivery.leader.dispatcher import Dispatcher, Proposal
from delivery.state.queue import QueueState
from goqueue.wire.types import PartitionId
from tests.sim.queue_mutants import Altered

# -- in the cluster group


class GivenBeforeReleased(GroupMembership):
    """A member is told what it should have, whoever still has it."""

    def view(self, id: str, group: Group, topics: Topics) -> MemberView:
        told = super().view(id, group, topics)
        mine = [p for p, who in self.target.items() if who == id and p in self.holdings]
        assigned = sorted((self.holdings[p].topic, p.partition) for p in mine)
        return dataclasses.replace(told, assigned=assigned, revision=f"{told.revision}-")


class TakenUnasked(GroupMembership):
    """What somebody else should have is taken from its owner at once."""

    def _direct(self, partition: PartitionId, topic: str, now_ms: int, redirected: bool) -> None:
        super()._direct(partition, topic, now_ms, redirected)
        held = self.holdings.get(partition)
        if held is not None and held.state == REVOKING:
            self._hand(held, now_ms, fence=False)


class ExpiryIsHandover(GroupMembership):
    """What an expired member had is another's without an entry of the partition's own."""

    def expire(self, command: ExpireMembers, now_ms: int, group: Group, topics: Topics) -> None:
        super().expire(command, now_ms, group, topics)
        for held in list(self.holdings.values()):
            if held.state == HANDING and held.member:
                self._arrived(held, 0, now_ms)


class StaticNotFenced(GroupMembership):
    """A static member that restarts takes its partitions over by name only."""

    def _replace(self, old: Member, new: Member, now_ms: int) -> Member:
        kept = self.holdings.of(old.id)
        found = super()._replace(old, new, now_ms)
        for held in kept:
            self.holdings.put(dataclasses.replace(held, member=new.id))
        return found


class StopsTheWorld(GroupMembership):
    """Every rebalance takes all partitions back first."""

    def _rebalance(
        self, cause: str, members: list[str], now_ms: int, group: Group, topics: Topics
    ) -> None:
        super()._rebalance(cause, members, now_ms, group, topics)
        for held in list(self.holdings.values()):
            if held.state == OWNED:
                asked = dataclasses.replace(held, state=REVOKING, since_ms=now_ms)
                self.holdings.put(asked)


class NotSticky(GroupMembership):
    """Nobody remembers who had what."""

    def _current(self) -> dict[PartitionId, str]:
        return {}


class DeadNotFenced(GroupMembership):
    """A dead member's messages are given back as if they had not been delivered."""

    def _forget(self, id: str, since_ms: int, *, fence: bool) -> None:
        super()._forget(id, since_ms, fence=False)


class AnyOwnerWillDo(GroupMembership):
    """A partition whose log names anybody is taken to be handed over."""

    def handed(self, rows: Iterable[Handed], now_ms: int) -> None:
        believed = []
        for row in rows:
            held = self.holdings.named(row.partition)
            if held is not None:
                believed.append(Handed(row.partition, held.member, held.generation, row.ended))
        super().handed(believed, now_ms)


# -- where it is coordinated


class SessionsNotRenewed(GroupCoordinator):
    """A new leader takes members to have been silent since they joined."""

    def collect(self, now_ms: int) -> Work:
        for group, membership in self._memberships().items():
            for member in membership.members.values():
                heard_ms = self._heard_ms.setdefault(group, {})
                heard_ms.setdefault(member.id, member.joined_ms)
        return super().collect(now_ms)


class HeartbeatsIgnored(GroupCoordinator):
    """Only a join is a sign of life."""

    def heard(self, group: int, member: str, now_ms: int) -> bool:
        known = super().heard(group, member, now_ms)
        membership = self._memberships().get(group)
        if known and membership is not None:
            self._heard_ms[group][member] = membership.members[member].joined_ms
        return known


class NamingsGivenUp(GroupCoordinator):
    """An owner entry whose outcome is not known is taken to be there."""

    def named(self, naming: Naming, owner: tuple[str, int, int] | None, now_ms: int) -> None:
        super().named(naming, owner or (naming.member, naming.generation, 0), now_ms)


# -- in the partitions' logs


class _SettlesOfAnybody(GroupOperations):
    """What is in flight stays so, whoever owns the partition, and is settled by whoever has it."""

    def own(self, op: Own, index: int, now_ms: int) -> OwnedResult:
        owner = self.group.owner
        if op.generation <= owner.generation:
            return OwnedResult(owner.member, owner.generation)
        moves = op.member != owner.member
        ended = self.group.leases.of_others(op.member) if moves else []
        self.group.owner = Owner(op.member, op.generation, index if moves else owner.since)
        return OwnedResult(op.member, op.generation, len(ended))

    def settle(self, op: Settled, now_ms: int) -> Any:
        return super().settle(msgspec.structs.replace(op, generation=0), now_ms)


class SettleUnchecked(Altered):
    operations_type = _SettlesOfAnybody


class _DeliversToAnybody(GroupOperations):
    def deliver(self, op: Delivered, delivery: int, now_ms: int) -> Granted | StaleResult:
        return super().deliver(msgspec.structs.replace(op, generation=FORCED), delivery, now_ms)


class ReceiveUnchecked(Altered):
    """Whoever asks is given messages: nobody looks whose the partition is."""

    operations_type = _DeliversToAnybody


class RefusesNobody(Dispatcher[Any]):
    """The leader's part of it."""

    @staticmethod
    def _refuse_strangers(proposal: Proposal[Any], group: GroupState, queued: deque[Any]) -> None:
        return None


class _CommitsOfAnybody(GroupOperations):
    def commit(self, op: Any) -> Any:
        return super().commit(msgspec.structs.replace(op, generation=FORCED))


class CommitUnchecked(Altered):
    operations_type = _CommitsOfAnybody


class _WantsTheVeryGeneration(GroupState):
    """An owner whose partition has not moved is refused, once it knows of a rebalance."""

    def is_owned_by(self, member: str, generation: int) -> bool:
        owned = super().is_owned_by(member, generation)
        return owned and generation in (FORCED, self.owner.generation * bool(self.owner.member))


class VeryGeneration(Altered):
    group_type = _WantsTheVeryGeneration


class HoldsWhatIsOld(Dispatcher[Any]):
    """Members are given what has just been published, and wait for the rest."""

    def _deliver(
        self, proposal: Proposal[Any], group: GroupState, queued: deque[Any], now_ms: int
    ) -> None:
        if self._state.time_ms > now_ms - 100 or not group.owner.member:
            super()._deliver(proposal, group, queued, now_ms)


class _TakesOlderOwners(GroupOperations):
    """The owner is whom the last entry names, though it be older."""

    def own(self, op: Own, index: int, now_ms: int) -> OwnedResult:
        older = op.generation < self.group.owner.generation
        if older:
            self.group.owner = dataclasses.replace(self.group.owner, generation=op.generation - 1)
        return super().own(op, index, now_ms)


class OlderOwners(Altered):
    operations_type = _TakesOlderOwners


class _IgnoresOwners(GroupOperations):
    """An owner entry is answered, and changes nothing."""

    def own(self, op: Own, index: int, now_ms: int) -> OwnedResult:
        return OwnedResult(op.member, op.generation)


class OwnersIgnored(Altered):
    operations_type = _IgnoresOwners


class OwnersNotInSnapshot(Altered):
    """Who restarts from a snapshot knows no owners."""

    def restore(self, state: bytes) -> None:
        super().restore(state)
        for group in self.queue.groups.values():
            group.owner = Owner()


class _GrantsOnce(QueueState):
    """A receive that comes again is granted what it was, whoever owns the partition by now."""

    def _is_overtaken(self, op: Any, known: Result) -> bool:
        return False


class FormerGrantsRepeated(Altered):
    queue_type = _GrantsOnce

"""Who is in a group, and which of its partitions each member has.

A rebalance only decides who *should* have what (`target`). Each partition goes there by itself, and
those that stay are never touched:

    owned by A  ->  revoking: A is asked to let go  ->  handing: nobody's, B is being named in the
    partition's own log  ->  owned by B

A partition leaves `revoking` when A says so, when A is gone, or when A's time is over. It is B's
only once an owner entry has committed in the partition's log, which fences whoever had it before.
Every owner entry has a generation of its own, so one that comes late is ignored there.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from coordinator.commands.members import ExpireMembers, Handed, JoinGroup, LetGo
from coordinator.errors import ClusterFull
from coordinator.groups.assignors import ASSIGNORS
from coordinator.groups.holdings import HANDING, OWNED, REVOKING, Holding, Holdings, in_order
from coordinator.groups.rebalances import (
    EXPIRY,
    JOIN,
    LEAVE,
    SUBSCRIPTION,
    Move,
    Rebalance,
    Rebalances,
    RebalanceTotals,
)
from coordinator.groups.settings import Group
from coordinator.groups.subscriptions import Matched, Patterns, Subscribed, Subscription, Topics
from goqueue.wire.errors import UnknownMember
from goqueue.wire.types import PartitionId, TopicId

__all__ = [
    "HANDING",
    "OWNED",
    "REVOKING",
    "SHARED",
    "GroupMembership",
    "Holding",
    "Member",
    "MemberView",
    "MembershipRecord",
    "Topics",
]

MEMBERS_MAX = 1000
SUBSCRIPTIONS_MAX = 20
"""Different ones in a group; two are enough to change them one member after the other."""
REPLACED_MAX = 10
"""Ids of its predecessors that a static member has; older ones are unknown like any other."""
SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer in a group. See `JoinGroup`; timeouts are what holds for it."""

    id: str
    client_id: str
    instance_id: str
    host: str
    topics: tuple[str, ...]
    patterns: tuple[str, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    lets_go: bool
    joined_ms: int
    replaced: tuple[str, ...] = ()
    """Whose place it took, by its instance id; the newest last."""

    @property
    def subscription(self) -> Subscription:
        return self.topics, self.patterns

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.topics or any(fnmatchcase(topic, p) for p in self.patterns)


@dataclass(frozen=True, slots=True)
class MemberView:
    """What a member is told: what it has, and what it is to let go of by which time.

    `revision` differs whenever anything else does.
    """

    generation: int
    assigned: Sequence[tuple[str, int]]
    revoking: Sequence[tuple[str, int]]
    deadline_ms: int
    revision: str


@dataclass(frozen=True, slots=True)
class MembershipRecord:
    """A membership in a snapshot."""

    group_id: int
    generation: int
    members: list[Member]
    target: list[tuple[PartitionId, str]]
    holdings: list[Holding]
    rebalances: list[Rebalance] = field(default_factory=list[Rebalance])
    totals: RebalanceTotals = field(default_factory=RebalanceTotals)


class GroupMembership:
    """The members of one group."""

    def __init__(self, record: MembershipRecord, patterns: Patterns | None = None) -> None:
        self.group_id = record.group_id
        self.generation = record.generation
        self.members = {member.id: member for member in record.members}
        self.target = dict(record.target)
        self.holdings = Holdings(record.holdings)
        self.rebalances = Rebalances(record.rebalances, record.totals)
        self._subscribed = Subscribed(patterns or Patterns())

    @classmethod
    def of(cls, group_id: int, patterns: Patterns | None = None) -> GroupMembership:
        """A group without members."""
        return cls(MembershipRecord(group_id, 0, [], [], []), patterns)

    def dump(self) -> MembershipRecord:
        """Equal wherever the same commands were applied."""
        return MembershipRecord(
            self.group_id,
            self.generation,
            list(self.members.values()),
            [(partition, self.target[partition]) for partition in in_order(self.target)],
            self.holdings.in_order(),
            self.rebalances.known,
            self.rebalances.totals,
        )

    # -- what is asked

    def member(self, group: str, id: str) -> Member:
        """Raises UnknownMember."""
        member = self.members.get(id)
        if member is None:
            replaced = any(id in known.replaced for known in self.members.values())
            raise UnknownMember(group, id, replaced=replaced)
        return member

    @property
    def state(self) -> str:
        """`empty`, `rebalancing` or `stable`."""
        if self.holdings.moving:
            return "rebalancing"
        return "stable" if self.members else "empty"

    @property
    def leader(self) -> str:
        """The member that has been here longest; it decides nothing."""
        return next(iter(self.members), "")

    def view(self, id: str, group: Group, topics: Topics) -> MemberView:
        """Raises UnknownMember."""
        member = self.member(group.name, id)
        if group.settings.mode == SHARED:
            matched = self._subscribed.matched(member.subscription, topics)
            assigned = [(name, number) for name, _, count in matched for number in range(count)]
            return _view(self.generation, assigned, [], 0)
        held = self.holdings.of(id)
        revoking = [h for h in held if h.state == REVOKING]
        deadline_ms = min((h.since_ms + member.rebalance_timeout_ms for h in revoking), default=0)
        return _view(
            self.generation,
            sorted((h.topic, h.partition.partition) for h in held if h.state == OWNED),
            sorted((h.topic, h.partition.partition) for h in revoking),
            deadline_ms,
        )

    def moving(self) -> Iterable[Holding]:
        """Partitions that are not where they should be yet."""
        return self.holdings.moving.values()

    def subscriptions(self) -> set[Subscription]:
        """What members subscribe to, each way once."""
        return {member.subscription for member in self.members.values()}

    def subscribes_to(self, topic: str) -> bool:
        """Whether any member does."""
        subscriptions = {member.subscription: member for member in self.members.values()}
        return any(member.subscribes_to(topic) for member in subscriptions.values())

    def is_concerned(self, topics: Sequence[str]) -> bool:
        """Whether any of these topics, which came or went, is subscribed to or being given up."""
        leaving = {held.topic for held in self.moving()}
        return any(topic in leaving or self.subscribes_to(topic) for topic in topics)

    def wanted_after(self, command: JoinGroup, topics: Topics) -> int:
        """How many partitions the group will have when the command has joined it."""
        counts = self._matched_by_members(topics)
        matched = self._subscribed.match(_subscription(command), topics)
        return sum({**counts, **{id: count for _, id, count in matched}}.values())

    # -- what happens

    def join(self, command: JoinGroup, now_ms: int, group: Group, topics: Topics) -> None:
        """A member that is known subscribes to these topics from now on.

        Raises ClusterFull, UnknownMember for one whose place was taken by its instance id.
        """
        known = self.members.get(command.member)
        if known is None:
            self._check_new(command.member, group)
        member = _member(command, known, group, now_ms)
        if member == known:
            return
        replaced = self._replaced_by(member)
        before = [one for one in (known, replaced) if one is not None]
        if not before and len(self.members) >= MEMBERS_MAX:
            raise ClusterFull(f"group {group.name} has {MEMBERS_MAX} members already")
        self._check_subscriptions(member, group)
        if replaced is not None:
            member = self._replace(replaced, member, now_ms)
        self.members[member.id] = member
        if [one.subscription for one in before] == [member.subscription]:
            return
        self._forget_subscriptions(before)
        cause = SUBSCRIPTION if before else JOIN
        self._rebalance(cause, [member.id], now_ms, group, topics)

    def leave(self, id: str, now_ms: int, group: Group, topics: Topics) -> None:
        """Raises UnknownMember. What it still has is taken back as if it had not been delivered."""
        self.member(group.name, id)
        self._forget(id, now_ms, fence=False)
        self._forget_targets()
        self._rebalance(LEAVE, [id], now_ms, group, topics)

    def expire(self, command: ExpireMembers, now_ms: int, group: Group, topics: Topics) -> None:
        """What they had in flight counts as failed; those that are gone already are left out."""
        silent = {id: silent_ms for id, silent_ms in command.members if id in self.members}
        for id, silent_ms in silent.items():
            self._forget(id, now_ms - max(0, silent_ms), fence=True)
        if silent:
            self._forget_targets()
            self._rebalance(EXPIRY, list(silent), now_ms, group, topics)

    def let_go(self, command: LetGo, now_ms: int) -> None:
        """Partitions that the member was not asked for are left out, and those to be fenced whose
        time is not over: they were asked for anew since."""
        timeout_ms = self.members[command.member].rebalance_timeout_ms if command.fence else 0
        for partition in dict.fromkeys((topic, number) for topic, number in command.partitions):
            held = self.holdings.named(partition)
            if held is None or held.state != REVOKING or held.member != command.member:
                continue
            if now_ms - held.since_ms >= timeout_ms:
                self._hand(held, held.since_ms, fence=command.fence)
        self._settle_rebalances(now_ms)

    def handed(self, rows: Iterable[Handed], now_ms: int) -> None:
        """Partitions whose log names an owner. One that names somebody else, in a generation that
        is not older, is handed over again in a newer one."""
        for row in rows:
            held = self.holdings.named(row.partition)
            if held is None or held.state != HANDING:
                continue
            if (row.member, row.generation) == (held.member, held.generation):
                self._arrived(held, row.ended, now_ms)
            elif row.generation >= held.generation:
                self.generation = max(self.generation, row.generation) + 1
                self.holdings.put(dataclasses.replace(held, generation=self.generation))
        self._settle_rebalances(now_ms)

    def topics_changed(self, cause: str, now_ms: int, group: Group, topics: Topics) -> None:
        """Topics came or went, or grew: where that concerns the members, they share anew."""
        alive = {id for id, _count in topics.values()}
        for partition in [p for p in self.holdings if p.topic not in alive]:
            self.holdings.drop(partition)
        if set(self._wanted(topics)) != self.target.keys():
            self._rebalance(cause, [], now_ms, group, topics)
        self._settle_rebalances(now_ms)

    # -- private

    def _check_new(self, id: str, group: Group) -> None:
        if any(id in known.replaced for known in self.members.values()):
            raise UnknownMember(group.name, id, replaced=True)

    def _check_subscriptions(self, member: Member, group: Group) -> None:
        known = {one.subscription for one in self.members.values() if one.id != member.id}
        if len(known) >= SUBSCRIPTIONS_MAX and member.subscription not in known:
            raise ClusterFull(
                f"members of group {group.name} subscribe to topics in {SUBSCRIPTIONS_MAX} "
                "different ways already"
            )

    def _forget_subscriptions(self, before: Iterable[Member]) -> None:
        for member in before:
            self._subscribed.forget(member.subscription)

    def _matched(self, subscription: Subscription, topics: Topics) -> Matched:
        return self._subscribed.matched(subscription, topics)

    def _matched_by_members(self, topics: Topics) -> dict[TopicId, int]:
        """How many partitions each topic has that anybody subscribes to."""
        return {
            id: count
            for subscription in {member.subscription for member in self.members.values()}
            for _, id, count in self._matched(subscription, topics)
        }

    def _wanted(self, topics: Topics) -> list[PartitionId]:
        """All partitions that anybody subscribes to, in order."""
        counts = self._matched_by_members(topics)
        return [PartitionId(id, number) for id in sorted(counts) for number in range(counts[id])]

    def _rebalance(
        self, cause: str, members: list[str], now_ms: int, group: Group, topics: Topics
    ) -> None:
        self.generation += 1
        names = {id: name for name, (id, _count) in topics.items()}
        wanted, before = self._wanted(topics), self.target
        if group.settings.mode == SHARED:
            self.target = dict.fromkeys(wanted, "")
        else:
            alike: dict[Subscription, frozenset[TopicId]] = {}
            for subscription in {member.subscription for member in self.members.values()}:
                matched = self._matched(subscription, topics)
                alike[subscription] = frozenset(id for _, id, _ in matched)
            may_have = {id: alike[member.subscription] for id, member in self.members.items()}
            self.target = ASSIGNORS[group.settings.assignor](may_have, wanted, self._current())
        self.rebalances.begin(self.generation, cause, members, now_ms)
        for partition in in_order({*self.target, *self.holdings}):
            held = self.holdings.get(partition)
            redirected = self.target.get(partition, "") != before.get(partition, "")
            if held is None or held.state != OWNED or redirected:
                self._direct(partition, names.get(partition.topic, ""), now_ms, redirected)
        self._settle_rebalances(now_ms)

    def _current(self) -> dict[PartitionId, str]:
        """Who has what, or is about to: what sticky assignment sticks to."""
        return {
            partition: self.target.get(partition, held.member)
            for partition, held in self.holdings.items()
        }

    def _direct(self, partition: PartitionId, topic: str, now_ms: int, redirected: bool) -> None:
        """Begin, redirect or call off a partition's move."""
        wanted, id = self.target.get(partition, ""), self.generation
        held = self.holdings.get(partition)
        if held is None:
            if wanted:
                fresh = Holding(partition, topic, HANDING, wanted, id, now_ms, rebalance=id)
                self.holdings.put(fresh)
        elif held.state == HANDING:
            if held.member != wanted or held.generation == 0:
                changed = dataclasses.replace(held, member=wanted, generation=id, rebalance=id)
                self.holdings.put(changed)
        elif held.member == wanted:
            if held.state == REVOKING:
                self.holdings.put(dataclasses.replace(held, state=OWNED, rebalance=0))
        elif held.state == OWNED:
            asked = dataclasses.replace(held, state=REVOKING, since_ms=now_ms, rebalance=id)
            self.holdings.put(asked)
        elif redirected:
            self.holdings.put(dataclasses.replace(held, rebalance=id))

    def _hand(self, held: Holding, since_ms: int, *, fence: bool) -> None:
        """The partition is nobody's: whoever should have it is named in its log next."""
        self.holdings.put(
            dataclasses.replace(
                held,
                state=HANDING,
                member=self.target.get(held.partition, ""),
                generation=self.generation,
                since_ms=since_ms,
                former=held.member,
                fence=fence,
            )
        )

    def _forget(self, id: str, since_ms: int, *, fence: bool) -> None:
        """A member is gone. Its partitions, and those it was about to get, go to nobody until the
        rebalance that follows names somebody."""
        self._forget_subscriptions([self.members.pop(id)])
        for held in self.holdings.of(id):
            if held.state != HANDING:
                paused_ms = held.since_ms if held.state == REVOKING else since_ms
                self._hand(held, paused_ms, fence=fence)
            freed = self.holdings[held.partition]
            self.holdings.put(dataclasses.replace(freed, member="", generation=0))

    def _forget_targets(self) -> None:
        """Of members that are gone."""
        self.target = {p: who for p, who in self.target.items() if who in self.members or not who}

    def _replaced_by(self, member: Member) -> Member | None:
        if not member.instance_id:
            return None
        return next(
            (
                known
                for known in self.members.values()
                if known.instance_id == member.instance_id and known.id != member.id
            ),
            None,
        )

    def _replace(self, old: Member, new: Member, now_ms: int) -> Member:
        """A static member has restarted: the same partitions, and nobody else's change hands."""
        self.generation += 1
        gone = (*new.replaced, *old.replaced, old.id)
        new = dataclasses.replace(new, replaced=gone[-REPLACED_MAX:])
        members = {id: known for id, known in self.members.items() if id != new.id}
        self.members = {
            (new.id if id == old.id else id): (new if id == old.id else known)
            for id, known in members.items()
        }
        self.target = {p: new.id if who == old.id else who for p, who in self.target.items()}
        for held in self.holdings.of(old.id):
            if held.state == HANDING:
                taken = dataclasses.replace(held, member=new.id, generation=self.generation)
                self.holdings.put(taken)
            else:
                since_ms = held.since_ms if held.state == REVOKING else now_ms
                self._hand(held, since_ms, fence=True)
        return new

    def _arrived(self, held: Holding, ended: int, now_ms: int) -> None:
        move = Move(
            held.topic,
            held.partition.partition,
            held.former,
            held.member,
            max(0, now_ms - held.since_ms),
            ended,
            held.fence,
        )
        self.rebalances.moved(held.rebalance, move)
        if held.member:
            owned = Holding(held.partition, held.topic, OWNED, held.member, held.generation, now_ms)
            self.holdings.put(owned)
        else:
            self.holdings.drop(held.partition)

    def _settle_rebalances(self, now_ms: int) -> None:
        running = {held.rebalance for held in self.moving()}
        self.rebalances.end_all_but(running, now_ms)


def _member(command: JoinGroup, known: Member | None, group: Group, now_ms: int) -> Member:
    settings = group.settings
    return Member(
        command.member,
        command.client_id,
        command.instance_id,
        command.host,
        *_subscription(command),
        command.session_timeout_ms or settings.session_timeout_ms,
        command.rebalance_timeout_ms or settings.rebalance_timeout_ms,
        command.lets_go,
        now_ms if known is None else known.joined_ms,
        () if known is None else known.replaced,
    )


def _subscription(command: JoinGroup) -> Subscription:
    return tuple(sorted(set(command.topics))), tuple(sorted(set(command.patterns)))


def _view(
    generation: int,
    assigned: Sequence[tuple[str, int]],
    revoking: Sequence[tuple[str, int]],
    deadline_ms: int,
) -> MemberView:
    told = repr((assigned, revoking)).encode()
    revision = f"{generation}-{zlib.crc32(told):08x}"
    return MemberView(generation, assigned, revoking, deadline_ms, revision)

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from coordinator.assignors import ASSIGNORS
from coordinator.errors import ClusterFull
from coordinator.groups import Group
from coordinator.member_commands import ExpireMembers, Handed, JoinGroup, LetGo, Partition
from coordinator.rebalances import (
    EXPIRY,
    JOIN,
    LEAVE,
    SUBSCRIPTION,
    Move,
    Rebalance,
    Rebalances,
    RebalanceTotals,
)
from goqueue.wire.errors import UnknownMember
from goqueue.wire.types import GroupId, TopicId

MEMBERS_MAX = 1000
OWNED, REVOKING, HANDING = "owned", "revoking", "handing"
SHARED = "shared"

Topics = Mapping[str, tuple[TopicId, int]]
"""Every topic's id and number of partitions, by name."""


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

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.topics or any(fnmatchcase(topic, p) for p in self.patterns)


@dataclass(frozen=True, slots=True)
class Holding:
    """One partition on its way. `member` has it (owned, revoking), or is being named its owner
    (handing; nobody where empty), in this generation.

    `since_ms` is when it was got; while it moves, since when it has paused. `rebalance` moves it.
    """

    partition: GroupId
    topic: str
    state: str
    member: str
    generation: int
    since_ms: int
    former: str = ""
    fence: bool = False
    rebalance: int = 0


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
    target: list[tuple[GroupId, str]]
    holdings: list[Holding]
    rebalances: list[Rebalance] = field(default_factory=list[Rebalance])
    totals: RebalanceTotals = field(default_factory=RebalanceTotals)


class Membership:
    """The members of one group."""

    def __init__(self, record: MembershipRecord) -> None:
        self.group_id = record.group_id
        self.generation = record.generation
        self.members = {member.id: member for member in record.members}
        self.target = dict(record.target)
        self.holdings = {holding.partition: holding for holding in record.holdings}
        self.rebalances = Rebalances(record.rebalances, record.totals)

    @classmethod
    def of(cls, group_id: int) -> Membership:
        """A group without members."""
        return cls(MembershipRecord(group_id, 0, [], [], []))

    def dump(self) -> MembershipRecord:
        """Equal wherever the same commands were applied."""
        return MembershipRecord(
            self.group_id,
            self.generation,
            list(self.members.values()),
            sorted(self.target.items()),
            [self.holdings[partition] for partition in sorted(self.holdings)],
            self.rebalances.known,
            self.rebalances.totals,
        )

    # -- what is asked

    def member(self, group: str, id: str) -> Member:
        """Raises UnknownMember."""
        member = self.members.get(id)
        if member is None:
            raise UnknownMember(group, id)
        return member

    @property
    def state(self) -> str:
        """`empty`, `rebalancing` or `stable`."""
        if any(holding.state != OWNED for holding in self.holdings.values()):
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
            assigned = _partitions_of(member, topics)
            return _view(self.generation, [(name, p.partition) for name, p in assigned], [], 0)
        held = [h for h in self.holdings.values() if h.member == id]
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
        return (holding for holding in self.holdings.values() if holding.state != OWNED)

    # -- what happens

    def join(self, command: JoinGroup, now_ms: int, group: Group, topics: Topics) -> None:
        """Raises ClusterFull. A member that is known subscribes to these topics from now on."""
        settings = group.settings
        known = self.members.get(command.member)
        member = Member(
            command.member,
            command.client_id,
            command.instance_id,
            command.host,
            tuple(sorted(set(command.topics))),
            tuple(sorted(set(command.patterns))),
            command.session_timeout_ms or settings.session_timeout_ms,
            command.rebalance_timeout_ms or settings.rebalance_timeout_ms,
            command.lets_go,
            now_ms if known is None else known.joined_ms,
        )
        if member == known:
            return
        replaced = self._replaced_by(member)
        if known is None and replaced is None and len(self.members) >= MEMBERS_MAX:
            raise ClusterFull(f"group {group.name} has {MEMBERS_MAX} members already")
        subscribed = known or replaced
        if replaced is not None:
            self._replace(replaced, member, now_ms)
        self.members[member.id] = member
        if subscribed is not None and _subscription(subscribed) == _subscription(member):
            return
        self._rebalance(
            JOIN if subscribed is None else SUBSCRIPTION, [member.id], now_ms, group, topics
        )

    def leave(self, id: str, now_ms: int, group: Group, topics: Topics) -> None:
        """Raises UnknownMember. What it still has is taken back as if it had not been delivered."""
        self.member(group.name, id)
        self._forget(id, now_ms, fence=False)
        self._rebalance(LEAVE, [id], now_ms, group, topics)

    def expire(self, command: ExpireMembers, now_ms: int, group: Group, topics: Topics) -> None:
        """What they had in flight counts as failed; those that are gone already are left out."""
        gone = [(id, silent_ms) for id, silent_ms in command.members if id in self.members]
        for id, silent_ms in gone:
            self._forget(id, now_ms - max(0, silent_ms), fence=True)
        if gone:
            self._rebalance(EXPIRY, [id for id, _ in gone], now_ms, group, topics)

    def let_go(self, command: LetGo, now_ms: int) -> None:
        """Partitions that the member was not asked for are left out."""
        for partition in self._named(command.partitions):
            held = self.holdings[partition]
            if held.state == REVOKING and held.member == command.member:
                self._hand(held, held.since_ms, fence=command.fence)
        self._settle_rebalances(now_ms)

    def handed(self, rows: Iterable[Handed], now_ms: int) -> None:
        """Partitions whose log names an owner. One that names somebody else, in a generation that
        is not older, is handed over again in a newer one."""
        for row in rows:
            for partition in self._named([row.partition]):
                held = self.holdings[partition]
                if held.state != HANDING:
                    continue
                if (row.member, row.generation) == (held.member, held.generation):
                    self._arrived(held, row.ended, now_ms)
                elif row.generation >= held.generation:
                    self.generation = max(self.generation, row.generation) + 1
                    self.holdings[partition] = dataclasses.replace(held, generation=self.generation)
        self._settle_rebalances(now_ms)

    def topics_changed(self, cause: str, now_ms: int, group: Group, topics: Topics) -> None:
        """Topics came or went, or grew: where that concerns the members, they share anew."""
        alive = {id for id, _count in topics.values()}
        for partition in [p for p in self.holdings if p.topic not in alive]:
            del self.holdings[partition]
        wanted = {p for m in self.members.values() for _, p in _partitions_of(m, topics)}
        if wanted != set(self.target):
            self._rebalance(cause, [], now_ms, group, topics)
        self._settle_rebalances(now_ms)

    # -- private

    def _rebalance(
        self, cause: str, members: list[str], now_ms: int, group: Group, topics: Topics
    ) -> None:
        self.generation += 1
        names = {id: name for name, (id, _count) in topics.items()}
        subscriptions = {
            member.id: [partition for _, partition in _partitions_of(member, topics)]
            for member in self.members.values()
        }
        if group.settings.mode == SHARED:
            self.target = {p: "" for mine in subscriptions.values() for p in mine}
        else:
            assignor = ASSIGNORS[group.settings.assignor]
            self.target = assignor(subscriptions, self._current()) if subscriptions else {}
        self.rebalances.begin(self.generation, cause, members, now_ms)
        for partition in sorted({*self.target, *self.holdings}):
            self._direct(partition, names.get(partition.topic, ""), now_ms)
        self._settle_rebalances(now_ms)

    def _current(self) -> dict[GroupId, str]:
        """Who has what, or is about to: what sticky assignment sticks to."""
        return {
            partition: self.target.get(partition, held.member)
            for partition, held in self.holdings.items()
        }

    def _direct(self, partition: GroupId, topic: str, now_ms: int) -> None:
        """Begin, redirect or call off a partition's move."""
        wanted = self.target.get(partition, "")
        held = self.holdings.get(partition)
        if held is None:
            if wanted:
                self.holdings[partition] = Holding(
                    partition,
                    topic,
                    HANDING,
                    wanted,
                    self.generation,
                    now_ms,
                    rebalance=self.generation,
                )
        elif held.state == HANDING:
            if held.member != wanted or held.generation == 0:
                self.holdings[partition] = dataclasses.replace(
                    held, member=wanted, generation=self.generation, rebalance=self.generation
                )
        elif held.member == wanted:
            if held.state == REVOKING:
                self.holdings[partition] = dataclasses.replace(held, state=OWNED, rebalance=0)
        elif held.state == OWNED:
            self.holdings[partition] = dataclasses.replace(
                held, state=REVOKING, since_ms=now_ms, rebalance=self.generation
            )
        else:
            self.holdings[partition] = dataclasses.replace(held, rebalance=self.generation)

    def _hand(self, held: Holding, since_ms: int, *, fence: bool) -> None:
        """The partition is nobody's: whoever should have it is named in its log next."""
        self.holdings[held.partition] = dataclasses.replace(
            held,
            state=HANDING,
            member=self.target.get(held.partition, ""),
            generation=self.generation,
            since_ms=since_ms,
            former=held.member,
            fence=fence,
        )

    def _forget(self, id: str, since_ms: int, *, fence: bool) -> None:
        """A member is gone. Its partitions, and those it was about to get, go to nobody until the
        rebalance that follows names somebody."""
        del self.members[id]
        for held in list(self.holdings.values()):
            if held.member != id:
                continue
            if held.state == HANDING:
                self.holdings[held.partition] = dataclasses.replace(held, member="", generation=0)
            else:
                paused_ms = held.since_ms if held.state == REVOKING else since_ms
                self._hand(held, paused_ms, fence=fence)
                freed = self.holdings[held.partition]
                self.holdings[held.partition] = dataclasses.replace(freed, member="", generation=0)
        self.target = {p: who for p, who in self.target.items() if who != id}

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

    def _replace(self, old: Member, new: Member, now_ms: int) -> None:
        """A static member has restarted: the same partitions, and nobody else's change hands."""
        self.generation += 1
        self.members = {
            (new.id if id == old.id else id): (new if id == old.id else member)
            for id, member in self.members.items()
        }
        self.target = {p: new.id if who == old.id else who for p, who in self.target.items()}
        for held in list(self.holdings.values()):
            if held.member != old.id:
                continue
            if held.state == HANDING:
                self.holdings[held.partition] = dataclasses.replace(
                    held, member=new.id, generation=self.generation
                )
            else:
                since_ms = held.since_ms if held.state == REVOKING else now_ms
                self._hand(held, since_ms, fence=True)

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
            self.holdings[held.partition] = Holding(
                held.partition, held.topic, OWNED, held.member, held.generation, now_ms
            )
        else:
            del self.holdings[held.partition]

    def _settle_rebalances(self, now_ms: int) -> None:
        running = {held.rebalance for held in self.moving()}
        self.rebalances.end_all_but(running, now_ms)

    def _named(self, partitions: Iterable[Partition]) -> list[GroupId]:
        """Those of the partitions that are held; their cluster is ours."""
        wanted = set(map(tuple, partitions))
        return [p for p in sorted(self.holdings) if (p.topic.index, p.partition) in wanted]


def _subscription(member: Member) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return member.topics, member.patterns


def _partitions_of(member: Member, topics: Topics) -> list[tuple[str, GroupId]]:
    """(topic, partition) of all that the member subscribes to, in order."""
    return [
        (name, GroupId(id, number))
        for name, (id, count) in sorted(topics.items())
        if member.subscribes_to(name)
        for number in range(count)
    ]


def _view(
    generation: int,
    assigned: Sequence[tuple[str, int]],
    revoking: Sequence[tuple[str, int]],
    deadline_ms: int,
) -> MemberView:
    told = repr((assigned, revoking)).encode()
    revision = f"{generation}-{zlib.crc32(told):08x}"
    return MemberView(generation, assigned, revoking, deadline_ms, revision)

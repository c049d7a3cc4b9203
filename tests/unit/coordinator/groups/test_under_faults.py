"""Members, the coordinator and the partitions' logs, with everything between them lost, late,
repeated or out of order.

The cluster's state, the coordinator and the logs are the real ones. Members are told things and do
not hear of others; those that are dead to the group go on working, as a paused process does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.cluster.state import ClusterState
from coordinator.commands.codec import Command, DeleteTopic, decode_command, encode_command
from coordinator.commands.members import (
    ExpireMembers,
    JoinGroup,
    LeaveGroup,
    LetGo,
    MemberCommand,
    MemberResult,
)
from coordinator.groups.coordinator import Drain, GroupCoordinator, Naming
from coordinator.groups.holdings import OWNED, REVOKING, Holding, short
from coordinator.groups.membership import MemberView
from delivery.entries.ops import (
    ACK,
    NACK,
    OK,
    Delivered,
    Granted,
    Own,
    OwnedResult,
    Settled,
    SettledResult,
)
from goqueue.wire.errors import GoQueueError, UnknownMember
from goqueue.wire.types import Index, PartitionId
from tests.unit.coordinator.cluster_group import CLUSTER, content
from tests.unit.coordinator.groups.consumer_group import NAME, ConsumerGroup
from tests.unit.delivery.desk import Desk
from tests.walk import walk

SESSION_MS, REBALANCE_MS = 3000, 2000
MESSAGES = 4
SETTLES_MIN, SETTLES_MAX = 10, 40
"""Rounds without faults in which everything must come to rest; they are longer than a session."""
LATE_MAX = 12
small = st.integers(0, 7)
many = st.integers(0, 2**16)


@dataclass
class Consumer:
    """A member's process, and what it was told last."""

    id: str
    lets_go: bool
    topics: list[str]
    instance_id: str
    told: MemberView | None = None
    views: list[MemberView] = field(default_factory=list[MemberView])
    """All that it was ever told."""
    is_dead: bool = False
    receipts: list[tuple[PartitionId, int, int]] = field(
        default_factory=list[tuple[PartitionId, int, int]]
    )
    """(partition, delivery, offset) of all it was given."""


class Replicated(ConsumerGroup):
    """Another replica applies the same, and is equal byte for byte."""

    def __init__(self, **settings: object) -> None:
        self.follower = ClusterState(CLUSTER)
        super().__init__(**settings)  # type: ignore[arg-type]

    def do(self, command: Command) -> object:
        result = super().do(command)
        sent = decode_command(encode_command(command))
        self.follower.apply(Index(self.index), self.now_ms, sent)
        assert self.follower.snapshot() == self.state.snapshot()
        return result

    def restart(self) -> None:
        """The other one comes from a snapshot, and is asked from now on."""
        snapshot = self.state.snapshot()
        self.state, self.follower = ClusterState.restore(snapshot), self.state


class GroupMachine(RuleBasedStateMachine):
    @initialize(first=st.integers(1, 4), second=st.integers(1, 3))
    def begin(self, first: int, second: int) -> None:
        self.group = ConsumerGroup(session_timeout_ms=SESSION_MS, rebalance_timeout_ms=REBALANCE_MS)
        self.logs: dict[PartitionId, Desk] = {}
        self.names: dict[tuple[PartitionId, int], str] = {}
        """Who was ever named in a partition in a generation."""
        self.consumers: list[Consumer] = []
        self.late: list[MemberCommand] = []
        """Commands that may come (again) at any time."""
        self.old: list[Naming] = []
        """Owner entries that may come (again) at any time."""
        self.work: list[MemberCommand | Naming | Drain] = []
        """What the coordinator waits for."""
        self.generation = 0
        self.ended = 0
        self.create("one", first)
        self.create("two", second)
        self.lead()

    # -- the cluster and the logs

    def create(self, topic: str, partitions: int) -> None:
        self.group.create(topic, partitions)
        id = self.group.state.topics[topic].id
        for number in range(partitions):
            desk = self.logs[PartitionId(id, number)] = Desk()
            desk.open(max_attempts=0)
            desk.publish(MESSAGES)

    def lead(self) -> None:
        self.core = GroupCoordinator(lambda: self.group.state.members.by_group)
        self.work = []

    def apply(self, command: MemberCommand) -> bool:
        """An entry of the cluster group; whether it was not refused."""
        holdings = self.group.membership.holdings
        before = {p: held for p, held in holdings.items() if held.state == OWNED}
        known = content(self.group.state)
        result = self.group.do(command)
        if isinstance(result, GoQueueError):
            assert content(self.group.state) == known
        self.check_untouched(before, command)
        self.late = [*self.late, command][-LATE_MAX:]
        return isinstance(result, MemberResult)

    def check_untouched(self, before: dict[PartitionId, Holding], command: MemberCommand) -> None:
        """What is owned, and meant for its owner, is as it was; else its owner, if it lives, is
        asked for it. What a dead one had is to be fenced."""
        membership = self.group.membership
        for partition, held in before.items():
            after = membership.holdings[partition]
            if held.member in membership.members:
                if membership.target.get(partition) == held.member:
                    assert after == held
                else:
                    asked = after.state, after.member, after.generation
                    assert asked == (REVOKING, held.member, held.generation)
            elif isinstance(command, ExpireMembers):
                assert (after.former, after.fence) == (held.member, True)

    def own(self, naming: Naming) -> OwnedResult | None:
        """An entry in a partition's log, whose topic may be gone."""
        desk = self.logs.get(naming.partition)
        if desk is None:
            return None
        known = self.names.setdefault((naming.partition, naming.generation), naming.member)
        assert known == naming.member
        before = desk.group().owner
        (result,) = desk.do(Own(1, naming.member, naming.generation, naming.fence))
        assert isinstance(result, OwnedResult)
        assert result.generation >= before.generation
        if (before.member, before.generation) != (result.member, result.generation):
            self.ended += result.ended
        self.old = [*self.old, naming][-LATE_MAX:]
        return result

    # -- rules: what goes on outside

    @rule(ms=st.sampled_from([1, 50, 100, 500, 1900, 2900]))
    def pass_time(self, ms: int) -> None:
        self.group.pass_ms(ms)

    @rule(which=small, lets_go=st.booleans(), static=small)
    def join(self, which: int, lets_go: bool, static: int) -> None:
        topics = [["one"], ["two"], ["one", "two"]][which % 3]
        instance = f"i{static}" if static < 2 else ""
        name = f"m{len(self.consumers)}"
        consumer = Consumer(name, lets_go, topics, instance)
        if self.apply(self.join_of(consumer)):
            self.consumers.append(consumer)

    def join_of(self, consumer: Consumer) -> JoinGroup:
        return JoinGroup(
            NAME,
            self.group.group.id,
            consumer.id,
            instance_id=consumer.instance_id,
            topics=consumer.topics,
            lets_go=consumer.lets_go,
        )

    def consumer(self, which: int) -> Consumer:
        """The newest ones more often than those that are long gone."""
        return self.consumers[-1 - which % len(self.consumers)]

    @precondition(lambda self: self.consumers)
    @rule(which=small, topics=small)
    def subscribe(self, which: int, topics: int) -> None:
        consumer = self.consumer(which)
        if consumer.id in self.group.membership.members:
            consumer.topics = [["one"], ["two"], ["one", "two"]][topics % 3]
            self.apply(self.join_of(consumer))

    @precondition(lambda self: self.consumers)
    @rule(which=small)
    def leave(self, which: int) -> None:
        self.apply(LeaveGroup(self.group.group.id, self.consumer(which).id))

    @precondition(lambda self: self.consumers)
    @rule(which=small, arrives=st.booleans(), told=st.booleans(), lets_go=st.booleans())
    def heartbeat(self, which: int, arrives: bool, told: bool, lets_go: bool) -> None:
        """A sign of life, the answer to it, and what the member makes of that: any may be lost."""
        consumer = self.consumer(which)
        if arrives:
            self.core.heard(self.group.group.id, consumer.id, self.group.now_ms)
        if told:
            self.tell(consumer)
        if lets_go:
            self.let_go(consumer)

    def tell(self, consumer: Consumer) -> None:
        try:
            consumer.told = self.group.view(consumer.id)
        except UnknownMember:
            return
        consumer.views.append(consumer.told)

    def let_go(self, consumer: Consumer) -> None:
        """Of what it was told, which may be long ago."""
        if consumer.told is None or not consumer.lets_go:
            return
        topics = self.group.state.topics
        partitions = [
            (topics[topic].id.index, number)
            for topic, number in consumer.told.revoking
            if topic in topics
        ]
        if partitions:
            self.apply(LetGo(self.group.group.id, consumer.id, partitions))

    @precondition(lambda self: self.consumers)
    @rule(which=small, place=small, how=many, claims=st.booleans())
    def consume(self, which: int, place: int, how: int, claims: bool) -> None:
        """Receive by what it was told, settle by what it was given; now and then one that has slept
        for long does."""
        consumer = self.consumer(which)
        if not consumer.views:
            return
        told = consumer.views[-1 if how % 5 else how % len(consumer.views)]
        places = [*told.assigned, *told.revoking]
        if places and how % 4:
            topic, number = places[place % len(places)]
            if topic in self.group.state.topics:
                partition = PartitionId(self.group.state.topics[topic].id, number)
                self.receive(consumer, partition, told.generation)
        if consumer.receipts and how % 3:
            partition, delivery, offset = consumer.receipts[-1 - how % len(consumer.receipts)]
            generation = told.generation if claims else 0
            self.settle(consumer, partition, delivery, offset, generation, ACK if how % 2 else NACK)

    def receive(self, consumer: Consumer, partition: PartitionId, generation: int) -> None:
        desk = self.logs.get(partition)
        if desk is None:
            return
        owner = desk.group().owner
        offsets = desk.group().select(2, desk.now_ms)
        (result,) = desk.do(Delivered(1, consumer.id, 1000, offsets, 0, generation))
        if isinstance(result, Granted):
            assert owner.member == consumer.id
            assert generation >= owner.generation
            grants = [(partition, result.delivery, grant.offset) for grant in result.grants]
            consumer.receipts += grants

    def settle(
        self,
        consumer: Consumer,
        partition: PartitionId,
        delivery: int,
        offset: int,
        generation: int,
        action: int,
    ) -> None:
        desk = self.logs.get(partition)
        if desk is None:
            return
        owner = desk.group().owner
        receipts = [(delivery, [offset])]
        (result,) = desk.do(
            Settled(1, action, receipts, "", 0, member=consumer.id, generation=generation)
        )
        assert isinstance(result, SettledResult)
        if result.settles[0].code == OK:
            assert owner.member == consumer.id
            if generation:
                assert generation >= owner.generation

    @rule(rounds=st.integers(1, 5), how=many, ms=st.sampled_from([10, 100, 700]))
    def work_goes_on(self, rounds: int, how: int, ms: int) -> None:
        """Those that live are heard of and do what they are told, though not all of them at once;
        the others do not know better."""
        for at in range(rounds):
            for number, consumer in enumerate(self.consumers[-6:]):
                busy = how >> (at + number) & 3
                if not consumer.is_dead:
                    self.core.heard(self.group.group.id, consumer.id, self.group.now_ms)
                    if busy != 3:
                        self.tell(consumer)
                        self.let_go(consumer)
                self.consume(len(self.consumers[-6:]) - 1 - number, how + at, how + busy, busy < 2)
            self.look()
            left = []
            for number, one in enumerate(self.work):
                luck = how >> number & 7
                if luck == 5:
                    left.append(one)
                else:
                    self.end(one, done=luck != 6, answered=luck < 6)
            self.work = left
            self.group.pass_ms(ms)

    @precondition(lambda self: self.consumers)
    @rule(which=small)
    def die(self, which: int) -> None:
        """As far as the group can tell; it may well go on consuming."""
        self.consumer(which).is_dead = True

    @precondition(lambda self: self.logs)
    @rule(which=small, count=st.integers(1, 3))
    def publish(self, which: int, count: int) -> None:
        list(self.logs.values())[which % len(self.logs)].publish(count)

    @rule(partitions=st.integers(1, 3), which=st.sampled_from(["one", "two"]), rare=small)
    def make_topic_anew(self, partitions: int, which: str, rare: int) -> None:
        if rare:
            return
        id = self.group.state.topics[which].id
        self.group.do(DeleteTopic(which))
        self.logs = {p: log for p, log in self.logs.items() if p.topic != id}
        self.create(which, partitions)

    # -- rules: the coordinator, and its faults

    @rule()
    def look(self) -> None:
        found = self.core.collect(self.group.now_ms)
        self.work += [*found.commands, *found.namings, *found.drains]
        assert self.core.next_wake_ms(self.group.now_ms) != self.group.now_ms

    @precondition(lambda self: self.work)
    @rule(which=many, done=st.booleans(), answered=st.booleans())
    def work_ends(self, which: int, done: bool, answered: bool) -> None:
        """In any order: done or lost on the way, and known to be so or not."""
        self.end(self.work.pop(which % len(self.work)), done=done, answered=answered)

    @rule(count=st.integers(1, 3))
    def all_goes_well(self, count: int) -> None:
        for _ in range(count):
            self.look()
            for one in self.work:
                self.end(one)
            self.work = []
            self.group.pass_ms(30)

    def end(
        self, one: MemberCommand | Naming | Drain, *, done: bool = True, answered: bool = True
    ) -> None:
        now_ms = self.group.now_ms
        if isinstance(one, Naming):
            owner = self.own(one) if done else None
            known = owner is not None and answered
            told = (owner.member, owner.generation, owner.ended) if owner and known else None
            self.core.named(one, told, now_ms)
        elif isinstance(one, Drain):
            desk = self.logs.get(one.partition)
            leases = [] if desk is None else desk.group().leases
            self.core.drained(one, len(leases) if done and answered else None, now_ms)
        else:
            if done:
                self.apply(one)
            self.core.answered(one, self.group.now_ms, applied=done and answered)

    @precondition(lambda self: self.late)
    @rule(which=many)
    def command_comes_late(self, which: int) -> None:
        self.apply(self.late[which % len(self.late)])

    @precondition(lambda self: self.old)
    @rule(which=many)
    def naming_comes_late(self, which: int) -> None:
        self.own(self.old[which % len(self.old)])

    @rule(pending=st.booleans())
    def another_leads(self, pending: bool) -> None:
        """What was under way may be done still; nobody waits for it."""
        for one in self.work:
            if isinstance(one, Naming) and pending:
                self.own(one)
            elif not isinstance(one, Drain | Naming):
                self.late.append(one)
        self.lead()

    @rule(which=small)
    def restart(self, which: int) -> None:
        """Replicas come from snapshots."""
        self.group.restart()
        if self.logs:
            list(self.logs.values())[which % len(self.logs)].restart()

    # -- what always holds

    @invariant()
    def a_member_is_told_only_what_the_log_lets_it_have(self) -> None:
        membership = self.group.membership
        for partition, held in membership.holdings.items():
            if held.state in (OWNED, REVOKING):
                owner = self.logs[partition].group().owner
                assert (owner.member, owner.generation) == (held.member, held.generation)
                assert held.member in membership.members
        told = Counter(
            place
            for id in membership.members
            for view in [self.group.view(id)]
            for place in (*view.assigned, *view.revoking)
        )
        assert not told or max(told.values()) == 1

    @invariant()
    def what_is_not_on_its_way_is_where_it_should_be(self) -> None:
        membership = self.group.membership
        assert set(membership.target) <= set(membership.holdings)
        for partition, held in membership.holdings.items():
            wanted = membership.target.get(partition, "")
            if held.state == REVOKING:
                assert held.member != wanted
            else:
                assert held.member == wanted
        assert set(membership.target.values()) <= set(membership.members)

    @invariant()
    def generations_only_grow(self) -> None:
        membership = self.group.membership
        assert membership.generation >= self.generation
        self.generation = membership.generation
        assert all(0 < h.generation <= self.generation for h in membership.holdings.values())

    @invariant()
    def receipts_add_up(self) -> None:
        rebalances = self.group.membership.rebalances
        running = {held.rebalance for held in self.group.membership.moving()}
        assert all(r.is_running == (r.id in running) for r in rebalances.known)
        if sum(rebalances.totals.by_cause.values()) <= 100:
            assert sum(r.moved for r in rebalances.known) == rebalances.totals.moved
            moves = [move for r in rebalances.known for move in r.moves]
            assert sum(move.fenced for move in moves) == rebalances.totals.fenced
            assert sum(move.pause_ms for move in moves) == rebalances.totals.pause_ms_sum

    # -- the end

    def teardown(self) -> None:
        """Faults are over: members that live are heard of, and everything comes to rest."""
        if not hasattr(self, "core"):
            return
        for one in self.work:
            self.end(one, done=False, answered=False)
        self.work = []
        alive = self.group.membership.members.keys() - {c.id for c in self.consumers if c.is_dead}
        for id in alive:
            self.core.heard(self.group.group.id, id, self.group.now_ms)
        for at in range(SETTLES_MAX):
            for consumer in [c for c in self.consumers if c.id in alive]:
                self.core.heard(self.group.group.id, consumer.id, self.group.now_ms)
                self.tell(consumer)
                self.let_go(consumer)
                for partition, delivery, offset in consumer.receipts:
                    self.settle(consumer, partition, delivery, offset, 0, ACK)
                consumer.receipts = []
            self.all_goes_well(1)
            self.group.pass_ms(370)
            assert alive <= self.group.membership.members.keys()
            if at > SETTLES_MIN and self.is_at_rest():
                return
        raise AssertionError(list(self.group.membership.moving()))

    def is_at_rest(self) -> bool:
        membership = self.group.membership
        dead = [c for c in self.consumers if c.is_dead and c.id in membership.members]
        if list(membership.moving()) or dead:
            return False
        wanted = {
            PartitionId(topic.id, number)
            for topic in self.group.state.topics.values()
            if membership.subscribes_to(topic.name)
            for number in range(len(topic.partitions))
        }
        assert set(membership.holdings) == wanted
        assert {short(p): h.member for p, h in membership.holdings.items()} == {
            short(p): member for p, member in membership.target.items()
        }
        return True


def test_groups_keep_their_promises_under_faults() -> None:
    walk(GroupMachine, runs=200, steps=50)

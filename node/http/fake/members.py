"""Members of groups in the fake broker: the real memberships and the real coordinator, on one node.

Naming an owner is done at once, where a cluster puts an entry into the partition's log; sessions
and pauses go by the fake's clock, looked at whenever anything is asked.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count

from coordinator.commands.members import (
    ExpireMembers,
    HandOver,
    JoinGroup,
    LeaveGroup,
    LetGo,
    MemberCommand,
)
from coordinator.commands.queue import PutGroup
from coordinator.groups.coordinator import Drain, GroupCoordinator, Naming
from coordinator.groups.membership import OWNED, SHARED, GroupMembership, Member
from coordinator.groups.memberships import Memberships
from coordinator.groups.rebalances import TOPIC
from coordinator.groups.settings import Group
from goqueue.wire.errors import StaleGeneration
from goqueue.wire.types import TopicId
from node.api.claims import NOBODYS, Claim, Maker
from node.api.groups import GroupView
from node.api.members import (
    Assignment,
    JoinRequest,
    MembershipView,
    MemberView,
    MoveView,
    RebalanceTotalsView,
    RebalanceView,
)
from node.api.queue import QueuedMessage
from node.http.fake.groups import Place
from node.http.fake.lags import FakeLags
from node.http.fake.queue import LOOK_AGAIN_S

BEATS = 3
"""Heartbeats in a session."""
CLIENT_CHARACTERS_KEPT = 100

_NOT_A_NAME = re.compile(r"[^A-Za-z0-9._-]|^[^A-Za-z0-9]")


class FakeMembers(FakeLags):
    """The members' part of `FakeBroker`."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms)
        self._memberships = Memberships(self._known, self._subscribable)
        self._coordinator = GroupCoordinator(lambda: self._memberships.by_group)
        self._listening: Counter[tuple[int, str]] = Counter()
        self._numbers = count(1)

    # groups with members

    async def put_group(
        self, name: str, settings: Mapping[str, object], maker: Maker = NOBODYS
    ) -> GroupView:
        known = self._known.by_name.get(name)
        if known is not None:
            self._memberships.check_changes(known, settings.get("mode"))
        return await super().put_group(name, settings, maker)

    async def delete_group(self, name: str, *, force: bool = False) -> None:
        self._reconcile()
        group = self._known.named(name)
        self._memberships.check_deletion(group, force=force)
        await super().delete_group(name, force=force)
        self._memberships.group_deleted(group.id)

    # members

    async def join(self, group: str, request: JoinRequest, *, wait_s: float) -> Assignment:
        for topic in request.topics:
            self.partition_count(topic)
        command = PutGroup(
            group,
            dict(request.settings),
            ensure=True,
            owner=request.maker.owner,
            judged=request.maker.judged,
        )
        ref = self._put(command).group
        self._reconcile()
        if request.member:
            self._memberships.of(ref).member(group, request.member)
        member = request.member or self._member_id(request.client_id)
        joining = JoinGroup(
            group,
            ref.id,
            member,
            request.client_id,
            request.instance_id,
            request.host,
            list(request.topics),
            list(request.patterns),
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.lets_go,
        )
        self._memberships.join(self._clock_ms(), joining)
        return await self._wait(group, member, wait_s, lambda _: self._has_all(ref, member))

    async def heartbeat(
        self,
        group: str,
        member: str,
        *,
        revision: str | None = None,
        wait_s: float = 0.0,
        let_go: Sequence[Place] = (),
    ) -> Assignment:
        ref = self._member_of(group, member)
        if let_go:
            topics = self._subscribable()
            partitions = [(topics[t][0].index, number) for t, number in let_go if t in topics]
            command = LetGo(ref.id, member, partitions)
            self._memberships.let_go(self._clock_ms(), command)
        if revision is None:
            wait_s = 0.0
        return await self._wait(group, member, wait_s, lambda told: told.revision != revision)

    async def leave(self, group: str, member: str) -> None:
        ref = self._member_of(group, member)
        self._memberships.leave(self._clock_ms(), LeaveGroup(ref.id, member))
        self._reconcile()

    async def poll(
        self, group: str, member: str, *, generation: int | None, limit: int, wait_s: float
    ) -> list[QueuedMessage]:
        ends_s = time.monotonic() + wait_s
        ref = self._member_of(group, member)
        with self._heard(ref.id, member):
            while True:
                self._member_of(group, member)
                places, claim = self._places_of(ref, member, generation)
                found: list[QueuedMessage] = []
                if places:
                    found = await self.receive(
                        group,
                        [],
                        claim=claim,
                        limit=limit,
                        wait_s=0.0,
                        visibility_ms=None,
                        places=places,
                    )
                left_s = ends_s - time.monotonic()
                if found or left_s <= 0:
                    return found
                await asyncio.sleep(min(left_s, LOOK_AGAIN_S))

    async def membership(self, group: str) -> MembershipView:
        self._reconcile()
        return self._membership_view(self._known.named(group))

    async def memberships(self) -> list[MembershipView]:
        self._reconcile()
        by_name = self._known.by_name
        return [self._membership_view(by_name[name]) for name in sorted(by_name)]

    def subscribed(self, group: str) -> tuple[Sequence[str], Sequence[str]]:
        known = self._known.by_name.get(group)
        if known is None:
            return (), ()
        found = self._memberships.of(known).subscriptions()
        topics = {topic for subscription in found for topic in subscription[0]}
        return sorted(topics), sorted({pattern for one in found for pattern in one[1]})

    # what time brings

    def _topics_changed(self) -> None:
        self._memberships.topics_changed(TOPIC, self._clock_ms())
        self._reconcile()

    def _reconcile(self) -> None:
        now_ms = self._clock_ms()
        for group, member in self._listening:
            self._coordinator.heard(group, member, now_ms)
        while True:
            work = self._coordinator.collect(now_ms)
            for command in work.commands:
                self._apply(command, now_ms)
                self._coordinator.answered(command, now_ms, applied=True)
            for naming in work.namings:
                self._coordinator.named(naming, self._name_owner(naming), now_ms)
            for drain in work.drains:
                self._coordinator.drained(drain, self._in_flight_of(drain), now_ms)
            if not (work.commands or work.namings or work.drains):
                return

    def _apply(self, command: MemberCommand, now_ms: int) -> None:
        match command:
            case ExpireMembers():
                self._memberships.expire(now_ms, command)
            case LetGo():
                self._memberships.let_go(now_ms, command)
            case HandOver():
                self._memberships.handed(now_ms, command)
            case _:
                raise AssertionError(command)

    def _name_owner(self, naming: Naming) -> tuple[str, int, int] | None:
        found = self._place_by_id(naming.group, naming.partition)
        if found is None:
            return None
        self._deliveries += 1
        ended = found.own(naming.member, naming.generation, self._deliveries, fence=naming.fence)
        return found.owner.member, found.owner.generation, ended

    def _in_flight_of(self, drain: Drain) -> int | None:
        found = self._place_by_id(drain.group, drain.partition)
        if found is None:
            return None
        found.expire()
        return sum(lease.member == drain.member for lease in found.leases.values())

    # how

    async def _wait(
        self, group: str, member: str, wait_s: float, is_enough: Callable[[Assignment], bool]
    ) -> Assignment:
        """What the member is told, once that is enough or the time is over."""
        ends_s = time.monotonic() + wait_s
        ref = self._known.named(group)
        with self._heard(ref.id, member):
            while True:
                told = self._assignment(self._member_of(group, member), member)
                left_s = ends_s - time.monotonic()
                if left_s <= 0 or is_enough(told):
                    return told
                await asyncio.sleep(min(left_s, LOOK_AGAIN_S))

    @contextmanager
    def _heard(self, group: int, member: str) -> Iterator[None]:
        """The member is heard of all the time."""
        self._listening[group, member] += 1
        try:
            yield
        finally:
            self._listening[group, member] -= 1
            if not self._listening[group, member]:
                del self._listening[group, member]

    def _member_of(self, group: str, member: str) -> Group:
        """The member's group, which has heard of it now. Raises UnknownGroup, UnknownMember."""
        self._reconcile()
        ref = self._known.named(group)
        self._memberships.of(ref).member(group, member)
        self._coordinator.heard(ref.id, member, self._clock_ms())
        return ref

    def _assignment(self, ref: Group, id: str) -> Assignment:
        membership = self._memberships.of(ref)
        member = membership.member(ref.name, id)
        view = self._memberships.view(ref, id)
        return Assignment(
            ref.name,
            id,
            view.generation,
            view.assigned,
            view.revoking,
            view.deadline_ms,
            view.revision,
            membership.leader,
            list(membership.members),
            ref.settings.mode,
            membership.state,
            member.session_timeout_ms,
            member.session_timeout_ms // BEATS,
            member.lets_go,
        )

    def _has_all(self, ref: Group, member: str) -> bool:
        membership = self._memberships.of(ref)
        return all(
            held.state == OWNED and held.member == member
            for partition, held in membership.holdings.items()
            if membership.target.get(partition) == member
        )

    def _places_of(
        self, ref: Group, member: str, generation: int | None
    ) -> tuple[list[Place], Claim]:
        """What the member may receive from. Raises StaleGeneration."""
        membership = self._memberships.of(ref)
        if ref.settings.mode == SHARED:
            return list(self._memberships.view(ref, member).assigned), Claim(member)
        held = [
            one
            for one in membership.holdings.values()
            if one.state == OWNED and one.member == member
        ]
        if held and generation is not None and all(h.generation > generation for h in held):
            raise StaleGeneration(
                f"member {member} has its partitions since generation {held[0].generation}",
                generation=membership.generation,
                partitions=[f"{one.topic}:{one.partition.partition}" for one in held],
            )
        places = [(one.topic, one.partition.partition) for one in held]
        return sorted(places), Claim(member, membership.generation)

    def _membership_view(self, ref: Group) -> MembershipView:
        membership = self._memberships.of(ref)
        totals = membership.rebalances.totals
        members = list(membership.members.values())
        return MembershipView(
            ref.name,
            ref.id,
            membership.generation,
            membership.state,
            ref.settings.mode,
            ref.settings.assignor,
            membership.leader,
            [t for t in self.list_topics() if any(m.subscribes_to(t) for m in members)],
            [self._member_view(ref, membership, member) for member in members],
            _rebalances(membership),
            RebalanceTotalsView(
                dict(totals.by_cause),
                totals.moved,
                totals.fenced,
                totals.pause_ms_sum,
                totals.pause_ms_max,
            ),
            ref.created_ms,
        )

    def _member_view(self, ref: Group, membership: GroupMembership, member: Member) -> MemberView:
        view = membership.view(member.id, ref, self._subscribable())
        return MemberView(
            member.id,
            member.client_id,
            member.instance_id,
            member.host,
            member.topics,
            member.patterns,
            member.joined_ms,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            self._coordinator.silent_ms(ref.id, member.id, self._clock_ms()),
            view.assigned,
            view.revoking,
        )

    def _members(self, ref: Group) -> GroupMembership:
        return self._memberships.of(ref)

    def _member_id(self, client_id: str) -> str:
        stem = _NOT_A_NAME.sub("", client_id[:CLIENT_CHARACTERS_KEPT]) or "member"
        return f"{stem}-{next(self._numbers):012x}"

    def _subscribable(self) -> Mapping[str, tuple[TopicId, int]]:
        return {
            name: (TopicId.parse(self.topic_id(name)), self.partition_count(name))
            for name in self.list_topics()
        }


def _rebalances(membership: GroupMembership) -> list[RebalanceView]:
    return [
        RebalanceView(
            one.id,
            one.cause,
            tuple(one.members),
            one.started_ms,
            one.ended_ms,
            one.moved,
            [
                MoveView(
                    move.topic,
                    move.partition,
                    move.former,
                    move.member,
                    move.pause_ms,
                    move.in_flight,
                    move.fenced,
                )
                for move in one.moves
            ],
        )
        for one in membership.rebalances.known
    ]

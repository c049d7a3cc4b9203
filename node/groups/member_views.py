"""Memberships of groups as the front shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar, overload

from coordinator.cluster.state import ClusterState
from coordinator.groups.membership import GroupMembership, Member
from coordinator.groups.rebalances import Move, Rebalance
from coordinator.groups.settings import Group
from node.api.members import (
    MembershipView,
    MemberView,
    MoveView,
    RebalanceTotalsView,
    RebalanceView,
)

S = TypeVar("S")
V = TypeVar("V")


class Views(Sequence[V], Generic[S, V]):
    """Each is made when it is looked at: few ask for all that a group remembers."""

    def __init__(self, seen: Sequence[S], view: Callable[[S], V]) -> None:
        self._seen = tuple(seen)
        self._view = view

    def __len__(self) -> int:
        return len(self._seen)

    @overload
    def __getitem__(self, at: int) -> V: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[V]: ...

    def __getitem__(self, at: int | slice) -> V | Sequence[V]:
        if isinstance(at, slice):
            return Views(self._seen[at], self._view)
        return self._view(self._seen[at])


def membership_view(
    group: Group, state: ClusterState, silent_ms: Mapping[str, int]
) -> MembershipView:
    """A group's members and rebalances; `silent_ms` as far as it is known."""
    membership = state.members.of(group)
    topics = map(state.topic_of, {partition.topic for partition in membership.target})
    return MembershipView(
        group=group.name,
        group_id=group.id,
        generation=membership.generation,
        state=membership.state,
        mode=group.settings.mode,
        assignor=group.settings.assignor,
        leader=membership.leader,
        topics=sorted(topic.name for topic in topics if topic is not None),
        members=[
            _member_view(member, group, state, silent_ms.get(member.id, -1))
            for member in membership.members.values()
        ],
        rebalances=Views(membership.rebalances.known, _rebalance_view),
        totals=_totals_view(membership),
        created_ms=group.created_ms,
    )


def _member_view(member: Member, group: Group, state: ClusterState, silent_ms: int) -> MemberView:
    view = state.members.view(group, member.id)
    return MemberView(
        id=member.id,
        client_id=member.client_id,
        instance_id=member.instance_id,
        host=member.host,
        topics=member.topics,
        patterns=member.patterns,
        joined_ms=member.joined_ms,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        silent_ms=silent_ms,
        assigned=view.assigned,
        revoking=view.revoking,
    )


def _rebalance_view(rebalance: Rebalance) -> RebalanceView:
    return RebalanceView(
        id=rebalance.id,
        cause=rebalance.cause,
        members=list(rebalance.members),
        started_ms=rebalance.started_ms,
        ended_ms=rebalance.ended_ms,
        moved=rebalance.moved,
        moves=Views(rebalance.moves, _move_view),
    )


def _move_view(move: Move) -> MoveView:
    return MoveView(
        topic=move.topic,
        partition=move.partition,
        former=move.former,
        member=move.member,
        pause_ms=move.pause_ms,
        in_flight=move.in_flight,
        fenced=move.fenced,
    )


def _totals_view(membership: GroupMembership) -> RebalanceTotalsView:
    totals = membership.rebalances.totals
    return RebalanceTotalsView(
        by_cause=dict(totals.by_cause),
        moved=totals.moved,
        fenced=totals.fenced,
        pause_ms_sum=totals.pause_ms_sum,
        pause_ms_max=totals.pause_ms_max,
    )

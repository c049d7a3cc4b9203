"""Members and rebalances of groups for Prometheus, counted from replicated state at each look.

Whoever leads the cluster group tells them. How far groups have come is told in
`node.observe.lag_metrics`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.cluster.state import ClusterState
from coordinator.groups.holdings import HANDING
from coordinator.groups.membership import SHARED, GroupMembership
from coordinator.groups.settings import Group
from node.metrics import Metrics

STATES = ("empty", "rebalancing", "stable")
COOPERATIVE = "cooperative"
"""The type of every rebalance."""
SESSION_TIMEOUT = "session_timeout"
"""The reason why a member that was silent is gone."""


@dataclass(slots=True)
class _Counted:
    """How far one group had come when it was looked at last; `moves` is by rebalance."""

    name: str
    by_cause: Mapping[str, int] = field(default_factory=dict[str, int])
    fenced: int = 0
    moves: Mapping[int, int] = field(default_factory=dict[int, int])
    running: frozenset[int] = frozenset()


class GroupFigures:
    """What one leadership of the cluster group adds to the counters, and where groups stand."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counted: dict[int, _Counted] = {}

    def begin(self, state: ClusterState) -> None:
        """What happened so far was counted by other leaders."""
        names = _names(state)
        self._counted = {
            id: _counted(names[id], one)
            for id, one in state.members.by_group.items()
            if id in names
        }
        for id in self._counted:
            self._show(names[id])

    def count(self, state: ClusterState) -> Iterator[None]:
        """Add what has happened since the last look, and tell where groups stand."""
        names = _names(state)
        for id, membership in list(state.members.by_group.items()):
            name, group = names.get(id), state.group_of(id)
            if name is None or group is None:
                continue
            if id not in self._counted:
                self._show(name)
            self._add(name, membership, self._counted.get(id, _Counted(name)))
            self._counted[id] = _counted(name, membership)
            self._tell(name, group, membership, state)
            yield
        for id in self._counted.keys() - state.members.by_group.keys():
            del self._counted[id]

    def end(self) -> None:
        """Another node tells where groups stand."""
        self._counted = {}

    def expired(self, name: str, count: int) -> None:
        """Members were silent for too long, and are no more."""
        consumer = self._metrics.consumer
        consumer.session_timeouts.labels(name).inc(count)
        consumer.group_leaves.labels(name, SESSION_TIMEOUT).inc(count)

    def _show(self, name: str) -> None:
        """Zeros, before anything happens: Prometheus sees no first event of a series."""
        consumer = self._metrics.consumer
        consumer.session_timeouts.labels(name)
        consumer.group_leaves.labels(name, SESSION_TIMEOUT)

    def _add(self, name: str, membership: GroupMembership, before: _Counted) -> None:
        consumer, totals = self._metrics.consumer, membership.rebalances.totals
        for cause, count in totals.by_cause.items():
            consumer.rebalances.labels(name, cause).inc(count - before.by_cause.get(cause, 0))
        consumer.fenced_partitions.labels(name).inc(totals.fenced - before.fenced)
        for rebalance in membership.rebalances.known:
            for move in rebalance.moves[before.moves.get(rebalance.id, 0) :]:
                if move.member:
                    consumer.partitions_assigned.labels(name).inc()
                if move.former:
                    consumer.partitions_revoked.labels(name).inc()
                    consumer.partition_pause.observe(move.pause_ms / 1000)
            is_new = rebalance.id not in before.moves or rebalance.id in before.running
            if is_new and not rebalance.is_running:
                took_s = (rebalance.ended_ms - rebalance.started_ms) / 1000
                consumer.rebalance_latency.labels(name, COOPERATIVE).observe(took_s)

    def _tell(
        self, name: str, group: Group, membership: GroupMembership, state: ClusterState
    ) -> None:
        consumer = self._metrics.consumer
        held = [(h.topic, h.member) for h in membership.holdings.values() if h.state != HANDING]
        consumer.group_members.add(len(membership.members), name)
        consumer.assigned_partitions.add(len(held), name)
        consumer.moving_partitions.add(sum(1 for _ in membership.moving()), name)
        consumer.group_generation.put(membership.generation, name)
        for told in STATES:
            consumer.group_state.put(membership.state == told, name, told)
        consumer.partition_pause_max.most(membership.rebalances.totals.pause_ms_max / 1000, name)
        if group.settings.mode == SHARED:
            consumers = _subscribers(membership, state)
        else:
            consumers = Counter(topic for topic, _member in set(held))
        for topic, count in consumers.items():
            self._metrics.broker.active_consumers.add(count, topic, name)


def _subscribers(membership: GroupMembership, state: ClusterState) -> Counter[str]:
    """How many members subscribe to each topic; many do so alike."""
    members = membership.members.values()
    alike = Counter(member.subscription for member in members)
    found = Counter[str]()
    for member in {one.subscription: one for one in members}.values():
        named = (
            state.topics if member.patterns else filter(state.topics.__contains__, member.topics)
        )
        for topic in named:
            if member.subscribes_to(topic):
                found[topic] += alike[member.subscription]
    return found


def _names(state: ClusterState) -> dict[int, str]:
    return {
        id: group.name for id in state.members.by_group if (group := state.group_of(id)) is not None
    }


def _counted(name: str, membership: GroupMembership) -> _Counted:
    rebalances = membership.rebalances
    return _Counted(
        name,
        rebalances.totals.by_cause,
        rebalances.totals.fenced,
        {rebalance.id: len(rebalance.moves) for rebalance in rebalances.known},
        frozenset(rebalance.id for rebalance in rebalances.known if rebalance.is_running),
    )

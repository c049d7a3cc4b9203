"""Figures of groups for Prometheus, counted from replicated state when someone looks.

Members and rebalances are told by whoever leads the cluster group, how far a group has come in a
partition by the partition's leader. Names and labels are GoQueue's where it has any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.groups import Group
from coordinator.holdings import HANDING
from coordinator.membership import SHARED, Membership
from coordinator.state import ClusterState
from delivery.partition import PartitionState
from goqueue.wire.types import GroupId
from node.metrics import Metrics
from node.queue_metrics import GROUPS_SHOWN_MAX, OTHERS

LAGS_SHOWN_MAX = 2000
"""Groups in partitions with labels of their own, of those led by one node; beyond it the partitions
of a topic are counted together."""
STATES = ("empty", "rebalancing", "stable")
COOPERATIVE = "cooperative"
"""The type of every rebalance."""


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
        names = _shown_names(state)
        self._counted = {id: _counted(names[id], one) for id, one in state.members.by_group.items()}

    def count(self, state: ClusterState) -> None:
        """Add what has happened since the last look."""
        names, memberships = _shown_names(state), state.members.by_group
        for id, membership in memberships.items():
            name = names[id]
            self._add(name, membership, self._counted.get(id, _Counted(name)))
            self._counted[id] = _counted(name, membership)
        for id in self._counted.keys() - memberships.keys():
            self._forget(self._counted.pop(id).name)
        self._clear()
        for id, membership in memberships.items():
            group = state.group_of(id)
            if group is not None:
                self._set_gauges(names[id], group, membership, state)

    def end(self) -> None:
        """Another node tells where groups stand."""
        self._counted = {}
        self._clear()

    def _add(self, name: str, membership: Membership, before: _Counted) -> None:
        metrics, totals = self._metrics, membership.rebalances.totals
        for cause, count in totals.by_cause.items():
            metrics.rebalances.labels(name, cause).inc(count - before.by_cause.get(cause, 0))
        metrics.fenced_partitions.labels(name).inc(totals.fenced - before.fenced)
        for rebalance in membership.rebalances.known:
            for move in rebalance.moves[before.moves.get(rebalance.id, 0) :]:
                if move.member:
                    metrics.partitions_assigned.labels(name).inc()
                if move.former:
                    metrics.partitions_revoked.labels(name).inc()
                    metrics.partition_pause.observe(move.pause_ms / 1000)
            is_new = rebalance.id not in before.moves or rebalance.id in before.running
            if is_new and not rebalance.is_running:
                took_s = (rebalance.ended_ms - rebalance.started_ms) / 1000
                metrics.rebalance_latency.labels(name, COOPERATIVE).observe(took_s)

    def _set_gauges(
        self, name: str, group: Group, membership: Membership, state: ClusterState
    ) -> None:
        metrics = self._metrics
        held = [(h.topic, h.member) for h in membership.holdings.values() if h.state != HANDING]
        metrics.group_members.labels(name).inc(len(membership.members))
        metrics.assigned_partitions.labels(name).inc(len(held))
        metrics.moving_partitions.labels(name).inc(sum(1 for _ in membership.moving()))
        if name != OTHERS:
            metrics.group_generation.labels(name).set(membership.generation)
            for told in STATES:
                metrics.group_state.labels(name, told).set(membership.state == told)
            longest_ms = membership.rebalances.totals.pause_ms_max
            metrics.partition_pause_max.labels(name).set(longest_ms / 1000)
        if group.settings.mode == SHARED:
            consumers = _subscribers(membership, state)
        else:
            consumers = Counter(topic for topic, _member in set(held))
        for topic, count in consumers.items():
            metrics.active_consumers.labels(topic, name).inc(count)

    def _clear(self) -> None:
        metrics = self._metrics
        for gauge in (
            metrics.group_members,
            metrics.group_generation,
            metrics.group_state,
            metrics.assigned_partitions,
            metrics.moving_partitions,
            metrics.partition_pause_max,
            metrics.active_consumers,
        ):
            gauge.clear()

    def _forget(self, name: str) -> None:
        """The group was deleted: its counters would stay for ever."""
        metrics = self._metrics
        for metric in (
            metrics.rebalances,
            metrics.fenced_partitions,
            metrics.partitions_assigned,
            metrics.partitions_revoked,
            metrics.rebalance_latency,
        ):
            if name != OTHERS:
                metric.remove_by_labels({"consumer_group": name})


class LedPartition(Protocol):
    """A partition led here, as far as its groups' figures go."""

    @property
    def id(self) -> GroupId: ...

    @property
    def topic(self) -> str: ...

    @property
    def state(self) -> PartitionState: ...

    def log_time_ms(self) -> int: ...


def set_lag_gauges(metrics: Metrics, led: Iterable[LedPartition]) -> None:
    """How far groups have come in the partitions led here."""
    lags, shown = Counter[tuple[str, str, str]](), set[str]()
    oldest: dict[tuple[str, str, str], int] = {}
    floors: dict[tuple[str, str, str], int] = {}
    for host in led:
        now_ms = host.log_time_ms()
        for group in host.state.queue.groups.values():
            if group.name not in shown and len(shown) < GROUPS_SHOWN_MAX:
                shown.add(group.name)
            name = group.name if group.name in shown else OTHERS
            key = (host.topic, str(host.id.partition), name)
            if len(lags) < LAGS_SHOWN_MAX:
                floors[key] = group.floor
            else:
                key = (host.topic, OTHERS, name)
            lags[key] += group.lag()
            oldest[key] = max(oldest.get(key, 0), group.oldest_ms(now_ms))
    for gauge in (metrics.lag_messages, metrics.lag_seconds, metrics.committed_offset):
        gauge.clear()
    for key, count in lags.items():
        metrics.lag_messages.labels(*key).set(count)
        metrics.lag_seconds.labels(*key).set(oldest[key] / 1000)
    for key, floor in floors.items():
        if key[2] != OTHERS:
            metrics.committed_offset.labels(*key).set(floor)


def _subscribers(membership: Membership, state: ClusterState) -> Counter[str]:
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


def _shown_names(state: ClusterState) -> dict[int, str]:
    """By group; the oldest groups have labels of their own."""
    names: dict[int, str] = {}
    for at, id in enumerate(sorted(state.members.by_group)):
        group = state.group_of(id)
        names[id] = group.name if group is not None and at < GROUPS_SHOWN_MAX else OTHERS
    return names


def _counted(name: str, membership: Membership) -> _Counted:
    rebalances = membership.rebalances
    return _Counted(
        name,
        rebalances.totals.by_cause,
        rebalances.totals.fenced,
        {rebalance.id: len(rebalance.moves) for rebalance in rebalances.known},
        frozenset(rebalance.id for rebalance in rebalances.known if rebalance.is_running),
    )

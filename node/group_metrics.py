"""Figures of groups' members for Prometheus, told by whoever leads the cluster group.

They are counted from replicated state when someone looks, as those of queues are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from coordinator.membership import Membership
from coordinator.state import ClusterState
from node.metrics import Metrics
from node.queue_metrics import GROUPS_SHOWN_MAX, OTHERS


@dataclass(slots=True)
class _Counted:
    """How far one group had come when it was looked at last; `moves` is by rebalance."""

    by_cause: Mapping[str, int] = field(default_factory=dict[str, int])
    moved: int = 0
    fenced: int = 0
    moves: dict[int, int] = field(default_factory=dict[int, int])


class GroupFigures:
    """What one leadership of the cluster group adds to the counters, and where groups stand."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counted: dict[int, _Counted] = {}

    def begin(self, state: ClusterState) -> None:
        """What happened so far was counted by other leaders."""
        self._counted = {id: _counted(one) for id, one in state.members.by_group.items()}

    def count(self, state: ClusterState) -> None:
        """Add what has happened since the last look."""
        memberships = state.members.by_group
        for id, membership in memberships.items():
            self._add(membership, self._counted.get(id, _Counted()))
            self._counted[id] = _counted(membership)
        for id in self._counted.keys() - memberships.keys():
            del self._counted[id]
        self._set_gauges(state)

    def end(self) -> None:
        """Another node tells where groups stand."""
        self._counted = {}
        self._metrics.group_members.clear()
        self._metrics.moving_partitions.set(0)

    def _add(self, membership: Membership, before: _Counted) -> None:
        metrics, totals = self._metrics, membership.rebalances.totals
        for cause, count in totals.by_cause.items():
            metrics.rebalances.labels(cause).inc(count - before.by_cause.get(cause, 0))
        if totals.moved == before.moved:
            return
        metrics.moved_partitions.inc(totals.moved - before.moved)
        metrics.fenced_partitions.inc(totals.fenced - before.fenced)
        for rebalance in membership.rebalances.known:
            for move in rebalance.moves[before.moves.get(rebalance.id, 0) :]:
                if move.former:
                    metrics.partition_pause.observe(move.pause_ms / 1000)

    def _set_gauges(self, state: ClusterState) -> None:
        members, moving = Counter[str](), 0
        for id, membership in state.members.by_group.items():
            group = state.group_of(id)
            if group is not None and membership.members:
                name = group.name if len(members) < GROUPS_SHOWN_MAX else OTHERS
                members[name] += len(membership.members)
            moving += sum(1 for _ in membership.moving())
        self._metrics.group_members.clear()
        for name, count in members.items():
            self._metrics.group_members.labels(name).set(count)
        self._metrics.moving_partitions.set(moving)


def _counted(membership: Membership) -> _Counted:
    rebalances = membership.rebalances
    totals = rebalances.totals
    moves = {rebalance.id: len(rebalance.moves) for rebalance in rebalances.known}
    return _Counted(totals.by_cause, totals.moved, totals.fenced, moves)

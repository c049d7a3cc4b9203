"""What the HTTP front asks of the node about the queue's figures: `Figures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from goqueue.wire.types import Offset
from node.api.rules.rule import scoped
from node.api.rules.scope import Scope


@dataclass(frozen=True, slots=True)
class GroupPartitionView:
    """A group in one partition. `lane_pending` counts what is ready, per lane; `lane_wait_ms` is
    how long the head of each lane has been ready."""

    topic: str
    partition: int
    committed_offset: Offset
    end: Offset
    ready: int
    in_flight: int
    waiting: int
    """Failed messages that wait for their backoff, and those behind another of their key."""
    dead: int
    acked: int
    nacked: int
    rejected: int
    expired: int
    redelivered: int
    delivered: int
    fallen: int
    """Unsettled messages that fell to retention."""
    halted: str
    lane_pending: Sequence[int]
    lane_wait_ms: Sequence[int]
    lane_wait_ms_max: Sequence[int]
    """The longest that any message of the lane has waited before it was delivered."""
    parked: Sequence[tuple[bytes, int]] = ()
    """(key, how many messages wait behind it)."""
    lane_wait_ms_sum: Sequence[int] = ()
    """Of the waits that were measured, `lane_waits` of them."""
    lane_waits: Sequence[int] = ()
    extended: int = 0
    died: int = 0
    """Ever; `dead` counts those that still are."""
    lag: int = 0
    """Messages that are due and not settled; `lag_ms` is for how long the oldest of them could have
    been delivered, at most a second too long."""
    lag_ms: int = 0
    delayed: int = 0
    """Messages that come once they are due."""
    owner: str = ""
    """The member that has the partition, nobody where it is empty, since `generation`."""
    generation: int = 0
    stale: bool = False
    """The partition's leader did not tell in time: these are figures of some replica's."""


@dataclass(frozen=True, slots=True)
class PartitionQueueStats:
    """Figures of one partition's queue, from its leader, since its state began."""

    topic: str
    partition: int
    stored_by_lane: Sequence[int]
    delayed: int
    delayed_next_ms: int
    scheduled: int
    """Ever stored with a delay."""
    released: int
    cancelled: int
    expired: int
    dedup_tracked: int
    dedup_hits: int
    groups: Mapping[str, GroupPartitionView] = field(default_factory=dict[str, GroupPartitionView])
    delay_ms_sum: int | None = None
    """Of all that were `scheduled`; None where it is not counted."""
    stale: bool = False
    """Its leader did not tell in time: these are figures of some replica's, or 0."""


def _queue_stats(scope: Scope, method: Any) -> Any:
    async def seen(topic: str | None = None) -> list[PartitionQueueStats]:
        if topic is not None:
            scope.principal.require(topic)
        known: dict[str, bool] = {}
        found = []
        for one in await method(topic):
            if not scope.principal.covers(one.topic):
                continue
            for group in one.groups.keys() - known.keys():
                known[group] = scope.sees(group)
            mine = {group: view for group, view in one.groups.items() if known[group]}
            found.append(replace(one, groups=mine))
        return found

    return seen


class Figures(Protocol):
    """Figures of queues, from the leaders of their partitions."""

    @scoped(_queue_stats)
    async def queue_stats(self, topic: str | None = None) -> list[PartitionQueueStats]:
        """From every leader that answers."""
        ...

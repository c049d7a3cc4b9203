"""A topic as a queue: what was stored, delayed and withdrawn, and where each group stands.

Figures are counted in the log: they survive restarts and changes of leaders.
"""

from __future__ import annotations

from aiohttp import web
from msgspec import Struct

from node.api.figures import GroupPartitionView, PartitionQueueStats
from node.http.request.call import Call, answer

_SUMS = (
    "lag",
    "ready",
    "in_flight",
    "waiting",
    "dead",
    "delivered",
    "redelivered",
    "acked",
    "nacked",
    "rejected",
    "expired",
)


class QueueGroup(Struct):
    """A group that takes part in the topic, over all partitions that told."""

    lag: int = 0
    lag_seconds: float = 0.0
    ready: int = 0
    in_flight: int = 0
    waiting: int = 0
    dead: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    nacked: int = 0
    rejected: int = 0
    expired: int = 0
    halted: int = 0
    """Partitions that are."""


class QueuePartition(Struct):
    """One partition. `stored_by_lane`: critical first. `stale`: its leader did not tell in time."""

    partition: int
    stored_by_lane: list[int]
    delayed: int
    scheduled: int
    released: int
    cancelled: int
    expired: int
    dedup_tracked: int
    dedup_hits: int
    stale: bool


class TopicQueue(Struct):
    """Sums over the partitions, and each of them. `delayed` wait for their time now; `scheduled`
    were ever stored with one, of which so many were `released`, `cancelled` or `expired`."""

    topic: str
    stored_by_lane: list[int]
    delayed: int
    scheduled: int
    released: int
    cancelled: int
    expired: int
    groups: dict[str, QueueGroup]
    partitions: list[QueuePartition]
    stale: bool


async def describe(call: Call) -> web.Response:
    """GET /topics/{topic}/queue"""
    topic = call.topic()
    found = await call.broker.figures.queue_stats(topic)
    groups: dict[str, QueueGroup] = {}
    for one in found:
        for name, place in one.groups.items():
            _add(groups.setdefault(name, QueueGroup()), place)
    rows = list(map(_partition, found))
    lanes = zip(*(row.stored_by_lane for row in rows), strict=True)
    return answer(
        TopicQueue(
            topic,
            [sum(lane) for lane in lanes],
            sum(row.delayed for row in rows),
            sum(row.scheduled for row in rows),
            sum(row.released for row in rows),
            sum(row.cancelled for row in rows),
            sum(row.expired for row in rows),
            dict(sorted(groups.items())),
            rows,
            any(row.stale for row in rows),
        )
    )


def _add(group: QueueGroup, place: GroupPartitionView) -> None:
    for name in _SUMS:
        setattr(group, name, getattr(group, name) + getattr(place, name))
    group.lag_seconds = max(group.lag_seconds, place.lag_ms / 1000)
    group.halted += bool(place.halted)


def _partition(one: PartitionQueueStats) -> QueuePartition:
    return QueuePartition(
        one.partition,
        list(one.stored_by_lane),
        one.delayed,
        one.scheduled,
        one.released,
        one.cancelled,
        one.expired,
        one.dedup_tracked,
        one.dedup_hits,
        one.stale,
    )

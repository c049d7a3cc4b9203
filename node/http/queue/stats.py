"""Figures of the queue, added up over all partitions: delays, lanes, and what became of messages.

Each answer holds what GoQueue's server says and what its clients read, and our own beside them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from aiohttp import web
from msgspec import Struct

from goqueue.wire.batch import LANES
from node.api.figures import GroupPartitionView, PartitionQueueStats
from node.api.times import format_time, format_uptime
from node.http.request.call import Call, answer

WAIT_FORMULA = "lane_max_wait + lane_share * (backlog + 1) / rate"
"""A lower lane's longest wait: `backlog` older messages are ready in it and the other lower lanes,
the group takes `rate` messages a second. See `delivery.offsets.lanes`."""


class TopicDelays(Struct):
    scheduled: int
    delivered: int
    cancelled: int
    expired: int
    pending: int
    next_due: str | None


class TimerWheel(Struct):
    total_scheduled: int
    total_expired: int
    total_canceled: int
    current_active: int
    next_due: str | None


class DelayStats(Struct):
    """Delayed messages; `by_topic` counts the pending ones, `avg_delay` is empty if unknown.
    `stale`: some leaders did not tell their figures in time."""

    total_scheduled: int
    total_delivered: int
    total_canceled: int
    total_pending: int
    pending_count: int
    delivered_count: int
    cancelled_count: int
    canceled_count: int
    expired_count: int
    avg_delay: str
    by_topic: dict[str, int]
    topics: dict[str, TopicDelays]
    timer_wheel: TimerWheel
    stale: bool


class PartitionLanes(Struct):
    """By lane, critical first. `pending` is what the group furthest behind has yet to get; without
    groups it is all that is stored."""

    pending: list[int]
    consumed: list[int]
    total: list[int]
    oldest_pending: list[str]


class TopicLanes(Struct):
    total_by_priority: list[int]
    partitions: dict[str, PartitionLanes]


class LaneWaits(Struct):
    """One lane of a group in a partition: how long its head has been ready, the longest any message
    waited, and the mean."""

    pending: int
    wait_ms: int
    wait_ms_max: int
    wait_ms_mean: float


class GroupLanes(Struct):
    """What a group's longest wait follows from; `delivered` gives the rate, read twice."""

    group: str
    topic: str
    partition: int
    lane_max_wait_ms: int
    lane_share: int
    backlog: int
    delivered: int
    lanes: dict[str, LaneWaits]


class PriorityStats(Struct):
    """Lanes; lists are in the order of `lanes`. No message of a group waits longer than
    `wait_formula` says of its entry in `groups`. `stale`: some leaders did not tell in time."""

    lanes: list[str]
    total_by_priority: list[int]
    messages_by_priority: dict[str, int]
    avg_wait_time_by_priority: dict[str, str]
    max_wait_time_by_priority: dict[str, str]
    topics: dict[str, TopicLanes]
    wait_formula: str
    groups: list[GroupLanes]
    stale: bool


class AckManager(Struct):
    total_acks: int
    total_nacks: int
    total_rejects: int
    total_expired: int
    total_retries: int
    total_dlq: int
    current_queued: int


class VisibilityTracker(Struct):
    total_tracked: int
    current_in_flight: int
    total_expired: int
    total_acked: int
    total_extended: int


class DeadLetterStats(Struct):
    """`current` are dead now; routes are of these. Nothing is copied, so nothing fails."""

    total_routed: int
    current: int
    routes_by_reason: dict[str, int]
    routes_by_topic: dict[str, int]
    routes_by_group: dict[str, int]
    create_errors: int
    publish_errors: int


class DedupStats(Struct):
    """Message ids remembered now, and duplicates that were refused."""

    tracked: int
    hits: int


class ReliabilityStats(Struct):
    """What became of messages that were delivered, over all groups. `stale`: some leaders did not
    tell in time."""

    ack_manager: AckManager
    visibility_tracker: VisibilityTracker
    dlq: DeadLetterStats
    dedup: DedupStats
    acks_total: int
    nacks_total: int
    rejects_total: int
    dlq_messages: int
    visibility_extensions: int
    expired_total: int
    delivered_total: int
    redelivered_total: int
    in_flight: int
    fallen_total: int
    stale: bool


async def delays(call: Call) -> web.Response:
    found = await call.broker.figures.queue_stats()
    topics = {
        topic: _topic_delays([stats for stats in found if stats.topic == topic])
        for topic in sorted({stats.topic for stats in found})
    }
    scheduled = sum(stats.scheduled for stats in found)
    delivered = sum(stats.released for stats in found)
    cancelled = sum(stats.cancelled for stats in found)
    pending = sum(stats.delayed for stats in found)
    return answer(
        DelayStats(
            total_scheduled=scheduled,
            total_delivered=delivered,
            total_canceled=cancelled,
            total_pending=pending,
            pending_count=pending,
            delivered_count=delivered,
            cancelled_count=cancelled,
            canceled_count=cancelled,
            expired_count=sum(stats.expired for stats in found),
            avg_delay=_average_delay(found, scheduled),
            by_topic={name: topic.pending for name, topic in topics.items() if topic.pending},
            topics=topics,
            timer_wheel=TimerWheel(scheduled, delivered, cancelled, pending, _next_due(found)),
            stale=any(stats.stale for stats in found),
        )
    )


async def priorities(call: Call) -> web.Response:
    found, views = await asyncio.gather(
        call.broker.figures.queue_stats(), call.broker.groups.list_groups()
    )
    settings = {view.name: view.settings for view in views}
    totals = _by_lane(stats.stored_by_lane for stats in found)
    places = [(name, place) for stats in found for name, place in stats.groups.items()]
    sums = _by_lane(place.lane_wait_ms_sum for _, place in places)
    waits = _by_lane(place.lane_waits for _, place in places)
    longest = [
        max((_at(place.lane_wait_ms_max, lane) for _, place in places), default=0)
        for lane in range(len(LANES))
    ]
    return answer(
        PriorityStats(
            lanes=list(LANES),
            total_by_priority=totals,
            messages_by_priority=dict(zip(LANES, totals, strict=True)),
            avg_wait_time_by_priority={
                name: format_uptime(sums[lane] / max(1, waits[lane]) / 1000)
                for lane, name in enumerate(LANES)
            },
            max_wait_time_by_priority={
                name: format_uptime(longest[lane] / 1000) for lane, name in enumerate(LANES)
            },
            topics=_topic_lanes(found, time.time_ns() // 1_000_000),
            wait_formula=WAIT_FORMULA,
            groups=[
                _group_lanes(name, place, settings[name])
                for name, place in places
                if name in settings
            ],
            stale=any(stats.stale for stats in found),
        )
    )


async def reliability(call: Call) -> web.Response:
    found = await call.broker.figures.queue_stats()
    places = [place for stats in found for place in stats.groups.values()]
    sums = Counter[str]()
    for place in places:
        for name in _COUNTED:
            sums[name] += getattr(place, name)
    return answer(
        ReliabilityStats(
            ack_manager=AckManager(
                sums["acked"],
                sums["nacked"],
                sums["rejected"],
                sums["expired"],
                sums["redelivered"],
                sums["died"],
                sums["waiting"],
            ),
            visibility_tracker=VisibilityTracker(
                sums["delivered"],
                sums["in_flight"],
                sums["expired"],
                sums["acked"],
                sums["extended"],
            ),
            dlq=await _dead(call, found, sums["died"], sums["dead"]),
            dedup=DedupStats(
                sum(stats.dedup_tracked for stats in found),
                sum(stats.dedup_hits for stats in found),
            ),
            acks_total=sums["acked"],
            nacks_total=sums["nacked"],
            rejects_total=sums["rejected"],
            dlq_messages=sums["dead"],
            visibility_extensions=sums["extended"],
            expired_total=sums["expired"],
            delivered_total=sums["delivered"],
            redelivered_total=sums["redelivered"],
            in_flight=sums["in_flight"],
            fallen_total=sums["fallen"],
            stale=any(stats.stale for stats in found),
        )
    )


_COUNTED = (
    "acked",
    "nacked",
    "rejected",
    "expired",
    "redelivered",
    "delivered",
    "extended",
    "died",
    "dead",
    "waiting",
    "in_flight",
    "fallen",
)


async def _dead(
    call: Call, found: Sequence[PartitionQueueStats], died: int, dead: int
) -> DeadLetterStats:
    reasons, topics, groups = Counter[str](), Counter[str](), Counter[str]()
    for stats in found:
        for name, place in stats.groups.items():
            topics[stats.topic] += place.dead
            groups[name] += place.dead
    having = [topic for topic, count in topics.items() if count]
    for counts in await asyncio.gather(*map(call.broker.letters.dead_groups, having)):
        for by_reason in counts.values():
            reasons.update(by_reason)
    return DeadLetterStats(died, dead, dict(reasons), dict(+topics), dict(+groups), 0, 0)


def _topic_delays(found: Sequence[PartitionQueueStats]) -> TopicDelays:
    return TopicDelays(
        sum(stats.scheduled for stats in found),
        sum(stats.released for stats in found),
        sum(stats.cancelled for stats in found),
        sum(stats.expired for stats in found),
        sum(stats.delayed for stats in found),
        _next_due(found),
    )


def _next_due(found: Iterable[PartitionQueueStats]) -> str | None:
    times = [stats.delayed_next_ms for stats in found if stats.delayed_next_ms]
    return format_time(min(times)) if times else None


def _average_delay(found: Iterable[PartitionQueueStats], scheduled: int) -> str:
    known = [stats.delay_ms_sum for stats in found]
    if any(total is None for total in known):
        return ""
    return format_uptime(sum(total or 0 for total in known) / max(1, scheduled) / 1000)


def _topic_lanes(found: Sequence[PartitionQueueStats], now_ms: int) -> dict[str, TopicLanes]:
    topics: dict[str, TopicLanes] = {}
    for stats in found:
        topic = topics.setdefault(stats.topic, TopicLanes([0] * len(LANES), {}))
        stored = _by_lane([stats.stored_by_lane])
        topic.total_by_priority = _by_lane([topic.total_by_priority, stored])
        places = list(stats.groups.values())
        pending = [
            max((_at(place.lane_pending, lane) for place in places), default=stored[lane])
            for lane in range(len(LANES))
        ]
        oldest = [
            max(
                (_at(p.lane_wait_ms, lane) for p in places if _at(p.lane_pending, lane)), default=-1
            )
            for lane in range(len(LANES))
        ]
        topic.partitions[str(stats.partition)] = PartitionLanes(
            pending,
            [max(0, total - left) for total, left in zip(stored, pending, strict=True)],
            stored,
            ["" if wait_ms < 0 else format_time(now_ms - wait_ms) for wait_ms in oldest],
        )
    return topics


def _group_lanes(name: str, place: GroupPartitionView, settings: Any) -> GroupLanes:
    pending = _by_lane([place.lane_pending])
    sums, waits = _by_lane([place.lane_wait_ms_sum]), _by_lane([place.lane_waits])
    return GroupLanes(
        group=name,
        topic=place.topic,
        partition=place.partition,
        lane_max_wait_ms=settings["lane_max_wait_ms"],
        lane_share=settings["lane_share"],
        backlog=sum(pending[1:]),
        delivered=place.delivered,
        lanes={
            lane_name: LaneWaits(
                pending[lane],
                _at(place.lane_wait_ms, lane),
                _at(place.lane_wait_ms_max, lane),
                sums[lane] / max(1, waits[lane]),
            )
            for lane, lane_name in enumerate(LANES)
        },
    )


def _by_lane(rows: Iterable[Sequence[int]]) -> list[int]:
    """Sums by lane; a row may have fewer lanes, then they are the first ones."""
    sums = [0] * len(LANES)
    for row in rows:
        for lane, figure in enumerate(row):
            sums[lane] += figure
    return sums


def _at(row: Sequence[int], lane: int) -> int:
    return row[lane] if lane < len(row) else 0

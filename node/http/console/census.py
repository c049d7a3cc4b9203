"""Figures of topics and groups over the whole cluster, and what they change by: rates.

Every figure comes from the leaders of the partitions, whichever node asks, so pages on two nodes
say the same. A topic is asked for only while somebody looks, at most once a second however many.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from goqueue.wire.batch import LANES
from goqueue.wire.errors import GoQueueError
from node.api.broker import Broker
from node.api.figures import GroupPartitionView, PartitionQueueStats

FRESH_S = 1.0
"""A topic is not asked for again sooner."""
POINTS_MAX = 150
"""Rates that are remembered of one topic: five minutes of one who looks."""
WINDOW_S = 15.0
"""Rates in tables are of about so long."""
ASK_S = 2.0
AT_ONCE = 16
"""Topics that are asked for side by side."""

Counters = tuple[int, int, int]
"""Published, delivered, settled: ever, in one partition."""


@dataclass(slots=True)
class GroupFigures:
    """A group in one topic, over all of its partitions that answer."""

    group: str
    topic: str
    lag: int = 0
    lag_ms: int = 0
    ready: int = 0
    in_flight: int = 0
    waiting: int = 0
    delayed: int = 0
    dead: int = 0
    halted: int = 0
    """Partitions that are."""
    parked: int = 0
    """Keys that are."""
    partitions: int = 0
    pending: list[int] = field(default_factory=lambda: [0] * len(LANES))
    """Ready messages by lane, critical first."""
    wait_ms: list[int] = field(default_factory=lambda: [0] * len(LANES))
    """How long the head of each lane has been ready, where it is longest."""
    wait_ms_max: list[int] = field(default_factory=lambda: [0] * len(LANES))


@dataclass(frozen=True, slots=True)
class Point:
    """Rates, in messages a second, between one look and the next at `time_ms`."""

    time_ms: int
    published: float
    delivered: float
    settled: float


@dataclass(slots=True)
class TopicFigures:
    """A topic as it was at `time_s` of the monotonic clock. `answered` of its `partitions` told."""

    topic: str
    time_s: float
    partitions: int
    answered: int
    stored: list[int]
    delayed: int
    delayed_next_ms: int
    groups: dict[str, GroupFigures]
    published_rate: float | None = None
    delivered_rate: float | None = None
    settled_rate: float | None = None

    @property
    def pending(self) -> list[int]:
        """By lane, what the group that is furthest behind has yet to get; None has it without
        groups."""
        furthest = max(self.groups.values(), key=lambda one: one.lag, default=None)
        return [0] * len(LANES) if furthest is None else furthest.pending

    @property
    def dead(self) -> int:
        return sum(group.dead for group in self.groups.values())


@dataclass(frozen=True, slots=True)
class Sweep:
    """All topics that are known; `missing` were not reached yet, `oldest_s` is the oldest's age."""

    topics: Sequence[TopicFigures]
    missing: int
    oldest_s: float


@dataclass(slots=True)
class _Watched:
    figures: TopicFigures | None = None
    counters: dict[int, Counters] = field(default_factory=dict)
    points: deque[tuple[float, Point]] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    tried_s: float = float("-inf")
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Census:
    """What was asked of late. It holds a few figures a topic and group, none a message."""

    def __init__(
        self,
        broker: Broker,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._broker = broker
        self._clock_s = clock_s
        self._wall_ms = wall_ms
        self._watched: dict[str, _Watched] = {}
        self._sweeping = asyncio.Lock()

    async def topic(self, name: str) -> TopicFigures:
        """As of a second ago at most. Raises `UnknownTopic`, and whatever keeps leaders from
        answering, where nothing is known of before."""
        self._broker.topics.partition_count(name)  # only topics that are there are remembered
        watched = self._watched.setdefault(name, _Watched())
        async with watched.asking:
            if self._clock_s() - watched.tried_s >= FRESH_S:
                watched.tried_s = self._clock_s()
                try:
                    async with asyncio.timeout(ASK_S):
                        asked = await self._broker.figures.queue_stats(name)
                    found = [one for one in asked if not one.stale]
                except (GoQueueError, TimeoutError):
                    found = []
                if found or watched.figures is None:
                    self._take(name, watched, found)
        assert watched.figures is not None, "taken above"
        return watched.figures

    def points(self, name: str) -> list[Point]:
        """Rates of the last minutes, as far as somebody looked."""
        watched = self._watched.get(name)
        return [] if watched is None else [point for _, point in watched.points]

    async def all(self, within_s: float = 1.5, fresh_s: float = 5.0) -> Sweep:
        """Every topic. The oldest are asked for again, for as long as there is time; the rest is
        for the next who looks."""
        names = self._broker.topics.list_topics()
        async with self._sweeping:
            await self._refresh(names, within_s, fresh_s)
        now_s = self._clock_s()
        figures = [
            watched.figures
            for name in names
            if (watched := self._watched.get(name)) is not None and watched.figures is not None
        ]
        oldest_s = max((now_s - one.time_s for one in figures), default=0.0)
        return Sweep(figures, len(names) - len(figures), oldest_s)

    async def some(self, names: Iterable[str]) -> dict[str, TopicFigures]:
        """These topics, without those that are gone by now."""
        wanted = list(names)
        found: dict[str, TopicFigures] = {}
        for at in range(0, len(wanted), AT_ONCE):
            chunk = wanted[at : at + AT_ONCE]
            answers = await asyncio.gather(*map(self._known, chunk))
            found.update(
                (name, one) for name, one in zip(chunk, answers, strict=True) if one is not None
            )
        return found

    async def _known(self, name: str) -> TopicFigures | None:
        try:
            return await self.topic(name)
        except GoQueueError:
            return None

    async def _refresh(self, names: Sequence[str], within_s: float, fresh_s: float) -> None:
        present = set(names)
        for gone in [name for name in self._watched if name not in present]:
            del self._watched[gone]
        end_s = self._clock_s() + within_s
        known = self._watched
        ages = {name: known[name].tried_s if name in known else float("-inf") for name in names}
        due = sorted(
            (name for name in names if end_s - within_s - ages[name] >= fresh_s),
            key=ages.__getitem__,
        )
        for at in range(0, len(due), AT_ONCE):
            if self._clock_s() >= end_s:
                return
            await asyncio.gather(*map(self._known, due[at : at + AT_ONCE]))

    def _take(self, name: str, watched: _Watched, found: Sequence[PartitionQueueStats]) -> None:
        now_s, before = self._clock_s(), watched.figures
        counters = {one.partition: _counters(one) for one in found}
        if before is not None and now_s > before.time_s:
            passed_s = now_s - before.time_s
            grown = [0, 0, 0]
            for partition, after in counters.items():
                for at, value in enumerate(watched.counters.get(partition, after)):
                    grown[at] += max(0, after[at] - value)
            watched.points.append(
                (now_s, Point(self._wall_ms(), *(round(one / passed_s, 2) for one in grown)))
            )
        watched.counters.update(counters)
        watched.figures = figures = _figures(
            name, now_s, self._broker.topics.partition_count(name), found
        )
        recent = [point for at_s, point in watched.points if now_s - at_s < WINDOW_S]
        if recent:
            figures.published_rate = sum(point.published for point in recent) / len(recent)
            figures.delivered_rate = sum(point.delivered for point in recent) / len(recent)
            figures.settled_rate = sum(point.settled for point in recent) / len(recent)


def _counters(one: PartitionQueueStats) -> Counters:
    groups = one.groups.values()
    return (
        sum(one.stored_by_lane),
        sum(group.delivered for group in groups),
        sum(group.acked + group.rejected + group.died for group in groups),
    )


def _figures(
    name: str, now_s: float, partitions: int, found: Sequence[PartitionQueueStats]
) -> TopicFigures:
    groups: dict[str, GroupFigures] = {}
    stored = [0] * len(LANES)
    for one in found:
        for lane, count in enumerate(one.stored_by_lane):
            stored[lane] += count
        for group, place in one.groups.items():
            _add(groups.setdefault(group, GroupFigures(group, name)), place)
    due = [one.delayed_next_ms for one in found if one.delayed_next_ms]
    delayed = sum(one.delayed for one in found)
    return TopicFigures(
        name, now_s, partitions, len(found), stored, delayed, min(due, default=0), groups
    )


def _add(figures: GroupFigures, place: GroupPartitionView) -> None:
    figures.partitions += 1
    figures.lag += place.lag
    figures.lag_ms = max(figures.lag_ms, place.lag_ms)
    figures.ready += place.ready
    figures.in_flight += place.in_flight
    figures.waiting += place.waiting
    figures.delayed += place.delayed
    figures.dead += place.dead
    figures.halted += bool(place.halted)
    figures.parked += len(place.parked)
    for lane, count in enumerate(place.lane_pending):
        figures.pending[lane] += count
    for lane, wait_ms in enumerate(place.lane_wait_ms):
        figures.wait_ms[lane] = max(figures.wait_ms[lane], wait_ms)
    for lane, wait_ms in enumerate(place.lane_wait_ms_max):
        figures.wait_ms_max[lane] = max(figures.wait_ms_max[lane], wait_ms)

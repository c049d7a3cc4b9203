"""The queue's figures for Prometheus, counted from replicated state when someone looks.

Nothing is counted while messages flow: each leader remembers how far a group's tally had come, and
adds what has come to it since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Protocol

from delivery.config import LANES_COUNT
from delivery.group.counters import Counters
from delivery.state.partition import PartitionState
from delivery.state.queue import QueueState
from goqueue.wire.batch import LANES
from node.metrics import Metrics
from node.metrics.family import Counter

_COUNTED = (
    "delivered",
    "acked",
    "nacked",
    "rejected",
    "redelivered",
    "extended",
    "expired",
    "fenced",
    "dead",
    "withdrawn",
    "fallen",
)
"""Figures of a tally, in the order of `_counters`."""
_figures: Callable[[Counters], tuple[int, ...]] = attrgetter(*_COUNTED)
_NOTHING = (0,) * len(_COUNTED)
_NO_LANES = (0,) * LANES_COUNT


class LedQueue(Protocol):
    """A partition led here, as far as its figures go."""

    @property
    def topic(self) -> str: ...

    @property
    def state(self) -> PartitionState: ...

    def log_time_ms(self) -> int: ...


class _Counted:
    """How far one group had come at the last look."""

    __slots__ = ("figures", "wait_ms", "waits")

    def __init__(self, counters: Counters | None = None) -> None:
        self.figures: tuple[int, ...] = _NOTHING if counters is None else _figures(counters)
        self.waits: Sequence[int] = _NO_LANES if counters is None else list(counters.waits)
        self.wait_ms: Sequence[int] = _NO_LANES if counters is None else list(counters.wait_ms_sum)


class PartitionCounters:
    """What one leadership has added to the counters of its topic."""

    def __init__(self, topic: str, state: PartitionState, metrics: Metrics) -> None:
        self._topic = topic
        self._state = state
        self._metrics = metrics
        self._counters = _counters(metrics)
        self._counted: dict[int, _Counted] = {}
        self._stored: tuple[int, ...] = _NO_LANES
        self._delays = (0, 0)
        self._evicted: dict[str, int] = {}

    def begin(self) -> None:
        """What was done so far was counted by other leaders."""
        queue = self._state.queue
        self._counted = {id: _Counted(group.counters) for id, group in queue.groups.items()}
        for group in queue.groups.values():
            self._show(group.name)
        self._stored, self._delays = tuple(queue.stored_by_lane), (queue.scheduled, queue.released)
        self._evicted = self._state.evicted()
        for kind in self._evicted:
            self._metrics.broker.dedup_evictions.labels(self._topic, kind)

    def count(self) -> None:
        """Add what has been done since the last look."""
        queue = self._state.queue
        self._count_stored(queue)
        self._count_evicted()
        groups = queue.groups
        for id, group in groups.items():
            if id not in self._counted:
                self._show(group.name)
            before = self._counted.get(id) or _Counted()
            if _figures(group.counters) != before.figures:
                after = self._counted[id] = _Counted(group.counters)
                self._add(group.name, before, after)
        for id in self._counted.keys() - groups.keys():
            del self._counted[id]

    def _show(self, group: str) -> None:
        """Zeros, before anything happens: Prometheus sees no first event of a series."""
        for counter in self._counters:
            counter.labels(self._topic, group)

    def _count_stored(self, queue: QueueState) -> None:
        broker, topic = self._metrics.broker, self._topic
        stored, delays = tuple(queue.stored_by_lane), (queue.scheduled, queue.released)
        if stored != self._stored:
            for lane, more in zip(LANES, _more(stored, self._stored), strict=True):
                if more:
                    broker.priority_messages_published.labels(topic, lane).inc(more)
            self._stored = stored
        if delays != self._delays:
            scheduled, fired = _more(delays, self._delays)
            broker.delayed_scheduled.labels(topic).inc(scheduled)
            broker.delayed_fired.labels(topic).inc(fired)
            self._delays = delays

    def _count_evicted(self) -> None:
        evicted = self._state.evicted()
        for kind, count in evicted.items():
            if (more := count - self._evicted.get(kind, 0)) > 0:  # a copy begins again at 0
                self._metrics.broker.dedup_evictions.labels(self._topic, kind).inc(more)
        self._evicted = evicted

    def _add(self, group: str, before: _Counted, after: _Counted) -> None:
        metrics, topic = self._metrics, self._topic
        figures = _more(after.figures, before.figures)
        for counter, more in zip(self._counters, figures, strict=True):
            if more:
                counter.labels(topic, group).inc(more)
        waits, wait_ms = _more(after.waits, before.waits), _more(after.wait_ms, before.wait_ms)
        for lane, more, more_ms in zip(LANES, waits, wait_ms, strict=True):
            if more:
                metrics.queue.lane_waits.labels(topic, lane).inc(more)
                metrics.queue.lane_wait_seconds.labels(topic, lane).inc(more_ms / 1000)


def tell_queue(metrics: Metrics, led: LedQueue) -> Iterator[None]:
    """Where a queue led here stands; after each of its groups the loop may be given back."""
    topic, queue, now_ms = led.topic, led.state.queue, led.log_time_ms()
    metrics.broker.delayed_pending.add(len(queue.hidden), topic)
    figures = metrics.queue
    for group in list(queue.groups.values()):
        figures.in_flight_messages.add(len(group.leases), topic, group.name)
        figures.dead_letters.add(len(group.dead), topic, group.name)
        figures.halted_partitions.add(bool(group.halted), topic, group.name)
        counts = group.ready.counts() if group.ready_count() else _NO_LANES
        heads, longest = group.lane_heads(now_ms), group.counters.wait_ms_max
        for lane, ready, head_ms, wait_ms in zip(LANES, counts, heads, longest, strict=True):
            figures.ready_messages.add(ready, topic, lane)
            figures.lane_head_wait.most(head_ms / 1000, topic, lane)
            figures.lane_longest_wait.most(wait_ms / 1000, topic, lane)
        yield


def _counters(metrics: Metrics) -> tuple[Counter, ...]:
    broker, queue = metrics.broker, metrics.queue
    return (
        broker.messages_consumed,
        broker.messages_acked,
        broker.messages_nacked,
        broker.messages_rejected,
        queue.redelivered_messages,
        queue.extended_leases,
        queue.expired_leases,
        queue.fenced_leases,
        queue.died_messages,
        queue.withdrawn_messages,
        queue.fallen_messages,
    )


def _more(now: Sequence[int], before: Sequence[int]) -> list[int]:
    return [max(0, new - old) for new, old in zip(now, before, strict=True)]

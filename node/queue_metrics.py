"""The queue's figures for Prometheus, counted from replicated state when someone looks.

Nothing is counted while messages flow: each leader remembers how far a group's tally had come, and
adds what has come to it since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Protocol

from delivery.group import GroupState
from delivery.partition import PartitionState
from delivery.tally import Tally
from goqueue.wire.batch import LANES
from node.metrics import Metrics

GROUPS_SHOWN_MAX = 100
"""Consumer groups with a label of their own; the others are counted together."""
OTHERS = "other"

_SETTLES = {"ack": "acked", "nack": "nacked", "reject": "rejected", "extend": "extended"}


class LedQueue(Protocol):
    """A partition led here, as far as its figures go."""

    @property
    def topic(self) -> str: ...

    @property
    def state(self) -> PartitionState: ...

    def log_time_ms(self) -> int: ...


class PartitionTally:
    """What one leadership has added to the counters of its topic."""

    def __init__(self, topic: str, state: PartitionState, metrics: Metrics) -> None:
        self._topic = topic
        self._state = state
        self._metrics = metrics
        self._counted: dict[int, dict[str, int]] = {}

    def begin(self) -> None:
        """What was done so far was counted by other leaders."""
        groups = self._state.queue.groups
        self._counted = {id: _figures(group.tally) for id, group in groups.items()}

    def count(self) -> None:
        """Add what has been done since the last look."""
        groups = self._state.queue.groups
        for id, group in groups.items():
            now = _figures(group.tally)
            before = self._counted.get(id, {})
            self._counted[id] = now
            self._add({name: max(0, now[name] - before.get(name, 0)) for name in now})
        for id in self._counted.keys() - groups.keys():
            del self._counted[id]

    def _add(self, more: dict[str, int]) -> None:
        metrics, topic = self._metrics, self._topic
        metrics.delivered_messages.labels(topic).inc(more["delivered"])
        metrics.redelivered_messages.labels(topic).inc(more["redelivered"])
        metrics.expired_leases.labels(topic).inc(more["expired"])
        metrics.died_messages.labels(topic).inc(more["dead"])
        metrics.withdrawn_messages.labels(topic).inc(more["withdrawn"])
        metrics.fallen_messages.labels(topic).inc(more["fallen"])
        for action, name in _SETTLES.items():
            metrics.settled_messages.labels(topic, action).inc(more[name])


def set_queue_gauges(metrics: Metrics, led: Iterable[LedQueue]) -> None:
    """Where the queues led here stand."""
    in_flight, dead, pending = Counter[tuple[str, str]](), Counter[tuple[str, str]](), _PerLane()
    heads, longest, delayed = _PerLane(), _PerLane(), Counter[str]()
    shown: set[str] = set()
    for host in led:
        queue, now_ms = host.state.queue, host.log_time_ms()
        delayed[host.topic] += len(queue.hidden)
        for group in queue.groups.values():
            key = (host.topic, _shown(group, shown))
            in_flight[key] += len(group.leases)
            dead[key] += len(group.dead)
            pending.add(host.topic, group.ready.counts() if group.ready_count() else ())
            heads.most(host.topic, group.lane_heads(now_ms))
            longest.most(host.topic, group.tally.wait_ms_max)
    _clear(metrics)
    for (topic, name), count in in_flight.items():
        metrics.in_flight_messages.labels(topic, name).set(count)
    for (topic, name), count in dead.items():
        metrics.dead_letters.labels(topic, name).set(count)
    for topic, count in delayed.items():
        metrics.delayed_messages.labels(topic).set(count)
    for topic, lane, count in pending.each():
        metrics.ready_messages.labels(topic, lane).set(count)
    for topic, lane, wait_ms in heads.each():
        metrics.lane_head_wait_seconds.labels(topic, lane).set(wait_ms / 1000)
    for topic, lane, wait_ms in longest.each():
        metrics.lane_longest_wait_seconds.labels(topic, lane).set(wait_ms / 1000)


def _clear(metrics: Metrics) -> None:
    """What is led elsewhere by now is told there."""
    for gauge in (
        metrics.in_flight_messages,
        metrics.dead_letters,
        metrics.delayed_messages,
        metrics.ready_messages,
        metrics.lane_head_wait_seconds,
        metrics.lane_longest_wait_seconds,
    ):
        gauge.clear()


class _PerLane:
    """One figure per lane for each topic."""

    def __init__(self) -> None:
        self.topics: dict[str, list[int]] = {}

    def add(self, topic: str, values: Iterable[int]) -> None:
        known = self.topics.setdefault(topic, [0] * len(LANES))
        for lane, value in enumerate(values):
            known[lane] += value

    def each(self) -> Iterator[tuple[str, str, int]]:
        """(topic, lane, figure) of all."""
        for topic, values in self.topics.items():
            for lane, value in zip(LANES, values, strict=True):
                yield topic, lane, value

    def most(self, topic: str, values: Iterable[int]) -> None:
        known = self.topics.setdefault(topic, [0] * len(LANES))
        for lane, value in enumerate(values):
            known[lane] = max(known[lane], value)


def _figures(tally: Tally) -> dict[str, int]:
    names = (*_SETTLES.values(), "delivered", "redelivered", "expired", "dead", "withdrawn")
    return {name: getattr(tally, name) for name in (*names, "fallen")}


def _shown(group: GroupState, shown: set[str]) -> str:
    if group.name in shown or len(shown) < GROUPS_SHOWN_MAX:
        shown.add(group.name)
        return group.name
    return OTHERS

"""How far groups have come in the partitions led here, for Prometheus, measured at each look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from delivery.group.lag import lag_count, lag_ms
from delivery.group.state import GroupState
from goqueue.wire.types import PartitionId
from node.metrics import Metrics


class LedPartition(Protocol):
    """A partition led here, as far as its groups' figures go."""

    @property
    def id(self) -> PartitionId: ...

    @property
    def topic(self) -> str: ...

    def log_time_ms(self) -> int: ...


def tell_lag(metrics: Metrics, led: LedPartition, groups: Iterable[GroupState]) -> Iterator[None]:
    """In messages, and in seconds by the log's own time, of all that take part in the topic
    (`node.queue.lag`); after each group the loop may be given back."""
    consumer, topic, partition = metrics.consumer, led.topic, str(led.id.partition)
    now_ms = led.log_time_ms()
    for group in groups:
        name, lag, seconds = group.name, lag_count(group), lag_ms(group, now_ms) / 1000
        consumer.committed_offset.put(group.committed_offset, topic, partition, name)
        consumer.group_offset.put(group.committed_offset, name, topic, partition)
        consumer.group_lag.add(lag, name, topic, partition)
        consumer.group_lag_seconds.most(seconds, name, topic, partition)
        consumer.group_max_lag.most(lag, name)
        consumer.group_max_lag_seconds.most(seconds, name)
        consumer.group_sum_lag.add(lag, name)
        consumer.group_topic_sum_lag.add(lag, name, topic)
        yield

"""What groups' consumers asked of this node, for Prometheus. Only groups and topics that exist get
series: clients may name others without end."""

from __future__ import annotations

from node.metrics import Metrics
from node.metrics.family import OTHER

LEAVE = "leave"


class RequestMetrics:
    """Loop thread only."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def failed(self, topic: str, code: str, count: int, *, is_known: bool) -> None:
        """Messages were not stored, or nobody can say whether they were."""
        broker = self._metrics.broker
        broker.messages_failed.labels(topic if is_known else OTHER, code).inc(count)

    def polled(self, group: str, count: int, took_s: float) -> None:
        """A poll, or a receive, was answered with so many messages."""
        consumer = self._metrics.consumer
        consumer.polls.labels(group).inc()
        consumer.poll_latency.labels(group).observe(took_s)
        if count:
            consumer.poll_batch_size.labels(group).observe(count)
        else:
            consumer.polls_empty.labels(group).inc()

    def joined(self, group: str) -> None:
        self._metrics.consumer.group_joins.labels(group).inc()

    def left(self, group: str) -> None:
        self._metrics.consumer.group_leaves.labels(group, LEAVE).inc()

    def heartbeat_told(self, group: str, took_s: float) -> None:
        """The leader of the cluster group has heard of a member that sent a heartbeat."""
        consumer = self._metrics.consumer
        consumer.heartbeats.labels(group).inc()
        consumer.heartbeat_latency.labels(group).observe(took_s)

    def committed(self, topic: str, group: str, count: int, took_s: float) -> None:
        consumer = self._metrics.consumer
        consumer.offset_commits.labels(topic, group).inc(count)
        consumer.offset_commit_latency.labels(group).observe(took_s)

    def commit_failed(self, topic: str, group: str, code: str, count: int) -> None:
        self._metrics.consumer.offset_commit_errors.labels(topic, group, code).inc(count)

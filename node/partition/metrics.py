"""What one partition's leader counts as it works, a batch at a time, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence

from delivery.entries.ops import ACK, EXTEND, NACK, REJECT, RELEASE, Committed, Op, Settled
from node.api.records import Slice
from node.metrics import Metrics
from node.metrics.family import Distribution

_ACTIONS = {ACK: "ack", NACK: "nack", REJECT: "reject", EXTEND: "extend", RELEASE: "release"}
COMMIT = "commit"


class PartitionMetrics:
    """Of one topic; series are kept at hand, as looking them up costs more than counting."""

    def __init__(self, topic: str, metrics: Metrics) -> None:
        self._topic = topic
        self._metrics = metrics
        self._messages_read = metrics.broker.read_messages.labels(topic)
        self._bytes_read = metrics.broker.read_bytes.labels(topic)
        self._acks: dict[str, Distribution] = {}

    def read(self, offset: int, found: Slice) -> None:
        """A read by offset brought this."""
        self._messages_read.inc(max(0, found.next_offset - max(offset, found.log_start)))
        self._bytes_read.inc(sum(len(stored.batch) for stored in found.batches))

    def taken(self, group: str, size: int, took_s: float) -> None:
        """Messages with values of this size were leased to a group's consumer, and are on their
        way to it."""
        broker = self._metrics.broker
        broker.bytes_consumed.labels(self._topic, group).inc(size)
        broker.fetch_latency.labels(self._topic, group).observe(took_s)

    def settled(self, ops: Sequence[Op], took_s: float) -> None:
        """These operations, whichever of them settle, have applied."""
        for op in ops:
            if isinstance(op, Settled):
                kind = _ACTIONS.get(op.action, "")
            elif isinstance(op, Committed):
                kind = COMMIT
            else:
                continue
            known = self._acks.get(kind)
            if known is None:
                known = self._metrics.broker.ack_latency.labels(self._topic, kind)
                self._acks[kind] = known
            known.observe(took_s)

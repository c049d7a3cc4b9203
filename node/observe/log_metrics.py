"""Figures of replicas' logs for Prometheus: what a log counts by itself, told at each look."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from goqueue.wire.types import PartitionId
from log.partition.log import PartitionLog
from node.metrics import Metrics


class Logged(Protocol):
    """A replica, as far as its log's figures go."""

    @property
    def id(self) -> PartitionId: ...

    @property
    def topic(self) -> str: ...

    @property
    def log(self) -> PartitionLog: ...


@dataclass(slots=True)
class Counted:
    """What of one log was added to its topic's counters by now: created, deleted, rebuilt."""

    segments: tuple[int, int, int] = (0, 0, 0)


class LogFigures:
    """Loop thread only."""

    def __init__(self, metrics: Metrics) -> None:
        self._storage = metrics.storage

    def tell(self, replica: Logged, counted: Counted) -> int:
        """Bytes of the log."""
        storage, segments = self._storage, replica.log.disk_segments
        topic, counters = replica.topic, segments.counters
        place = (topic, str(replica.id.partition))
        storage.bytes_written.put(counters.written_bytes, *place)
        storage.bytes_read.put(counters.read_bytes, *place)
        count, size_bytes = len(segments.chain), segments.size_bytes
        storage.log_size_bytes.put(size_bytes, *place)
        storage.segments_total.put(count, *place)
        storage.segments_active.put(min(1, count), *place)
        now = (counters.segments_created, counters.segments_deleted, counters.index_rebuilds)
        if now != counted.segments:
            created, deleted, rebuilt = map(_more, now, counted.segments)
            storage.segments_created.labels(topic).inc(created)
            storage.segments_deleted.labels(topic).inc(deleted)
            storage.index_rebuilds.labels(topic).inc(rebuilt)
            counted.segments = now
        for kind, took in counters.take_lookups():
            storage.index_lookups.labels(topic, kind).inc(len(took))
            latency = storage.index_lookup_latency.labels(topic, kind)
            for seconds in took:
                latency.observe(seconds)
        return size_bytes


def _more(now: int, before: int) -> int:
    return max(0, now - before)

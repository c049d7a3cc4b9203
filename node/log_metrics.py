"""Figures of replicas' logs for Prometheus: what a log counts by itself, told at each look."""

from __future__ import annotations

from typing import Protocol

from goqueue.wire.types import GroupId
from log.group import GroupLog
from node.metrics import Metrics


class Logged(Protocol):
    """A replica, as far as its log's figures go."""

    @property
    def id(self) -> GroupId: ...

    @property
    def topic(self) -> str: ...

    @property
    def log(self) -> GroupLog: ...


class LogFigures:
    """What each log had counted at the last look, to add to its topic what has come since."""

    def __init__(self, metrics: Metrics) -> None:
        self._storage = metrics.storage
        self._counted: dict[GroupId, tuple[int, int, int]] = {}

    def tell(self, replica: Logged) -> int:
        """Bytes of the log."""
        storage, segments = self._storage, replica.log.disk_segments
        topic, tally = replica.topic, segments.tally
        place = (topic, str(replica.id.partition))
        storage.bytes_written.put(tally.written_bytes, *place)
        storage.bytes_read.put(tally.read_bytes, *place)
        chain = segments.chain
        size_bytes = segments.size_bytes
        storage.log_size_bytes.put(size_bytes, *place)
        storage.segments_total.put(len(chain), *place)
        storage.segments_active.put(min(1, len(chain)), *place)
        now = (tally.segments_created, tally.segments_deleted, tally.index_rebuilds)
        before = self._counted.get(replica.id, (0, 0, 0))
        if now != before:
            counters = (
                storage.segments_created,
                storage.segments_deleted,
                storage.index_rebuilds,
            )
            for counter, new, old in zip(counters, now, before, strict=True):
                counter.labels(topic).inc(max(0, new - old))
            self._counted[replica.id] = now
        for kind, took in tally.take_lookups():
            storage.index_lookups.labels(topic, kind).inc(len(took))
            latency = storage.index_lookup_latency.labels(topic, kind)
            for seconds in took:
                latency.observe(seconds)
        return size_bytes

    def forget(self, living: set[GroupId]) -> None:
        self._counted = {id: known for id, known in self._counted.items() if id in living}

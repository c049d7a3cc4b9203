"""What there is to archive of the events of a topic's messages, and how tasks read it.

Positions are indexes of the log's entries. Most entries bring events, some bring none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from goqueue.api.events import decode_events, events_params, events_path
from goqueue.archive.layout import Kind, Series
from goqueue.archive.manifest import Gap, Manifest, Why
from goqueue.archive.schema import arrow_schema
from goqueue.wire.events import EVENTS_MEDIA_TYPE, EventsPage
from pipeline.archive.feed import Plan, check_same
from pipeline.archive.plan import DAY_MS, Bounds, Chunk, chunks, midnights
from pipeline.archive.staging import Reader, source_range
from pipeline.broker import Broker, TopicFacts
from pipeline.broker_access import Access
from pipeline.events.reading import event_spans, read_events

SAMPLE_EVENTS: Final = 1000


class Events:
    """The events of one topic, as of the moment it is made. Raises UnknownTopic."""

    hole: Why = "empty"

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic: TopicFacts = broker.topic(topic)
        self.series = Series(Kind.EVENTS, topic, self._topic.id)

    def plan(self, manifest: Manifest, bounds: Bounds) -> Plan:
        found = Plan([], [])
        for partition, span in self._spans().items():
            first = position = manifest.position(partition)
            if first < span.start:
                first = min(span.start, span.end)
                found.gaps.append(Gap(partition, position, first - 1, "deleted"))
            if first < span.end:
                borders = self._borders(partition, first, span.end)
                rows = self._entries(partition, first, bounds.rows)
                found.chunks.extend(chunks(partition, first, span.end, borders, rows))
        check_same(self._broker, self._topic)
        return found

    def reader(self, chunks: Sequence[Chunk]) -> Reader:
        return EventsReader(self._broker.access, self._topic, chunks)

    def starts(self) -> dict[int, int]:
        spans = self._spans()
        check_same(self._broker, self._topic)
        return {partition: span.start for partition, span in spans.items()}

    # private

    def _spans(self) -> dict[int, Any]:
        return event_spans(self._broker, self._topic.name, range(self._topic.partitions))

    def _page(self, partition: int, first: int, limit: int) -> EventsPage:
        return decode_events(
            self._broker.request(
                "GET",
                events_path(self._topic.name, partition),
                params=events_params(first - 1, limit=limit),
                headers={"Accept": EVENTS_MEDIA_TYPE},
                repeatable=True,
                leader=self._topic.leader(partition),
            )
        )

    def _entries(self, partition: int, first: int, events_max: int) -> int:
        """How many entries bring about so many events, as far as the next ones tell."""
        page = self._page(partition, first, SAMPLE_EVENTS)
        entries = max(1, page.next - first + 1)
        return max(1, events_max * entries // max(1, len(page.events.index)))

    def _time_at(self, partition: int, first: int) -> int | None:
        """The log time of the first event of an entry from `first` on; None where none follows."""
        while True:
            page = self._page(partition, first, 1)
            if page.events.timestamp_ms:
                return page.events.timestamp_ms[0]
            if page.next >= page.end or page.next < first:
                return None
            first = page.next + 1

    def _borders(self, partition: int, first: int, end: int) -> list[int]:
        """Where days begin: found by halving, as log time never goes back."""
        begins_ms = self._time_at(partition, first)
        if begins_ms is None:
            return []
        found: list[int] = []
        now_ms = time.time_ns() // 1_000_000
        low = first
        for midnight in midnights(begins_ms, now_ms + DAY_MS):
            high = end
            while low < high:
                middle = (low + high) // 2
                told = self._time_at(partition, middle)
                if told is None or told >= midnight:
                    high = middle
                else:
                    low = middle + 1
            if low >= end:
                break
            found.append(low)
        return found


@dataclass(frozen=True, slots=True)
class EventsReader:
    """What a task needs to read its chunk; picklable."""

    access: Access
    topic: TopicFacts
    chunks: Sequence[Chunk]

    def __call__(self, tasks: Iterator[Any]) -> Iterator[Any]:
        """Rows `id` in, the number of a chunk each; its events out."""
        schema = arrow_schema(Kind.EVENTS)
        with Broker(self.access) as broker:
            for task in tasks:
                for number in task.column(0).to_pylist():
                    wanted = source_range(self.topic, self.chunks[number])
                    yield from read_events(broker, wanted, schema, fail_on_data_loss=False)

"""What there is to archive of a topic's messages, and how tasks read it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from goqueue.archive.layout import Kind, Series
from goqueue.archive.manifest import Gap, Manifest, OutOfStep, Why
from goqueue.archive.schema import arrow_schema
from goqueue.errors import Conflict, UnknownTopic
from pipeline.archive.plan import DAY_MS, Bounds, Chunk, chunks, midnights
from pipeline.archive.staging import MessagesReader, Reader, source_range
from pipeline.broker import Broker, Span, TopicFacts
from pipeline.source.data_loss import DataLoss
from pipeline.source.reading import Pace, read_range

SAMPLE_ROWS = 1000
"""As many tell how large messages are."""


class TopicChanged(Conflict):
    """The topic has been deleted, and perhaps created again, while it was archived."""

    code = "topic_changed"
    text = "the topic was deleted while it was archived"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be written, and what is known to be nowhere."""

    chunks: list[Chunk]
    gaps: list[Gap]


class Feed(Protocol):
    """One kind of what a topic has, as the archive takes it."""

    @property
    def series(self) -> Series: ...
    def plan(self, manifest: Manifest, bounds: Bounds) -> Plan:
        """What the manifest lacks of what is committed by now.

        Raises OutOfStep where retention was faster, TopicChanged.
        """
        ...

    def reader(self, chunks: Sequence[Chunk]) -> Reader:
        """What tasks run."""
        ...

    def starts(self) -> dict[int, int]:
        """Of each partition, what is below has been deleted. Raises TopicChanged where the topic
        is another one by now: then what was read may be of that."""
        ...

    @property
    def hole(self) -> Why:
        """Why there may be nothing at a position: `deleted` where only that can be."""
        ...


class Messages:
    """The messages of one topic, as of the moment it is made. Raises UnknownTopic."""

    def __init__(self, broker: Broker, topic: str, pace: Pace) -> None:
        self._broker, self._pace = broker, pace
        self._topic: TopicFacts = broker.topic(topic)
        self.series = Series(Kind.MESSAGES, topic, self._topic.id)

    @property
    def hole(self) -> Why:
        return "compacted" if self._topic.is_compacted else "deleted"

    def plan(self, manifest: Manifest, bounds: Bounds) -> Plan:
        spans = self._spans()
        found = Plan([], [])
        sampled: dict[int, _Sample] = {}
        for partition, span in spans.items():
            begin = position = manifest.position(partition)
            if position >= span.end:
                continue
            if self.hole == "deleted":
                begin = min(max(position, span.start), span.end)
            sample = self._sample(partition, begin, span.end)
            begin = span.end if sample is None else sample.offset
            if begin > position:
                found.gaps.append(Gap(partition, position, begin - 1, self.hole))
            if sample is not None:
                sampled[partition] = sample
        borders = self._borders(sampled)
        for partition, sample in sampled.items():
            rows, end = bounds.rows_of(sample.mean_bytes), spans[partition].end
            found.chunks.extend(chunks(partition, sample.offset, end, borders[partition], rows))
        check_same(self._broker, self._topic)
        return found

    def reader(self, chunks: Sequence[Chunk]) -> Reader:
        access = self._broker.access
        return MessagesReader(access, self._topic, chunks, self._pace)

    def starts(self) -> dict[int, int]:
        spans = self._spans()
        check_same(self._broker, self._topic)
        return {partition: span.start for partition, span in spans.items()}

    # private

    def _spans(self) -> dict[int, Span]:
        return self._broker.spans(self._topic.name, range(self._topic.partitions))

    def _sample(self, partition: int, begin: int, end: int) -> _Sample | None:
        """The first messages from `begin` on to below `end`; None where a compacted topic has none.

        Raises OutOfStep where retention has taken the first one since the log's start was told.
        """
        if begin == end:
            return None
        chunk = Chunk(partition, begin, end)
        if self.hole == "deleted":
            chunk = Chunk(partition, begin, min(end, begin + SAMPLE_ROWS))
        schema = arrow_schema(Kind.MESSAGES)
        wanted = source_range(self._topic, chunk)
        try:
            batches: Any = read_range(
                self._broker, wanted, schema, fail_on_data_loss=True, pace=self._pace
            )
            with closing(batches):
                batch = next(batches, None)
        except DataLoss as error:
            check_same(self._broker, self._topic)
            raise OutOfStep(str(error)) from None
        if batch is None:
            if self.hole == "deleted":
                raise OutOfStep(f"{self._topic.name}: nothing is read at {begin}")
            return None
        offset, time_ms = (batch.column(name)[0].as_py() for name in ("offset", "log_time_ms"))
        return _Sample(offset, time_ms, batch.nbytes / batch.num_rows)

    def _borders(self, sampled: dict[int, _Sample]) -> dict[int, list[int | None]]:
        """Where days begin, by partition."""
        found: dict[int, list[int | None]] = {partition: [] for partition in sampled}
        if not sampled:
            return found
        now_ms = time.time_ns() // 1_000_000
        earliest = min(sample.time_ms for sample in sampled.values())
        for midnight in midnights(earliest, now_ms + DAY_MS):
            asked = [number for number, sample in sampled.items() if sample.time_ms < midnight]
            begins = self._broker.offsets_at(self._topic.name, asked, midnight)
            for partition, offset in begins.items():
                found[partition].append(offset)
        return found


def check_same(broker: Broker, topic: TopicFacts) -> None:
    """That a topic is still the one that was looked up: what was read till now is its own then.
    Raises TopicChanged."""
    try:
        found = broker.topic(topic.name).id
    except UnknownTopic:
        found = None
    if found != topic.id:
        raise TopicChanged(f"{topic.name}: the topic was deleted while it was archived")


@dataclass(frozen=True, slots=True)
class _Sample:
    offset: int
    time_ms: int
    mean_bytes: float

"""A batch read: planned once, from what the topics hold then, as ranges of offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.broker import Broker
from pipeline.source import data_loss
from pipeline.source.options import SourceOptions
from pipeline.source.pushdown import Bounds
from pipeline.source.ranges import Range, split
from pipeline.source.reading import Pace, read_range
from pipeline.source.topics import Known, look, resolve


@dataclass(frozen=True, slots=True)
class Subject:
    """What is read: messages by their offsets, or events by their entries."""

    look: Callable[[Broker, SourceOptions], dict[str, Known]]
    """What there is to read."""
    gone: Callable[[str, int, int, int], str]
    """The words for what was lost."""
    read: Callable[[SourceOptions, StructType, InputPartition], Iterator[Any]]
    """A task's Arrow batches, over connections of its own."""
    first: int = 0
    """Where a partition begins that has lost nothing."""
    narrows: frozenset[str] | None = None
    """Columns whose filters may bound what is read; None for any."""


class BatchReader(DataSourceReader):
    """Reads what lies between two borders when it is planned: what comes later is not in it."""

    def __init__(
        self, options: SourceOptions, schema: StructType, subject: Subject | None = None
    ) -> None:
        self._options = options
        self._schema = schema
        self._subject = subject or MESSAGES
        self._bounds = Bounds()

    def push(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep those that bound partitions, offsets and times; Spark applies the others."""
        narrows = self._subject.narrows
        for found in filters:
            is_narrowing = narrows is None or set(found.attribute) <= narrows
            if not is_narrowing or not self._bounds.push(found):
                yield found

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with Broker(options.access) as broker:
            return split(
                self._planned(broker),
                at_least=options.min_partitions,
                records_max=options.records_max,
            )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._subject.read(self._options, self._schema, partition)

    def _planned(self, broker: Broker) -> list[Range]:
        options = self._options
        known = self._subject.look(broker, options)
        starts = resolve(broker, options.start, known, latest_where_none=options.latest_where_none)
        ends = resolve(broker, options.end, known, latest_where_none=True)
        found: list[Range] = []
        for (topic, number), start in starts.items():
            facts, span = known[topic].facts, known[topic].spans[number]
            start = max(start, self._subject.first)
            if start < span.start and not facts.is_compacted:
                text = self._subject.gone(topic, number, start, span.start)
                data_loss.lost(text, fail=options.fail_on_data_loss)
                start = span.start
            low, high = self._bounds.within(broker, topic, number, start, ends[topic, number])
            leader = facts.leader(number)
            found.append(Range(topic, facts.id, number, low, high, leader, facts.is_compacted))
        return found


class FilteredBatchReader(BatchReader):
    """The same for a session that pushes filters down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return self.push(filters)


def read_partition(
    options: SourceOptions, schema: StructType, partition: InputPartition
) -> Iterator[Any]:
    """A task's Arrow batches, over connections of its own."""
    if not isinstance(partition, Range):  # Spark's own, of a plan without any
        return
    with Broker(options.access) as broker:
        yield from read_range(
            broker,
            partition,
            to_arrow_schema(schema, timezone="UTC"),
            fail_on_data_loss=options.fail_on_data_loss,
            pace=Pace(options.bytes_per_second),
        )


def _look(broker: Broker, options: SourceOptions) -> dict[str, Known]:
    return look(broker, options.chosen)


MESSAGES = Subject(
    look=_look,
    gone=data_loss.offsets_gone,
    read=read_partition,
)

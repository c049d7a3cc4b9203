"""The Spark format `goqueue.events`: a row for each event of the messages of topics.

It reads as the format `goqueue` does, with its options; where those speak of offsets, the log's
entries are meant, which events come by: a message's own offset is a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from goqueue.archive.layout import Kind
from goqueue.archive.schema import spark_ddl
from pipeline.broker import Broker
from pipeline.events import columns
from pipeline.events.reading import look_at_events, read_events
from pipeline.options import OptionError, Options
from pipeline.source import data_loss
from pipeline.source.batch import BatchReader, FilteredBatchReader, Subject
from pipeline.source.options import SourceOptions, parse
from pipeline.source.pushdown import is_pushing
from pipeline.source.ranges import Range
from pipeline.source.stream import StreamReader
from pipeline.source.topics import Known

UNKNOWN_HERE: Final = (
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "maxBytesPerSecond",
)
"""Options of the format `goqueue` that mean nothing here."""
FIRST_ENTRY: Final = 1
NARROWING: Final = frozenset({"topic", "partition"})
"""Columns whose filters leave partitions out."""


class EventsSource(DataSource):
    """`spark.read.format("goqueue.events")` and `spark.readStream`."""

    @classmethod
    def name(cls) -> str:
        return "goqueue.events"

    def schema(self) -> str:
        return spark_ddl(Kind.EVENTS)

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = FilteredBatchReader if is_pushing() else BatchReader
        return kind(self._parsed(schema, streaming=False), schema, EVENTS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EventsStreamReader(self._parsed(schema, streaming=True), schema)

    def _parsed(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        columns.check((field.name, field.dataType.simpleString()) for field in schema)
        options = Options(self.options)
        for name in UNKNOWN_HERE:
            if name in options:
                raise OptionError(f"{name}: events are read by entry, whole: leave it out")
        return parse(options, streaming=streaming)


class EventsStreamReader(StreamReader):
    """Positions are entries: a batch that is read again has the same events."""

    def look(self, *, missing_ok: bool) -> dict[str, Known]:
        return look_at_events(self._broker, self._options.chosen, missing_ok=missing_ok)

    gone = staticmethod(data_loss.entries_gone)
    first = FIRST_ENTRY

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._options, self._schema, partition)


def _read(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    """A task's Arrow batches, over connections of its own."""
    if not isinstance(partition, Range):  # Spark's own, of a plan without any
        return
    with Broker(options.access) as broker:
        yield from read_events(
            broker,
            partition,
            to_arrow_schema(schema, timezone="UTC"),
            fail_on_data_loss=options.fail_on_data_loss,
        )


def _look(broker: Broker, options: SourceOptions) -> dict[str, Known]:
    return look_at_events(broker, options.chosen)


EVENTS = Subject(
    look=_look,
    gone=data_loss.entries_gone,
    read=_read,
    first=FIRST_ENTRY,
    narrows=NARROWING,
)

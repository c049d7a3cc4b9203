"""The Spark format `goqueue`: reads and writes topics, in batches and as streams.

Spark finds it by itself where the module `pyspark_goqueue` is on Python's path, as it is where this
package is installed; importing the package registers it with the session that is active then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from pipeline.options import Options
from pipeline.source import columns
from pipeline.source.options import parse
from pipeline.source.pushdown import is_pushing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GoQueueSource(DataSource):
    """`spark.read.format("goqueue")`, and its three siblings.

    What a read or write needs besides is imported when it is asked for: executors that only read
    never load the sink.
    """

    @classmethod
    def name(cls) -> str:
        return "goqueue"

    def schema(self) -> str:
        return columns.ddl(headers=Options(self.options).flag("includeHeaders", False))

    def reader(self, schema: StructType) -> DataSourceReader:
        from pipeline.source.batch import BatchReader, FilteredBatchReader

        _check(schema)
        kind = FilteredBatchReader if is_pushing() else BatchReader
        return kind(parse(Options(self.options), streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pipeline.source.stream import StreamReader

        _check(schema)
        return StreamReader(parse(Options(self.options), streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from pipeline.sink.writer import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from pipeline.sink.writer import stream_writer

        return stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Make the formats known to a session that has not found them by itself."""
    from pipeline.events.datasource import EventsSource

    spark.dataSource.register(GoQueueSource)
    spark.dataSource.register(EventsSource)


def _check(schema: StructType) -> None:
    columns.check((field.name, field.dataType.simpleString()) for field in schema)

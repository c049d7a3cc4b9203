"""What the Spark source is held against: the same read, handed to Spark as a tuple a message."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from goqueue.wire.batch import LANES, RecordBatch
from pipeline.broker import Broker
from pipeline.options import Options
from pipeline.source import columns
from pipeline.source.batch import BatchReader
from pipeline.source.options import parse
from pipeline.source.ranges import Range


class TupleSource(DataSource):
    """The same columns over the same HTTP, without Arrow."""

    @classmethod
    def name(cls) -> str:
        return "goqueue-tuples"

    def schema(self) -> str:
        return columns.ddl(headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(parse(Options(self.options), streaming=False), schema)


class TupleReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Range)
        topic, number, at = partition.topic, partition.partition, partition.start
        with Broker(self._options.access) as broker:
            while at < partition.end:
                page = broker.read(topic, number, at, leader=partition.leader)
                for frame in page.frames():
                    stored = RecordBatch.parse(frame.batch)
                    time = datetime.fromtimestamp(frame.time_ms / 1000, UTC)
                    cells = zip(
                        stored.keys(),
                        stored.values_or_nulls(),
                        stored.message_ids(),
                        stored.lanes(),
                        strict=True,
                    )
                    for row, (key, value, message_id, lane) in enumerate(cells):
                        offset = frame.base_offset + row
                        if at <= offset < partition.end:
                            yield (
                                key, value, topic, number, offset, time, 1,
                                message_id, LANES[lane], None, None, None,
                            )  # fmt: skip
                at = page.next_offset

"""Having Spark write chunks of a topic as Parquet files into a folder that nobody else reads.

One task reads one chunk from the partition's leader and writes one file, whose name tells the
task's number. Spark's own writer makes the files, so that they can go to any filesystem it knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from goqueue.archive.layout import Kind
from goqueue.archive.schema import arrow_schema, spark_ddl
from pipeline.archive.plan import Chunk
from pipeline.broker import Broker, TopicFacts
from pipeline.broker_access import Access
from pipeline.failures import spark_failing
from pipeline.source.ranges import Range
from pipeline.source.reading import Pace, read_range

Reader = Callable[[Iterator[Any]], Iterator[Any]]
"""As `mapInArrow` takes it."""

WRITER_OPTIONS: Final = {"compression": "zstd"}
_PART = re.compile(r"part-(\d+)-.*\.parquet")


@dataclass(frozen=True, slots=True)
class MessagesReader:
    """What a task needs to read its chunk; picklable."""

    access: Access
    topic: TopicFacts
    chunks: Sequence[Chunk]
    pace: Pace

    def __call__(self, tasks: Iterator[Any]) -> Iterator[Any]:
        """Rows `id` in, the number of a chunk each; its messages out.

        What retention takes away while it is read is left out: who looks at the file sees that.
        """
        schema = arrow_schema(Kind.MESSAGES)
        with Broker(self.access) as broker:
            for task in tasks:
                for number in task.column(0).to_pylist():
                    wanted = source_range(self.topic, self.chunks[number])
                    yield from read_range(
                        broker, wanted, schema, fail_on_data_loss=False, pace=self.pace
                    )


def source_range(topic: TopicFacts, chunk: Chunk) -> Range:
    """A chunk as the source reads it."""
    leader = topic.leader(chunk.partition)
    place = (topic.name, topic.id, chunk.partition)
    return Range(*place, chunk.first, chunk.end, leader, topic.is_compacted)


def stage(spark: SparkSession, kind: Kind, reader: Reader, tasks: int, folder: str) -> None:
    """Write what `reader` answers for the numbers 0 to below `tasks`, a file each, into `folder`,
    the URI of a folder that is not there yet. Numbers without rows leave no file, or an empty
    one."""
    numbers = spark.range(0, tasks, 1, tasks)
    write(numbers.mapInArrow(reader, spark_ddl(kind)), folder)


def write(rows: DataFrame, folder: str) -> None:
    """Spark's partitions as Parquet files, one each. The session is one of `pipeline.session`,
    whose settings make timestamps what every engine reads."""
    with spark_failing():
        rows.write.options(**WRITER_OPTIONS).mode("errorifexists").parquet(folder)


def task_number(name: str) -> int | None:
    """Which of Spark's partitions a file is of, by its name; None for other files."""
    match = _PART.fullmatch(name)
    return None if match is None else int(match[1])

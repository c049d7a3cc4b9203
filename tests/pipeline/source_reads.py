"""The source's readers in this process, called as Spark calls them, without a session."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from pipeline.options import Options
from pipeline.source.batch import FilteredBatchReader
from pipeline.source.options import parse
from pipeline.source.stream import StreamReader

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("value", BinaryType()),
    ]
)
Row = tuple[str, int, int, bytes | None]


def batch(servers: str, **options: object) -> FilteredBatchReader:
    return FilteredBatchReader(_parsed(servers, options, streaming=False), SCHEMA)


def stream(servers: str, **options: object) -> StreamReader:
    return StreamReader(_parsed(servers, options, streaming=True), SCHEMA)


def rows(reader: Any, parts: Any = None) -> list[Row]:
    """What the tasks of a plan read, sorted."""
    planned = reader.partitions() if parts is None else parts
    batches = [batch for part in planned for batch in reader.read(part)]
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def places(found: list[Row]) -> list[tuple[int, int]]:
    return [(partition, offset) for _, partition, offset, _ in found]


def _parsed(servers: str, options: dict[str, object], *, streaming: bool) -> Any:
    texts = {"servers": servers, **{name: str(value) for name, value in options.items()}}
    return parse(Options(texts), streaming=streaming)

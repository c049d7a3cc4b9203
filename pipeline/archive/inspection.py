"""What a written file holds: looked at before it is committed, and again by `verify`.

Executors read files whole, as bytes, so that the checksum is that of what a reader gets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from goqueue.archive.layout import Kind
from goqueue.archive.schema import COLUMNS, POSITION_COLUMN
from pipeline.failures import spark_failing

INSPECTED = (
    "path string, bytes bigint, sha256 string, count bigint, partition int, first bigint,"
    " last bigint, distinct bigint, time_min_ms bigint, time_max_ms bigint, problem string"
)
FILE_BYTES_MAX = 2**31 - 1 - 1024
"""What one cell of Spark's holds."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was found in a file. `first` and `last` are the positions of its first and last row."""

    path: str
    bytes: int
    sha256: str
    count: int
    partition: int
    first: int
    last: int
    distinct: int
    """How many positions: of events, several rows may share one."""
    time_min_ms: int
    time_max_ms: int
    problem: str | None
    """What is wrong with it as a file of the archive, None for nothing."""


def inspect(spark: SparkSession, kind: Kind, uris: Sequence[str]) -> list[Inspected]:
    """Look at these files. Raises SparkFailed where one cannot be read."""
    if not uris:
        return []
    with spark_failing():
        files = spark.read.format("binaryFile").load(list(uris)).select("path", "content")
        found = files.repartition(min(len(uris), 2 * spark.sparkContext.defaultParallelism))
        rows = found.mapInArrow(_Inspector(kind), INSPECTED).collect()
    return [Inspected(*row) for row in rows]


@dataclass(frozen=True, slots=True)
class _Inspector:
    kind: Kind

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for path, content in zip(batch.column(0), batch.column(1), strict=True):
                told = look_at(self.kind, path.as_py(), content.as_buffer())
                yield pa.RecordBatch.from_pylist([told], schema=_ARROW)


def look_at(kind: Kind, path: str, content: pa.Buffer) -> dict[str, Any]:
    """A row of what `Inspected` has."""
    digest = hashlib.sha256(content).hexdigest()
    told = {"path": path, "bytes": content.size, "sha256": digest, **_NOTHING}
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if set(COLUMNS[kind]) - set(file.schema_arrow.names):
            return {**told, "problem": "it lacks columns of the archive"}
        position = POSITION_COLUMN[kind]
        table = file.read(columns=[position, "partition", "timestamp"])
    except (pa.ArrowException, OSError) as error:
        return {**told, "problem": f"it is no Parquet file: {error}"}
    if not table.num_rows:
        return {**told, "problem": "it has no rows"}
    places = table.column(position).combine_chunks()
    times = table.column("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False)
    times = times.cast(pa.int64())
    steps = pc.subtract(places.slice(1), places.slice(0, len(places) - 1))
    step_min = pc.min(steps).as_py() if len(steps) else 1
    told |= {
        "count": table.num_rows,
        "partition": table.column("partition")[0].as_py(),
        "first": places[0].as_py(),
        "last": places[-1].as_py(),
        "distinct": 1 + (pc.sum(pc.greater(steps, 0)).as_py() or 0) if len(steps) else 1,
        "time_min_ms": pc.min(times).as_py(),
        "time_max_ms": pc.max(times).as_py(),
    }
    if step_min < (1 if kind is Kind.MESSAGES else 0):
        told["problem"] = f"its rows are not sorted by {position}"
    elif pc.count_distinct(table.column("partition")).as_py() != 1:
        told["problem"] = "it has rows of several partitions"
    return told


_NOTHING = {
    "count": 0, "partition": -1, "first": -1, "last": -1, "distinct": 0, "time_min_ms": 0,
    "time_max_ms": 0, "problem": None,
}  # fmt: skip
_ARROW = pa.schema(
    [
        ("path", pa.string()),
        ("bytes", pa.int64()),
        ("sha256", pa.string()),
        ("count", pa.int64()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("distinct", pa.int64()),
        ("time_min_ms", pa.int64()),
        ("time_max_ms", pa.int64()),
        ("problem", pa.string()),
    ]
)

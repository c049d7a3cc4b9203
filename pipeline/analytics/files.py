"""Where a report goes: a folder of this machine, or of any filesystem that Spark can write to."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from pipeline.analytics.analysis import Table

PAGE = "report.html"
TABLES = "tables"


class Folder(Protocol):
    """What a report is written into."""

    def write(self, path: str, content: bytes) -> None:
        """Make the file whole, or replace it; raises OSError."""
        ...


class LocalFolder:
    """A folder of this machine, made when it is needed."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, path: str, content: bytes) -> None:
        target = self._path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_name(f".{target.name}.unfinished")
        unfinished.write_bytes(content)
        unfinished.replace(target)


class HadoopFolder:
    """A folder of the filesystem that its URL names, through Spark's own access to it."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._conf: Any = spark.sparkContext._jsc.hadoopConfiguration()
        self._url = url.rstrip("/")

    def write(self, path: str, content: bytes) -> None:
        target = self._jvm.org.apache.hadoop.fs.Path(f"{self._url}/{path}")
        stream = target.getFileSystem(self._conf).create(target, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()


def folder_of(spark: SparkSession, output: str) -> Folder:
    """The folder that a path or a URL means."""
    scheme = urlsplit(output).scheme
    if scheme in ("", "file"):
        return LocalFolder(Path(urlsplit(output).path if scheme else output))
    return HadoopFolder(spark, output)


def write_report(folder: Folder, tables: Mapping[str, Table], page: str) -> None:
    """Every table as Parquet, CSV and JSON, then the page."""
    for name, table in tables.items():
        for suffix, content in forms(table).items():
            folder.write(f"{TABLES}/{name}.{suffix}", content)
    folder.write(PAGE, page.encode())


def forms(table: Table) -> dict[str, bytes]:
    """The table's files by suffix. CSV has a heading; JSON is one object a line; times are UTC."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    parquet, text = io.BytesIO(), io.BytesIO()
    pq.write_table(table.rows, parquet, compression="zstd")
    csv.write_csv(_plain(pa, table.rows), text)
    lines = (json.dumps(row, default=_iso, ensure_ascii=False) for row in table.rows.to_pylist())
    return {
        "parquet": parquet.getvalue(),
        "csv": text.getvalue(),
        "json": "".join(f"{line}\n" for line in lines).encode(),
    }


def _plain(pa: Any, rows: Any) -> Any:
    """With times as texts, to the millisecond, with their zone."""
    for at, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            texts = [None if one is None else _iso(one) for one in rows.column(at).to_pylist()]
            rows = rows.set_column(at, field.name, pa.array(texts, pa.string()))
    return rows


def _iso(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    raise TypeError(f"{value!r} has no JSON form")

"""An archive of a live topic, written by pyarrow alone, to the letter of the job's format."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from goqueue import Client, Message
from goqueue.archive.layout import Kind, Series, day_of
from goqueue.archive.manifest import Covering, File, Gap, Manifest, commit, newest
from goqueue.archive.schema import arrow_schema


class FolderStore:
    """A `WritableStore` in a local folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self, folder: str) -> list[str]:
        where = self.folder / folder
        return [path.name for path in where.iterdir()] if where.is_dir() else []

    def read(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()

    def create(self, path: str, data: bytes) -> bool:
        where = self.folder / path
        where.parent.mkdir(parents=True, exist_ok=True)
        staged = where.with_name(f"_{where.name}.{time.monotonic_ns()}")
        staged.write_bytes(data)
        try:
            os.link(staged, where)
        except FileExistsError:
            return False
        finally:
            staged.unlink()
        return True

    def remove(self, path: str) -> None:
        where = self.folder / path
        if where.is_dir():
            shutil.rmtree(where)
        else:
            where.unlink(missing_ok=True)


def archive_topic(
    client: Client, topic: str, folder: Path, *, rows: int = 400, upto: int | None = None
) -> Manifest:
    """Archive what the log has and the archive has not, below offset `upto` of each partition."""
    store, found = FolderStore(folder), client.topic(topic)
    series = Series(Kind.MESSAGES, topic, found.id)
    base, items = newest(store, series), list[Covering]()
    for one in found.partition_details:
        first = base.position(one.partition)
        if first < one.earliest:
            items.append(Gap(one.partition, first, one.earliest - 1, "deleted"))
        end = one.next if upto is None else min(one.next, upto)
        messages = client.messages(topic, one.partition, max(first, one.earliest))
        items += write_files(store, series, (m for m in messages if m.offset < end), rows)
    return commit(
        store, series, lambda old: old.extended(items), writer="test", now_ms=base.version
    )


def write_files(
    store: FolderStore, series: Series, messages: Iterable[Message], rows: int
) -> list[File]:
    """Data files of so many rows each, not committed."""
    files = []
    for day, of_day in groupby(messages, lambda message: day_of(message.timestamp_ms)):
        for some in _chunks(list(of_day), rows):
            first, last = some[0], some[-1]
            sink = io.BytesIO()
            parquet.write_table(_table(some), sink, compression="zstd", row_group_size=100)
            data = sink.getvalue()
            path = series.data_path(day, first.partition, first.offset, last.offset)
            store.create(f"{series.folder}/{path}", data)
            files.append(
                File(
                    path,
                    first.partition,
                    first.offset,
                    last.offset,
                    len(some),
                    len(data),
                    hashlib.sha256(data).hexdigest(),
                    first.timestamp_ms,
                    last.timestamp_ms,
                )
            )
    return files


def _table(messages: Sequence[Message]) -> pa.Table:
    columns = {
        "key": [one.key for one in messages],
        "value": [None if one.is_null else one.value for one in messages],
        "topic": [one.topic for one in messages],
        "partition": [one.partition for one in messages],
        "offset": [one.offset for one in messages],
        "timestamp": [one.time for one in messages],
        "timestampType": [1] * len(messages),
        "headers": [
            [{"key": name, "value": value} for name, value in one.headers] or None
            for one in messages
        ],
        "message_id": [one.message_id for one in messages],
        "lane": [one.priority for one in messages],
        "deliver_at": [None] * len(messages),
        "trace_id": [None] * len(messages),
        "attempts": [None] * len(messages),
        "log_time_ms": [one.timestamp_ms for one in messages],
        "published_ms": [one.published_ms for one in messages],
        "deliver_at_ms": [one.deliver_at_ms for one in messages],
        "expires_at_ms": [one.expires_at_ms for one in messages],
    }
    return pa.table(columns, schema=arrow_schema(Kind.MESSAGES))


def _chunks(messages: Sequence[Message], rows: int) -> Iterable[Sequence[Message]]:
    return (messages[at : at + rows] for at in range(0, len(messages), rows))

"""A committed file's rows as messages, after the file was found to be what its manifest says."""

# pyright: reportMissingImports=false

from __future__ import annotations

import hashlib
import tempfile
from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from itertools import repeat
from operator import lt
from typing import IO, Any, Final, Protocol

from goqueue.archive.layout import Series
from goqueue.archive.manifest import File
from goqueue.archive.schema import UnreadableArchive, check_schema_version
from goqueue.models.messages import Message
from goqueue.wire.layout import LANES
from goqueue.wire.records import Headers

ROWS_AT_ONCE: Final = 1000
SPOOLED_BYTES_MAX: Final = 4 << 20
"""What of a file is kept in memory; a larger one waits in a temporary file."""
_COLUMNS: Final = (
    "partition",
    "offset",
    "log_time_ms",
    "value",
    "key",
    "headers",
    "lane",
    "published_ms",
    "message_id",
    "deliver_at_ms",
    "expires_at_ms",
)
_LANE_NUMBERS: Final = {name: number for number, name in enumerate(LANES)}


class DamagedFile(UnreadableArchive):
    """A file of the archive is missing, or is not what was committed; `data` names the range."""

    code = "damaged_file"

    def __init__(self, file: File, topic: str, why: str) -> None:
        super().__init__(
            f"{topic}:{file.partition}: offsets {file.first} to {file.last} can't be read from the"
            f" archive: {file.path} {why}",
            topic=topic, partition=file.partition, first=file.first, last=file.last,
        )  # fmt: skip


class Chunks(Protocol):
    """Where a file's bytes come from."""

    def chunks(self, path: str) -> Iterator[bytes]:
        """Raises FileNotFoundError."""
        ...


def read_messages(
    store: Chunks, series: Series, file: File, first: int = 0
) -> Generator[list[Message], None, None]:
    """The file's messages from offset `first` on, in runs.

    Nothing is given out before all of the file has its committed length and SHA-256. Blocks; raises
    FileNotFoundError where there is no such file, DamagedFile where it is another than committed.
    """
    import pyarrow as pa
    from pyarrow import parquet

    check_schema_version(file.schema, file.path)
    with tempfile.SpooledTemporaryFile(SPOOLED_BYTES_MAX) as spooled:
        _copy(store, series, file, spooled)
        count = 0
        try:
            with parquet.ParquetFile(spooled) as rows:
                if rows.metadata.num_rows != file.count:
                    raise DamagedFile(file, series.topic, f"has {rows.metadata.num_rows} rows")
                for batch in rows.iter_batches(ROWS_AT_ONCE, columns=list(_COLUMNS)):
                    count += batch.num_rows
                    yield from _run(batch, series.topic, file, first)
        except pa.ArrowException as error:
            raise DamagedFile(file, series.topic, f"is no such Parquet file: {error}") from None
        if count != file.count:
            raise DamagedFile(file, series.topic, f"gave {count} of {file.count} rows")


def _copy(store: Chunks, series: Series, file: File, spooled: IO[bytes]) -> None:
    digest, length = hashlib.sha256(), 0
    for chunk in store.chunks(f"{series.folder}/{file.path}"):
        digest.update(chunk)
        length += len(chunk)
        if length > file.bytes:
            break
        spooled.write(chunk)
    if length != file.bytes:
        raise DamagedFile(file, series.topic, f"is not the {file.bytes} bytes that were committed")
    if digest.hexdigest() != file.sha256:
        raise DamagedFile(file, series.topic, "does not have the SHA-256 that was committed")
    spooled.seek(0)


def _run(batch: Any, topic: str, file: File, first: int) -> Iterator[list[Message]]:
    """The rows of a record batch from `first` on, if any."""
    offsets: list[int] = batch.column("offset").to_pylist()
    ascending = all(map(lt, offsets, offsets[1:]))
    if not ascending or offsets[0] < file.first or offsets[-1] > file.last:
        raise DamagedFile(file, topic, "has offsets that are not its own")
    row = bisect_left(offsets, first)
    if row < len(offsets):
        yield _messages(batch.slice(row), topic, offsets[row:])


def _messages(batch: Any, topic: str, offsets: Sequence[int]) -> list[Message]:
    column = {name: batch.column(name).to_pylist() for name in _COLUMNS if name != "headers"}
    values = column["value"]
    nulls = [value is None for value in values]
    return list(
        map(
            Message,
            repeat(topic),
            column["partition"],
            offsets,
            column["log_time_ms"],
            [value or b"" for value in values] if any(nulls) else values,
            column["key"],
            _headers(batch.column("headers")),
            map(_LANE_NUMBERS.__getitem__, column["lane"]),
            [time_ms or 0 for time_ms in column["published_ms"]],
            column["message_id"],
            column["deliver_at_ms"],
            column["expires_at_ms"],
            nulls,
        )
    )


def _headers(column: Any) -> list[Headers]:
    """Each row's headers: in the order, and with the bytes, that they were published with."""
    if column.null_count == len(column):
        return [()] * len(column)
    rows, lengths = [], column.value_lengths().to_pylist()
    flat = column.flatten()
    names, values = flat.field(0).to_pylist(), flat.field(1).to_pylist()
    at = 0
    for length in lengths:
        end = at + (length or 0)
        rows.append(tuple(zip(names[at:end], values[at:end], strict=True)))
        at = end
    return rows

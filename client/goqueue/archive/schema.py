"""The columns of the archive's Parquet files, and their version.

Messages begin with the columns of the Spark source, under the same names. What those cannot tell
exactly (an expiry, the producer's clock, moments beyond what a timestamp holds) follows in columns
of Unix milliseconds, so that a message can be given back byte for byte. A null value, a null key
and empty ones are different things, as in Parquet; headers keep their order and their bytes.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from goqueue.archive.layout import Kind
from goqueue.wire.errors import ServerError

if TYPE_CHECKING:
    import pyarrow

SCHEMA_VERSION: Final = 1
"""Of the columns below. A reader refuses a newer one, by number."""

MESSAGE_COLUMNS: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "message_id": "string",
    "lane": "string",
    "deliver_at": "timestamp",
    "trace_id": "string",
    "attempts": "int",
    "log_time_ms": "bigint",
    "published_ms": "bigint",
    "deliver_at_ms": "bigint",
    "expires_at_ms": "bigint",
}
"""Name -> Spark's type. `timestamp` and `log_time_ms` are the log's time, `published_ms` the
producer's clock (0: not told); `deliver_at_ms` and `expires_at_ms` are moments, delays resolved,
and null where there are none."""

EVENT_COLUMNS: Final[dict[str, str]] = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "message_id": "string",
    "index": "bigint",
    "seq": "int",
    "timestamp": "timestamp",
    "event_type": "string",
    "group": "string",
    "consumer": "string",
    "lane": "string",
    "attempt": "int",
    "reason": "string",
    "key": "binary",
    "attributes": "map<string,string>",
}

COLUMNS: Final = {Kind.MESSAGES: MESSAGE_COLUMNS, Kind.EVENTS: EVENT_COLUMNS}
POSITION_COLUMN: Final = {Kind.MESSAGES: "offset", Kind.EVENTS: "index"}
"""What files are sorted and named by."""


class UnreadableArchive(ServerError):
    """What lies in the archive is not what its manifest or its format says."""

    code = "unreadable_archive"
    text = "the archive cannot be read"


def check_schema_version(version: int, where: str) -> None:
    """Raises UnreadableArchive, naming both versions, where a file's is newer than this code."""
    if not 1 <= version <= SCHEMA_VERSION:
        raise UnreadableArchive(
            f"{where} has schema version {version}: this version of goqueue reads up to"
            f" {SCHEMA_VERSION}; use a newer one",
            schema_version=version,
        )


def spark_ddl(kind: Kind) -> str:
    """The columns as Spark's schemas are written."""
    return ", ".join(f"`{name}` {type_}" for name, type_ in COLUMNS[kind].items())


def arrow_schema(kind: Kind) -> pyarrow.Schema:
    """The columns for pyarrow, which must be installed (`pip install 'goqueue[archive]'`)."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types: dict[str, Any] = {
        "binary": pa.binary(),
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<struct<key:string,value:binary>>": pa.list_(header),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([(name, types[type_]) for name, type_ in COLUMNS[kind].items()])

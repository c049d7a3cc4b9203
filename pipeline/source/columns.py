"""The columns of the format `goqueue`: Kafka's in their order, then ours.

A reader that asks for fewer by a schema of its own (`spark.read.schema("value binary, offset
long")`) gets just those, which saves the others' way into the JVM. Those in `EXTRA` come only so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipeline.options import OptionError

HEADERS: Final = "headers"
DEFAULT: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
    "message_id": "string",
    "lane": "string",
    "deliver_at": "timestamp",
    "trace_id": "string",
    "attempts": "int",
}
"""Name -> type. `timestamp` is the log's time (so `timestampType` is 1, log append time), and
`message_id` the producer's own. `attempts` is always null: attempts are a group's, and the log
knows none; `goqueue.events` tells them."""
EXTRA: Final[dict[str, str]] = {
    "log_time_ms": "bigint",
    "published_ms": "bigint",
    "deliver_at_ms": "bigint",
    "expires_at_ms": "bigint",
}
"""Unix milliseconds, exactly: what the archive needs to give a message back byte for byte."""


def ddl(*, headers: bool) -> str:
    """The columns of a read without a schema of its own, as Spark's schemas are written."""
    names = [name for name in DEFAULT if headers or name != HEADERS]
    return ", ".join(f"`{name}` {DEFAULT[name]}" for name in names)


def check(fields: Iterable[tuple[str, str]]) -> list[str]:
    """The names of a schema's (name, type) fields. Raises OptionError for what is no column."""
    known = {**DEFAULT, **EXTRA}
    names = []
    for name, type_ in fields:
        if name not in known:
            raise OptionError(f"schema: there is no column {name}; there are {', '.join(known)}")
        if type_ != known[name]:
            raise OptionError(f"schema: the column {name} is {known[name]}, not {type_}")
        names.append(name)
    return names

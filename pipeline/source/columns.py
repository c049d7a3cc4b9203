"""The columns of the format `goqueue`, which the archive keeps: Kafka's in their order, then ours.

A reader that asks for fewer by a schema of its own (`spark.read.schema("value binary, offset
long")`) gets just those, which saves the others' way into the JVM. Those in `EXTRA` come only so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from goqueue.archive.schema import MESSAGE_COLUMNS
from pipeline.options import OptionError

HEADERS: Final = "headers"
EXTRA: Final[dict[str, str]] = {
    name: MESSAGE_COLUMNS[name]
    for name in ("log_time_ms", "published_ms", "deliver_at_ms", "expires_at_ms")
}
"""Unix milliseconds, exactly: what the archive needs to give a message back byte for byte."""
DEFAULT: Final[dict[str, str]] = {
    name: type_ for name, type_ in MESSAGE_COLUMNS.items() if name not in EXTRA
}
"""Name -> type. `timestamp` is the log's time (so `timestampType` is 1, log append time), and
`message_id` the producer's own. `attempts` is always null: attempts are a group's, and the log
knows none; `goqueue.events` tells them."""


def ddl(*, headers: bool) -> str:
    """The columns of a read without a schema of its own, as Spark's schemas are written."""
    names = [name for name in DEFAULT if headers or name != HEADERS]
    return ", ".join(f"`{name}` {DEFAULT[name]}" for name in names)


def check(fields: Iterable[tuple[str, str]]) -> list[str]:
    """The names of a schema's (name, type) fields. Raises OptionError for what is no column."""
    names = []
    for name, type_ in fields:
        if name not in MESSAGE_COLUMNS:
            there = ", ".join(MESSAGE_COLUMNS)
            raise OptionError(f"schema: there is no column {name}; there are {there}")
        if type_ != MESSAGE_COLUMNS[name]:
            raise OptionError(f"schema: the column {name} is {MESSAGE_COLUMNS[name]}, not {type_}")
        names.append(name)
    return names

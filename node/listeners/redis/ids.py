"""Ids of stream entries: `<log time in ms>-<offset>`, in the order in which entries were stored."""

from __future__ import annotations

import re
from typing import NamedTuple

from goqueue.wire.ids import OFFSET_MAX
from node.listeners.redis.replies import RedisError

BAD_ID = "ERR Invalid stream ID specified as stream command argument"
_ID = re.compile(rb"(\d{1,20})(?:-(\d{1,20}))?")
_MOST = (1 << 64) - 1


class EntryId(NamedTuple):
    """When an entry was stored, and its offset. Any pair is a place between two entries, too."""

    time_ms: int
    offset: int

    def __str__(self) -> str:
        return f"{self.time_ms}-{self.offset}"

    @property
    def following(self) -> EntryId:
        """The first one behind it."""
        return EntryId(self.time_ms, self.offset + 1)

    @property
    def before(self) -> EntryId:
        """The last one before it."""
        if self.offset:
            return EntryId(self.time_ms, self.offset - 1)
        return EntryId(self.time_ms - 1, OFFSET_MAX)


FIRST = EntryId(0, 0)
LAST = EntryId(OFFSET_MAX, OFFSET_MAX)


def parse_id(text: bytes, offset: int = 0) -> EntryId:
    """`ms-offset`, or `ms`, with this offset then. Raises RedisError."""
    found = _ID.fullmatch(text)
    if found is None:
        raise RedisError(BAD_ID)
    time_ms, given = int(found[1]), offset if found[2] is None else int(found[2])
    if time_ms > _MOST or given > _MOST:
        raise RedisError(BAD_ID)
    return EntryId(min(time_ms, OFFSET_MAX), min(given, OFFSET_MAX))


def parse_start(text: bytes) -> EntryId:
    """The lower end of a range: `-`, an id, or one behind it as `(id`. Raises RedisError."""
    if text == b"-":
        return FIRST
    if text == b"+":
        return LAST
    if text[:1] == b"(":
        return parse_id(text[1:]).following
    return parse_id(text)


def parse_end(text: bytes) -> EntryId:
    """The upper end: `+`, an id, or the one before it as `(id`. Raises RedisError."""
    if text == b"+":
        return LAST
    if text == b"-":
        return FIRST
    if text[:1] == b"(":
        exclusive = parse_id(text[1:])
        if exclusive == FIRST:
            raise RedisError("ERR invalid end ID for the interval")
        return exclusive.before
    return parse_id(text, OFFSET_MAX)

"""Where a tail begins, and how far it has come: the positions that an event's id names."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from goqueue.wire.errors import BadRequest, OffsetOutOfRange, Unavailable, UnknownPartition
from goqueue.wire.ids import OFFSET_MAX, PARTITIONS_MAX
from goqueue.wire.types import Offset
from node.api.times import parse_time_ms
from node.http.request.call import Call
from node.http.tail.followers import Follower

LAST_ID = "Last-Event-ID"
PLACES_MAX = 256
"""Partitions of one tail: an id names them all, and must fit into a header."""
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_POSITION = re.compile(r"(\d{1,10}):(\d{1,19})", re.ASCII)


@dataclass(slots=True)
class Place:
    """How far one partition was sent."""

    partition: int
    position: int
    """The offset that is next."""
    is_exact: bool
    """Whether a message at `position` was meant: then it is told where it is gone."""
    is_at_end: bool = False
    """Whether nothing was stored behind it a moment ago."""
    follower: Follower | None = None
    not_before_s: float = 0.0
    """When it is read again, after a failure."""
    trouble: str = ""
    """Of its own reading; empty where that works."""


def id_of(places: Sequence[Place]) -> str:
    """`0:12,1:7`: of each partition the offset that is next."""
    return ",".join(f"{place.partition}:{place.position}" for place in places)


def parse_positions(text: str, name: str) -> dict[int, int]:
    """What `id_of` made. Raises BadRequest."""
    found: dict[int, int] = {}
    for part in filter(None, text.split(",")):
        match = _POSITION.fullmatch(part)
        if match is None or int(match[1]) > PARTITIONS_MAX or int(match[2]) > OFFSET_MAX:
            raise BadRequest(f"{name}: {part[:40]!r} is not partition:offset")
        found[int(match[1])] = int(match[2])
    return found


async def places_of(call: Call, topic: str) -> list[Place]:
    """Where the request begins, by partition: at `Last-Event-ID`; else at `offsets`, and where that
    names none at the later of `offset` and `from_time`; else at the end.

    Raises BadRequest, UnknownTopic, UnknownPartition, OffsetOutOfRange beyond the end, and
    Unavailable where the end is needed and not known.
    """
    numbers = await _numbers(call, topic)
    start = _start(call, topic, numbers)
    ends = await call.broker.records.end_offsets(topic)
    return list(
        await asyncio.gather(*(_place(call, topic, start, n, ends.get(n)) for n in numbers))
    )


@dataclass(frozen=True, slots=True)
class _Start:
    """`named` positions, else `offset` (None is the end), and not before `from_ms`."""

    named: Mapping[int, int]
    offset: int | None
    from_ms: int | None
    is_resumed: bool


def _start(call: Call, topic: str, numbers: Sequence[int]) -> _Start:
    last_id, is_one = call.request.headers.get(LAST_ID, ""), "partition" in call.query
    if last_id:
        named = parse_positions(last_id, LAST_ID)
        if is_one and numbers[0] not in named:
            raise BadRequest(f"{LAST_ID}: it names no position of partition {numbers[0]}")
    else:
        named = parse_positions(call.query.get("offsets", ""), "offsets")
    unknown = set(named).difference(numbers)
    if unknown and not is_one:
        raise UnknownPartition(topic, min(unknown))
    if last_id:  # what it does not name came to the topic later
        return _Start(named, 0, None, is_resumed=True)
    from_time = call.query.get("from_time", "")
    from_ms = parse_time_ms(from_time, "from_time") if from_time else None
    return _Start(named, _offset(call, len(numbers)), from_ms, is_resumed=False)


async def _place(
    call: Call, topic: str, start: _Start, number: int, ends: tuple[Offset, Offset] | None
) -> Place:
    position = start.named.get(number, start.offset)
    if start.from_ms is not None and number not in start.named:
        at = await call.broker.records.offset_at(topic, number, start.from_ms)
        position = max(at, position or 0)
    if ends is None:
        if position is None:
            raise Unavailable(f"the end of {topic}:{number} is not known now")
        return Place(number, position, is_exact=position > 0)
    end = ends[1]
    if position is not None and position > end:
        raise OffsetOutOfRange(position, *ends)
    is_exact = number in start.named or bool(start.offset)
    position = end if position is None else position
    return Place(number, position, is_exact, is_at_end=position == end)


async def _numbers(call: Call, topic: str) -> Sequence[int]:
    """The partitions that are meant."""
    text = call.query.get("partition", "")
    if text:
        if not _NUMBER.fullmatch(text):
            raise BadRequest(f"partition: {text[:40]!r} is not a number from 0")
        number = int(text)
        if number > PARTITIONS_MAX or number >= await call.readable_partition_count(
            topic, number + 1
        ):
            raise UnknownPartition(topic, number)
        return [number]
    count = await call.readable_partition_count(topic)
    if count > PLACES_MAX:
        raise BadRequest(
            f"{topic} has {count} partitions, and a tail {PLACES_MAX} at most: name one partition"
        )
    return range(count)


def _offset(call: Call, count: int) -> int | None:
    """`offset`: None is the end, which is where a tail begins by itself."""
    text = call.query.get("offset", "")
    if text == "earliest":
        return 0
    if text in ("", "latest"):
        return 0 if not text and call.query.get("from_time") else None
    if not _NUMBER.fullmatch(text) or int(text) > OFFSET_MAX:
        raise BadRequest(f"offset: {text[:40]!r} is not a number from 0, earliest or latest")
    if count > 1:
        raise BadRequest("offset: a number is of one partition: name it, or give offsets=0:12,1:7")
    return int(text)

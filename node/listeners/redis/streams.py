"""Streams: one topic of one partition each. XLEN, XRANGE, XREVRANGE, XREAD, XINFO STREAM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from goqueue.wire.errors import OffsetOutOfRange, UnknownTopic
from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.command import Command
from node.listeners.redis.entries import (
    Reader,
    Reading,
    StreamEntry,
    bounds,
    is_stream,
)
from node.listeners.redis.ids import FIRST, LAST, EntryId, parse_end, parse_id, parse_start
from node.listeners.redis.replies import NO_LIST, RedisError, Reply
from node.listeners.redis.words import Words

STREAMS_MAX = 64
"""In one XREAD or XREADGROUP."""
LOOK_AGAIN_S = 1.0
"""How often a read that waits behind an entry that is not due looks again."""
UNBALANCED = (
    "ERR Unbalanced '{}' list of streams: for each stream key an ID or '$' must be specified."
)


async def xlen(client: Client, arguments: list[bytes]) -> Reply:
    topic = words.topic(arguments[0])
    if not await is_stream(client, topic):
        return 0
    first, end = await bounds(client, topic)
    return end - first


async def xrange(client: Client, arguments: list[bytes]) -> Reply:
    topic, start, end, count = arguments[0], arguments[1], arguments[2], _count(arguments[3:])
    return await _range(client, words.topic(topic), start, end, count, newest_first=False)


async def xrevrange(client: Client, arguments: list[bytes]) -> Reply:
    topic, end, start, count = arguments[0], arguments[1], arguments[2], _count(arguments[3:])
    return await _range(client, words.topic(topic), start, end, count, newest_first=True)


async def _range(
    client: Client,
    topic: str,
    start: bytes,
    end: bytes,
    count: int | None,
    *,
    newest_first: bool,
) -> Reply:
    first, last = parse_start(start), parse_end(end)
    if not await is_stream(client, topic) or count == 0 or first > last:
        return []
    reader = Reader(client, topic)
    read = reader.newest if newest_first else reader.all
    return [entry.told for entry in await read(first, last, count)]


async def xread(client: Client, arguments: list[bytes]) -> Reply:
    """`[COUNT n] [BLOCK ms] STREAMS key [key ...] id [id ...]`."""
    count, block_ms, given = None, None, Words(arguments)
    while True:
        option = given.option()
        if option == "COUNT":
            count = given.number(-(2**53)) or None
        elif option == "BLOCK":
            block_ms = block_of(given)
        elif option == "STREAMS":
            break
        else:
            raise RedisError(words.SYNTAX)
    topics, ids = streams_of(given, "xread")
    limit = count if count is not None and count > 0 else 1 << 30
    starts: list[tuple[str, int]] = []
    for topic, id in zip(topics, ids, strict=True):
        starts.append((topic, await _after(client, topic, id)))
    found = [(topic, await _read(client, topic, at, limit)) for topic, at in starts]
    if block_ms is not None and not any(read.entries for _, read in found):
        goes_on = [(topic, read.following) for topic, read in found]
        found = await client.waited(_wait(client, goes_on, limit, block_ms)) or []
    return told([(topic, read.entries) for topic, read in found], client)


def told(found: Sequence[tuple[str, list[StreamEntry]]], client: Client) -> Reply:
    """Streams with what was read of each, without those of which nothing was."""
    replies: dict[str, Reply] = {
        topic: [entry.told for entry in entries] for topic, entries in found if entries
    }
    if not replies:
        return NO_LIST
    return replies if client.resp3 else [[topic, one] for topic, one in replies.items()]


def streams_of(given: Words, name: str) -> tuple[list[str], list[bytes]]:
    """The keys behind STREAMS, and an id for each."""
    rest = given.rest()
    if not rest or len(rest) % 2:
        raise RedisError(UNBALANCED.format(name))
    half = len(rest) // 2
    if half > STREAMS_MAX:
        raise RedisError(f"ERR more than {STREAMS_MAX} streams in one command")
    return [words.topic(key) for key in rest[:half]], rest[half:]


def block_of(given: Words) -> int:
    """How long to wait, in ms; 0 is for ever."""
    try:
        return given.number()
    except RedisError:
        raise RedisError("ERR timeout is not an integer or out of range") from None


async def _after(client: Client, topic: str, id: bytes) -> int:
    """The offset of the first entry behind this id; `$` is the last one now, `+` the one before."""
    if id == b"$":
        return (await bounds(client, topic))[1] if await is_stream(client, topic) else 0
    if id == b"+":
        if not await is_stream(client, topic):
            return 0
        first, end = await bounds(client, topic)
        return max(first, end - 1)
    place = parse_id(id)
    if place == FIRST or not await is_stream(client, topic):
        return 0
    return await Reader(client, topic).offset_of(place.following)


async def _read(
    client: Client, topic: str, offset: int, limit: int, wait_s: float = 0.0
) -> Reading:
    """A stream that is not there is one without entries; so is what lies beyond the end."""
    if not await is_stream(client, topic):
        return Reading(0, is_end=True)
    try:
        return await Reader(client, topic).step(offset, limit, wait_s)
    except (UnknownTopic, OffsetOutOfRange):
        return Reading(offset, is_end=True)


async def _wait(
    client: Client, places: list[tuple[str, int]], limit: int, block_ms: int
) -> list[tuple[str, Reading]]:
    """The first stream that has something, once one has; what others have by then is beside it."""
    longest_s = client.requests.parts.limits.long_poll_s_max
    end_s = client.loop_s + block_ms / 1000 if block_ms else None
    following = dict(places)
    while True:
        left_s = longest_s if end_s is None else min(longest_s, end_s - client.loop_s)
        if left_s <= 0:
            return []
        found = await _first(client, following, limit, left_s)
        if any(read.entries for _, read in found):
            return found
        for topic, read in found:
            following[topic] = read.following


async def _first(
    client: Client, places: dict[str, int], limit: int, wait_s: float
) -> list[tuple[str, Reading]]:
    """One round: until one stream has something, or the time is over."""

    async def one(topic: str, offset: int) -> tuple[str, Reading]:
        read = await _read(client, topic, offset, limit, wait_s)
        if not read.entries and (read.blocked or not await is_stream(client, topic)):
            await asyncio.sleep(min(wait_s, LOOK_AGAIN_S))
        return topic, read

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(topic, offset)) for topic, offset in places.items()]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
    return [task.result() for task in tasks if task in done]


async def xinfo_stream(client: Client, arguments: list[bytes]) -> Reply:
    topic = words.topic(arguments[0])
    if arguments[1:]:
        raise RedisError("ERR XINFO STREAM takes no FULL here: see XINFO GROUPS, XRANGE")
    if not await is_stream(client, topic):
        raise no_such_key()
    first, end = await bounds(client, topic)
    reader = Reader(client, topic)
    oldest = await reader.all(FIRST, LAST, 1)
    newest = await reader.newest(FIRST, LAST, 1)
    stats = await client.broker.figures.queue_stats(topic)
    groups = {name for one in stats for name in one.groups}
    last_id = newest[0].id if newest else EntryId(0, 0)
    return {
        "length": end - first,
        "last-generated-id": str(last_id),
        "max-deleted-entry-id": "0-0",
        "entries-added": end,
        "recorded-first-entry-id": str(oldest[0].id if oldest else EntryId(0, 0)),
        "groups": len(groups),
        "first-entry": oldest[0].told if oldest else None,
        "last-entry": newest[0].told if newest else None,
    }


def no_such_key() -> RedisError:
    return RedisError("ERR no such key")


def _count(options: list[bytes]) -> int | None:
    if not options:
        return None
    given = Words(options)
    if given.option() != "COUNT":
        raise RedisError(words.SYNTAX)
    count = given.number(-(2**53))
    given.end()
    return None if count < 0 else count


TABLE = (
    Command("XLEN", xlen, "listPartitions", 1, 1, key_at=0),
    Command("XRANGE", xrange, "readPartition", 3, 5, key_at=0),
    Command("XREVRANGE", xrevrange, "readPartition", 3, 5, key_at=0),
    Command("XREAD", xread, "readTopic", 3, may_wait=True),
    Command("XINFO STREAM", xinfo_stream, "readTopic", 1, 2, key_at=0),
)

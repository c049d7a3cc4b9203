"""Commands that store something: XADD, LPUSH, RPUSH, PUBLISH.

Those of a kind that a client sends together are appended together, a batch for each topic; each
gets its own reply, once it is as durable as its topic promises.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from goqueue.wire.batch import encode_columns
from goqueue.wire.compression import Codec
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    KeyRequired,
    PayloadTooLarge,
    UnknownTopic,
)
from goqueue.wire.partitioner import partition_for
from goqueue.wire.records import Headers
from node.api.records import AppendResult
from node.http.budget.memory import Kind
from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.ids import EntryId
from node.listeners.redis.replies import OK, Failure, RedisError, Reply, failure_of
from node.listeners.redis.words import Words

TOGETHER_BYTES_MAX = 1 << 20
"""Of commands that are appended together; a larger one is appended alone."""
VALUE, KEY = b"value", b"key"
"""Fields of an entry that are a message's own; every other one is a header of it."""
HEADER_FRAME_BYTES = 6


@dataclass(slots=True)
class Entry:
    """One message that is to be stored."""

    topic: str
    value: bytes
    size: int
    """Bytes of its value, key and headers."""
    key: bytes | None = None
    headers: Headers = ()
    is_stream: bool = False
    makes_topic: bool = True


class NotAStream(BadRequest):
    """The topic has several partitions, and a stream has one order."""

    code = "not_a_stream"

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(
            f"topic {topic} has {partitions} partitions: a stream is a topic of one",
            topic=topic,
            partitions=partitions,
        )


def read_xadd(arguments: list[bytes]) -> list[Entry]:
    """`key [NOMKSTREAM] [MAXLEN|MINID [=|~] n [LIMIT n]] * field value [field value ...]`."""
    if len(arguments) > 1 and arguments[1] == b"*":
        return [_stream_entry(words.topic(arguments[0]), arguments[2:], makes_topic=True)]
    given = Words(arguments)
    topic, makes_topic = words.topic(given.take()), True
    while True:
        if given.looks_like("NOMKSTREAM"):
            makes_topic = False
        elif given.looks_like("MAXLEN", "MINID"):
            given.looks_like("=", "~")
            given.take()
            if given.looks_like("LIMIT"):
                given.number()
        else:
            break
    if given.take() != b"*":
        raise RedisError("ERR ids are given by the server, as the entry is stored: ask for *")
    return [_stream_entry(topic, given.rest(), makes_topic)]


def _stream_entry(topic: str, pairs: list[bytes], makes_topic: bool) -> Entry:
    if not pairs or len(pairs) % 2:
        raise RedisError("ERR wrong number of arguments for 'xadd' command")
    value: bytes | None = None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = []
    size = 0
    for at in range(0, len(pairs), 2):
        name, content = pairs[at], pairs[at + 1]
        size += len(content)
        if name in (VALUE, KEY):
            if (value if name == VALUE else key) is not None:
                raise RedisError(f"ERR field {name.decode()} is given twice")
            value, key = (content, key) if name == VALUE else (value, content)
            continue
        try:
            headers.append((name.decode(), content))
        except UnicodeDecodeError:
            raise RedisError("ERR a field's name is not UTF-8") from None
        if not name:
            raise RedisError("ERR a field's name is empty")
        size += len(name) + HEADER_FRAME_BYTES
    return Entry(topic, value or b"", size, key, tuple(headers), True, makes_topic)


def read_push(arguments: list[bytes]) -> list[Entry]:
    """`key element [element ...]`."""
    topic = words.topic(arguments[0])
    return [Entry(topic, value, len(value)) for value in arguments[1:]]


def read_publish(arguments: list[bytes]) -> list[Entry]:
    """`topic message`."""
    topic, value = arguments
    return [Entry(words.topic(topic), value, len(value))]


READERS = {"XADD": read_xadd, "LPUSH": read_push, "RPUSH": read_push, "PUBLISH": read_publish}

Stored = EntryId | GoQueueError | None
"""Where an entry stands; None where it was not wanted, as there is no such stream."""


async def publish(client: Client, name: str, commands: Sequence[list[bytes]]) -> list[Reply]:
    """The reply to each of these commands of one name; `commands` are their arguments."""
    replies: list[Reply] = [None] * len(commands)
    topics: dict[str, _Part] = {}
    read = READERS[name]
    for number, arguments in enumerate(commands):
        try:
            for entry in read(arguments):
                part = topics.get(entry.topic)
                if part is None:
                    part = topics[entry.topic] = _Part()
                part.numbers.append(number)
                part.entries.append(entry)
        except GoQueueError as error:
            replies[number] = failure_of(error)
            _told(client, name, error)
    storing = [_store(client, name, topic, part.entries) for topic, part in topics.items()]
    found = [await storing[0]] if len(storing) == 1 else await asyncio.gather(*storing)
    for part, stored in zip(topics.values(), found, strict=True):
        for number, end in zip(part.numbers, stored, strict=True):
            before = replies[number]
            if not isinstance(before, Failure):
                replies[number] = _reply(name, end, before)
    return replies


@dataclass(slots=True)
class _Part:
    """What goes to one topic, and the numbers of the commands that said so."""

    numbers: list[int] = field(default_factory=list[int])
    entries: list[Entry] = field(default_factory=list[Entry])


def _told(client: Client, name: str, error: GoQueueError) -> None:
    """It was refused before it was known what it is about."""
    try:
        with client.observed(name, "publish"):
            raise error
    except GoQueueError:
        return


def _reply(name: str, end: Stored, before: Reply) -> Reply:
    """LPUSH and RPUSH count the entries of one command, the others have one."""
    if isinstance(end, GoQueueError):
        return failure_of(end)
    if name == "XADD":
        return None if end is None else b"%d-%d" % end
    if name == "PUBLISH":
        return OK
    assert end is not None
    return max(end.offset + 1, before if isinstance(before, int) else 0)


async def _store(client: Client, name: str, topic: str, entries: list[Entry]) -> list[Stored]:
    """The end of each entry of one topic."""
    try:
        with client.observed(name, "publish", topic, len(entries)) as seen:
            await client.admit("publish", topic)
            partition = await _partition(client, entries[0], len(entries))
            if partition is None:
                return [None] * len(entries)
            ends = await _append(client, topic, partition, entries)
            seen.tell_span("publish", topic, len(entries))
            return ends
    except GoQueueError as error:
        return [error] * len(entries)


async def _partition(client: Client, entry: Entry, count: int) -> int | None:
    """Where they go; None where there is no such stream, and none is to be made."""
    topics, topic = client.broker.topics, entry.topic
    try:
        partitions = topics.partition_count(topic)
    except UnknownTopic:
        if not entry.makes_topic:
            return None
        await topics.ensure_topic(topic, 1)  # so that it is in order
        partitions = topics.partition_count(topic)
    if entry.is_stream:
        if partitions != 1:
            raise NotAStream(topic, partitions)
        return 0
    if entry.key is not None:
        return partition_for(entry.key, partitions)
    return client.broker.records.pick_partition(topic, count)


async def _append(client: Client, topic: str, partition: int, entries: list[Entry]) -> list[Stored]:
    """Those that may be stored, in one batch."""
    topics = client.broker.topics
    bytes_max, compacted = topics.max_message_bytes(topic), topics.is_compacted(topic)
    ends: list[Stored] = [None] * len(entries)
    rows: list[int] = []
    for row, entry in enumerate(entries):
        size = entry.size
        if size > bytes_max:
            ends[row] = PayloadTooLarge(
                f"a message of {size} bytes: topic {topic} takes {bytes_max}", limit=bytes_max
            )
        elif compacted and entry.key is None:
            ends[row] = KeyRequired("the topic is compacted: its messages have keys, a field `key`")
        else:
            rows.append(row)
    if not rows:
        return ends
    fitting = [entries[row] for row in rows]
    size = sum(entry.size for entry in fitting)

    async def append(parts: Sequence[list[Entry]]) -> list[EntryId | GoQueueError]:
        return await _append_parts(client, topic, partition, parts)

    line = (topic, partition, client.caller.owner.holder)
    turn = client.requests.parts.turn
    first = await turn.join(line, fitting, append, items=len(fitting), size_bytes=size)
    for number, row in enumerate(rows):
        if isinstance(first, GoQueueError):
            ends[row] = first
        else:
            ends[row] = EntryId(first.time_ms, first.offset + number)
    return ends


async def _append_parts(
    client: Client, topic: str, partition: int, parts: Sequence[list[Entry]]
) -> list[EntryId | GoQueueError]:
    """Where the first entry of each part stands: in one batch, unless one of them can't be in any:
    then each has its own."""
    codec = Codec.named(client.broker.topics.compression(topic))
    try:
        batch = _encoded([entry for part in parts for entry in part], codec)
    except GoQueueError as error:
        if len(parts) == 1:
            return [error]
        found: list[EntryId | GoQueueError] = []
        for part in parts:
            found += await _append_parts(client, topic, partition, [part])
        return found
    stored = await _append_batch(client, topic, partition, batch)
    places, at = list[EntryId | GoQueueError](), int(stored.base_offset)
    for part in parts:
        places.append(EntryId(stored.time_ms, at))
        at += len(part)
    return places


def _encoded(entries: list[Entry], codec: Codec) -> bytes:
    """Raises PayloadTooLarge, BatchError."""
    keys, headers = [one.key for one in entries], [one.headers for one in entries]
    return encode_columns(
        [one.value for one in entries],
        keys if any(key is not None for key in keys) else None,
        timestamps_ms=time.time_ns() // 1_000_000,
        headers=headers if any(headers) else None,
        codec=codec,
    )


async def _append_batch(client: Client, topic: str, partition: int, batch: bytes) -> AppendResult:
    requests = client.requests
    with await requests.room(client.caller, Kind.APPENDS, len(batch)):
        return await client.broker.records.append(
            topic,
            partition,
            batch,
            deadline_s=requests.parts.limits.append_deadline_s,
            validated=True,
        )

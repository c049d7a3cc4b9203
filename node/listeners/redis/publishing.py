"""Commands that store something: XADD, LPUSH, RPUSH, PUBLISH.

Those of a kind that a client sends together are appended together, a batch for each topic; each
gets its own reply, once it is as durable as its topic promises.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from goqueue.wire.batch import encode_columns
from goqueue.wire.compression import Codec
from goqueue.wire.errors import (
    BadRequest,
    GoQueueError,
    KeyRequired,
    PayloadTooLarge,
    UnknownTopic,
)
from goqueue.wire.records import Headers
from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.ids import EntryId
from node.listeners.redis.replies import OK, Failure, RedisError, Reply, failure_of
from node.listeners.redis.scan import Run
from node.listeners.redis.words import Words

TOGETHER_BYTES_MAX = 1 << 20
"""Of commands that are appended together; a larger one is appended alone."""
VALUE, KEY = b"value", b"key"
"""Fields of an entry that are a message's own; every other one is a header of it."""
HEADER_FRAME_BYTES = 6

T = TypeVar("T")


@dataclass(slots=True)
class Entries:
    """Messages that are to be stored in one topic, by columns: one row each."""

    topic: str
    numbers: list[int] = field(default_factory=list[int])
    """Which command said so."""
    values: list[bytes] = field(default_factory=list[bytes])
    keys: list[bytes | None] = field(default_factory=list["bytes | None"])
    headers: list[Headers] = field(default_factory=list[Headers])
    sizes: list[int] = field(default_factory=list[int])
    """Bytes of value, key and headers."""
    first_maker: int | None = None
    """The first row that makes the topic where there is none."""

    def __len__(self) -> int:
        return len(self.numbers)

    def add(
        self, number: int, value: bytes, key: bytes | None, headers: Headers, size: int
    ) -> None:
        self.numbers.append(number)
        self.values.append(value)
        self.keys.append(key)
        self.headers.append(headers)
        self.sizes.append(size)

    def add_values(self, numbers: Sequence[int], values: list[bytes]) -> None:
        """Rows of nothing but a value, each of which makes its topic."""
        self.makes_topic()
        self.numbers += numbers
        self.values += values
        self.keys += [None] * len(values)
        self.headers += [()] * len(values)
        self.sizes += map(len, values)

    def makes_topic(self) -> None:
        """The next row does."""
        if self.first_maker is None:
            self.first_maker = len(self)

    def rows(self, rows: Sequence[int]) -> Entries:
        """These alone."""
        if len(rows) == len(self):
            return self
        return Entries(
            self.topic,
            _picked(self.numbers, rows),
            _picked(self.values, rows),
            _picked(self.keys, rows),
            _picked(self.headers, rows),
            _picked(self.sizes, rows),
        )


def _picked(column: list[T], rows: Sequence[int]) -> list[T]:
    return [column[row] for row in rows]


Topics = dict[str, Entries]
"""What goes to each topic."""


class NotAStream(BadRequest):
    """The topic has several partitions, and a stream has one order."""

    code = "not_a_stream"

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(
            f"topic {topic} has {partitions} partitions: a stream is a topic of one",
            topic=topic,
            partitions=partitions,
        )


def read_xadd(arguments: list[bytes], number: int, topics: Topics) -> None:
    """`key [NOMKSTREAM] [MAXLEN|MINID [=|~] n [LIMIT n]] * field value [field value ...]`."""
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
    pairs = given.rest()
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
    entries = _of(topics, topic)
    if makes_topic:
        entries.makes_topic()
    entries.add(number, value or b"", key, tuple(headers), size)


def read_push(arguments: list[bytes], number: int, topics: Topics) -> None:
    """`key element [element ...]`; PUBLISH has one."""
    topic, *values = arguments
    _of(topics, words.topic(topic)).add_values([number] * len(values), values)


def _of(topics: Topics, topic: str) -> Entries:
    entries = topics.get(topic)
    if entries is None:
        entries = topics[topic] = Entries(topic)
    return entries


READERS = {"XADD": read_xadd, "LPUSH": read_push, "RPUSH": read_push, "PUBLISH": read_push}
"""Each takes the arguments of a command and its number, and adds to what goes to its topic."""


def _read_alike(name: str, run: Run, number: int, topics: Topics) -> bool:
    """Read `XADD topic * value x`, or `PUBLISH topic x`, of one topic again and again: most
    pipelines are that. Whether it is one."""
    columns, count = run.columns, len(run)
    if name == "XADD":
        if len(columns) != len(_PLAIN_XADD):
            return False
        for column, word in zip(columns, _PLAIN_XADD, strict=True):
            if word is not None and column.count(word) < count:
                return False
    elif name != "PUBLISH":
        return False
    topic = columns[1][0]
    if columns[1].count(topic) < count:
        return False
    numbers = range(number, number + count)
    _of(topics, words.topic(topic)).add_values(numbers, columns[-1])
    return True


_PLAIN_XADD = (None, None, b"*", VALUE, None)


async def publish(client: Client, name: str, runs: Sequence[Run]) -> list[Reply]:
    """The reply to each of these commands of one name."""
    replies: list[Reply] = [None] * sum(map(len, runs))
    topics: Topics = {}
    number = 0
    for run in runs:
        if not _read_alike(name, run, number, topics):
            for at, said in enumerate(run.commands(), number):
                try:
                    READERS[name](said[1:], at, topics)
                except GoQueueError as error:
                    replies[at] = failure_of(error)
                    _told(client, name, error)
        number += len(run)
    storing = [_store(client, name, entries) for entries in topics.values()]
    found = [await storing[0]] if len(storing) == 1 else await asyncio.gather(*storing)
    for entries, stored in zip(topics.values(), found, strict=True):
        if entries.numbers == list(range(len(replies))):
            return stored
        for number, reply in zip(entries.numbers, stored, strict=True):
            replies[number] = _of_one_command(replies[number], reply)
    return replies


def _of_one_command(first: Reply, second: Reply) -> Reply:
    """LPUSH and RPUSH have a reply for each element; what was refused is told."""
    if isinstance(first, Failure):
        return first
    if isinstance(first, int) and isinstance(second, int):
        return max(first, second)
    return second


def _told(client: Client, name: str, error: GoQueueError) -> None:
    """It was refused before it was known what it is about."""
    try:
        with client.observed(name, "publish"):
            raise error
    except GoQueueError:
        return


def _replies(name: str, first: EntryId, count: int) -> list[Reply]:
    """To so many that are stored one behind the other: an id, OK, or how many there are."""
    if name == "XADD":
        time_ms, offset = first
        return [b"%d-%d" % (time_ms, at) for at in range(offset, offset + count)]
    if name == "PUBLISH":
        return [OK] * count
    return list(range(first.offset + 1, first.offset + 1 + count))


async def _store(client: Client, name: str, entries: Entries) -> list[Reply]:
    """The reply to each entry of one topic; None where it was not wanted, as there is no such
    stream."""
    topic, count = entries.topic, len(entries)
    try:
        with client.observed(name, "publish", topic, count) as seen:
            await client.admit("publish", topic)
            skipped = await _skipped(client, entries)
            wanted = entries.rows(range(skipped, count))
            replies = await _append(client, name, wanted) if wanted else []
            seen.tell_span("publish", topic, count)
            return [*[None] * skipped, *replies] if skipped else replies
    except GoQueueError as error:
        return [failure_of(error)] * count


async def _skipped(client: Client, entries: Entries) -> int:
    """How many of the first ones are not to be stored, as there is no such topic before the first
    one that makes it."""
    topics, topic, first = client.broker.topics, entries.topic, entries.first_maker
    try:
        topics.partition_count(topic)
    except UnknownTopic:
        if first is None:
            return len(entries)
        await topics.ensure_topic(topic, 1)  # so that it is in order
        return first
    return 0


def _partition(client: Client, name: str, topic: str, count: int) -> int:
    """Where they go. Raises NotAStream."""
    if name != "XADD":
        return client.broker.records.pick_partition(topic, count)
    partitions = client.broker.topics.partition_count(topic)
    if partitions != 1:
        raise NotAStream(topic, partitions)
    return 0


async def _append(client: Client, name: str, entries: Entries) -> list[Reply]:
    """Those that may be stored, in one batch."""
    topic, refused = entries.topic, _refused(client, entries)
    fitting = entries
    if refused:
        fitting = entries.rows([row for row in range(len(entries)) if row not in refused])
    stored: list[Reply] = []
    if fitting:
        partition = _partition(client, name, topic, len(fitting))

        async def append(parts: Sequence[Entries]) -> list[EntryId | GoQueueError]:
            return await _append_parts(client, partition, parts)

        first = await client.requests.parts.turn.join(
            (client.requests.protocol, topic, partition, client.caller.owner.holder),
            fitting,
            append,
            items=len(fitting),
            size_bytes=sum(fitting.sizes),
        )
        if isinstance(first, GoQueueError):
            stored = [failure_of(first)] * len(fitting)
        else:
            stored = _replies(name, first, len(fitting))
    if not refused:
        return stored
    left = iter(stored)
    return [
        failure_of(refused[row]) if row in refused else next(left) for row in range(len(entries))
    ]


def _refused(client: Client, entries: Entries) -> dict[int, GoQueueError]:
    """What is in the way of some rows."""
    topics, topic = client.broker.topics, entries.topic
    refused: dict[int, GoQueueError] = {}
    if topics.is_compacted(topic):
        text = "the topic is compacted: its messages have keys, a field `key`"
        refused |= {row: KeyRequired(text) for row, key in enumerate(entries.keys) if key is None}
    limit = topics.max_message_bytes(topic)
    if max(entries.sizes) > limit:
        for row, size in enumerate(entries.sizes):
            if size > limit:
                refused[row] = PayloadTooLarge(
                    f"a message of {size} bytes: topic {topic} takes {limit}", limit=limit
                )
    return refused


async def _append_parts(
    client: Client, partition: int, parts: Sequence[Entries]
) -> list[EntryId | GoQueueError]:
    """Where the first entry of each part stands: in one batch, unless one of them can't be in any:
    then each has its own."""
    topic = parts[0].topic
    codec = Codec.named(client.broker.topics.compression(topic))
    try:
        batch = _encoded(parts, codec)
    except GoQueueError as error:
        if len(parts) == 1:
            return [error]
        found: list[EntryId | GoQueueError] = []
        for part in parts:
            found += await _append_parts(client, partition, [part])
        return found
    stored = await client.requests.append(client.caller, topic, partition, batch)
    places, at = list[EntryId | GoQueueError](), int(stored.base_offset)
    for part in parts:
        places.append(EntryId(stored.time_ms, at))
        at += len(part)
    return places


def _encoded(parts: Sequence[Entries], codec: Codec) -> bytes:
    """Raises PayloadTooLarge, BatchError."""
    return encode_columns(
        list(chain.from_iterable(part.values for part in parts)),
        list(chain.from_iterable(part.keys for part in parts)),
        timestamps_ms=time.time_ns() // 1_000_000,
        headers=list(chain.from_iterable(part.headers for part in parts)),
        codec=codec,
    )

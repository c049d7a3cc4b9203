"""Entries of a stream, as they are read from its partition and told to a client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

from goqueue.wire.errors import BadRequest, NotFound, Unavailable, UnknownTopic
from goqueue.wire.ids import OFFSET_MAX
from goqueue.wire.records import Headers, decode_headers
from goqueue.wire.types import Offset
from node.api.queue import QueuedMessage
from node.api.records import Slice
from node.http.budget.memory import Held, Kind
from node.http.messages.render import Cut, cut_slice
from node.http.messages.visible import Seen, is_mixed, judge
from node.listeners.redis.client import Client
from node.listeners.redis.ids import EntryId
from node.listeners.redis.publishing import NotAStream
from node.listeners.redis.replies import Reply

PARTITION = 0
READ_BYTES = 1 << 20
"""Of stored batches in one step of a read."""
READ_RECORDS = 1000
"""Entries in one step."""
REPLY_BYTES_MAX = 8 << 20
"""Of the entries of one reply: what is more is refused, with a word about COUNT."""
ENTRY_BYTES = 300
"""What an entry takes while it is told, beside its texts."""


class TooMuch(BadRequest):
    """A range holds more than one reply may."""

    code = "too_much"


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """One entry with its fields in order, names and values in turn."""

    id: EntryId
    fields: list[bytes]

    @property
    def told(self) -> list[Reply]:
        return [str(self.id), list(self.fields)]

    @property
    def size(self) -> int:
        return sum(map(len, self.fields)) + ENTRY_BYTES


def fields_of(value: bytes, key: bytes | None, headers: Headers) -> list[bytes]:
    """A message as fields: its `value`, unless it is empty and there are others; its `key`; its
    headers."""
    fields: list[bytes] = []
    if value or (key is None and not headers):
        fields += (b"value", value)
    if key is not None:
        fields += (b"key", key)
    for name, content in headers:
        fields += (name.encode(), content)
    return fields


def entry_of(message: QueuedMessage) -> StreamEntry:
    return StreamEntry(
        EntryId(message.time_ms, message.offset),
        fields_of(message.value, message.key, message.headers),
    )


async def partitions_of(client: Client, topic: str) -> int:
    """0 where there is no such topic, of which this node makes sure."""
    topics = client.broker.topics
    try:
        return topics.partition_count(topic)
    except UnknownTopic:
        pass
    try:
        return len((await topics.topic(topic)).partitions)
    except UnknownTopic:
        return 0


async def is_stream(client: Client, topic: str) -> bool:
    """False where there is no such topic. Raises NotAStream."""
    partitions = await partitions_of(client, topic)
    if partitions > 1:
        raise NotAStream(topic, partitions)
    return partitions == 1


async def bounds(client: Client, topic: str) -> tuple[int, int]:
    """The first offset and the next one. Raises Unavailable where no leader tells."""
    ends = await client.broker.records.end_offsets(topic)
    if PARTITION not in ends:
        raise Unavailable(f"the end of {topic} is not known now: no leader tells it")
    return int(ends[PARTITION][0]), int(ends[PARTITION][1])


@dataclass(slots=True)
class Reading:
    """What was read of a stream from an offset on. `following` is where reading goes on; `blocked`
    says that the entry there is not due."""

    following: int
    entries: list[StreamEntry] = field(default_factory=list[StreamEntry])
    blocked: bool = False
    is_end: bool = False


class Reader:
    """Reads one stream for one reply; what it holds is charged until that is written."""

    def __init__(self, client: Client, topic: str, held: Held | None = None) -> None:
        self._client = client
        self._topic = topic
        self._held = held or client.hold(Kind.ANSWERS)

    async def step(self, offset: int, limit: int, wait_s: float = 0.0) -> Reading:
        """Visible entries from the offset on, of one read; none of those behind one that is not
        due."""
        found = await self._client.broker.records.read(
            self._topic,
            PARTITION,
            Offset(offset),
            max_records=min(limit, READ_RECORDS),
            max_bytes=READ_BYTES,
            wait_s=wait_s,
            visible=True,
        )
        if found.stale and not found.batches:
            raise Unavailable(f"no leader of {self._topic} confirms that there is no more")
        return self._read(found, max(offset, int(found.log_start)), min(limit, READ_RECORDS))

    async def all(self, first: EntryId, last: EntryId, limit: int | None) -> list[StreamEntry]:
        """Entries from `first` to `last`, at most `limit`, from the oldest on. Raises TooMuch where
        they are more than one reply holds."""
        offset = await self.offset_of(first)
        found: list[StreamEntry] = []
        size, left = 0, OFFSET_MAX if limit is None else limit
        while left > 0:
            read = await self.step(offset, left)
            for entry in read.entries:
                if entry.id > last:
                    return found
                size += entry.size
                if size > REPLY_BYTES_MAX and found:
                    raise _too_much()
                found.append(entry)
                left -= 1
            if read.is_end or read.blocked or read.following <= offset:
                break
            offset = read.following
        return found

    async def newest(self, first: EntryId, last: EntryId, limit: int | None) -> list[StreamEntry]:
        """As `all`, from the newest on."""
        begin, end = await bounds(self._client, self._topic)
        low = max(begin, await self.offset_of(first))
        high = min(end, await self.offset_of(last.following))
        found: list[StreamEntry] = []
        size, left = 0, OFFSET_MAX if limit is None else limit
        while high > low and left > 0:
            start = max(low, high - min(left, READ_RECORDS))
            part = await self.between(start, high)
            for entry in reversed(part):
                size += entry.size
                if size > REPLY_BYTES_MAX and found:
                    raise _too_much()
                found.append(entry)
                left -= 1
                if not left:
                    break
            high = start
        return found

    async def between(self, start: int, end: int) -> list[StreamEntry]:
        """All visible ones of these offsets."""
        found: list[StreamEntry] = []
        while start < end:
            read = await self.step(start, end - start)
            found += [entry for entry in read.entries if entry.id.offset < end]
            if read.is_end or read.blocked or read.following <= start:
                break
            start = read.following
        return found

    async def offset_of(self, id: EntryId) -> int:
        """The offset of the first entry that is not before this id: its own, where its time is."""
        if id.time_ms <= 0:
            return 0
        records = self._client.broker.records
        at = int(await records.offset_at(self._topic, PARTITION, id.time_ms))
        if id.offset <= at:
            return at
        behind = int(await records.offset_at(self._topic, PARTITION, id.time_ms + 1))
        return min(id.offset, behind)

    def _read(self, found: Slice, offset: int, limit: int) -> Reading:
        cuts, following = cut_slice(found, offset, limit)
        reading, visibility = Reading(following), found.visibility
        withdrawn = frozenset(visibility.withdrawn if visibility else ())
        for cut in cuts:
            shown: list[bool] | None = None
            if visibility is not None and is_mixed(cut, visibility, withdrawn):
                seen = Seen(following)
                shown = judge(cut, visibility, withdrawn, seen, skip_pending=False)
                cut.last = cut.first + len(shown)
                reading.blocked = seen.blocked_until_ms is not None
                if reading.blocked:
                    reading.following = seen.following
            entries = self._entries(cut)
            reading.entries += entries if shown is None else compress(entries, shown)
            if reading.blocked:
                break
        reading.is_end = reading.following >= found.end_offset
        return reading

    def _entries(self, cut: Cut) -> list[StreamEntry]:
        if cut.last <= cut.first:
            return []
        plain_bytes = cut.batch.header.values_plain_bytes
        self._held.grow(plain_bytes)
        try:
            rows = cut.batch.rows(cut.first, cut.last, cut.batch.plain_values())
        finally:
            self._held.shrink(plain_bytes)
        base, time_ms = cut.stored.base_offset + cut.first, cut.stored.time_ms
        columns = zip(rows.values, rows.keys, rows.headers, strict=True)
        entries = [
            StreamEntry(
                EntryId(time_ms, base + row),
                fields_of(value, key, decode_headers(headers) if headers else ()),
            )
            for row, (value, key, headers) in enumerate(columns)
        ]
        self._held.grow(2 * sum(entry.size for entry in entries))
        return entries


async def entry_at(client: Client, topic: str, id: EntryId) -> StreamEntry | None:
    """The entry of this very id; None where it is gone, or never was."""
    try:
        read = await Reader(client, topic).step(id.offset, 1)
    except NotFound:
        return None
    found: Sequence[StreamEntry] = read.entries
    return found[0] if found and found[0].id == id else None


def _too_much() -> TooMuch:
    return TooMuch(
        f"the range holds more than {REPLY_BYTES_MAX >> 20} MiB: ask for less at a time with COUNT"
    )

"""Pending entries of a group: who has what, and who takes it over. XPENDING, XAUTOCLAIM, XINFO.

They are leases: their leader tells of them, and a claim is a nack and a delivery in one entry.
"""

from __future__ import annotations

from node.api.figures import GroupPartitionView
from node.api.queue import PendingFilter
from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.command import Command
from node.listeners.redis.entries import PARTITION, Reader, bounds, entry_of, is_stream
from node.listeners.redis.groups import COUNT_DEFAULT, COUNT_MAX, note, require
from node.listeners.redis.ids import FIRST, EntryId, parse_end, parse_start
from node.listeners.redis.replies import NO_LIST, RedisError, Reply
from node.listeners.redis.streams import no_such_key
from node.listeners.redis.words import Words


async def pending(client: Client, arguments: list[bytes]) -> Reply:
    """`key group [[IDLE ms] start end count [consumer]]`."""
    topic, group = words.topic(arguments[0]), words.group(arguments[1])
    await require(client, topic, group)
    given = Words(arguments[2:])
    if not given.left:
        return await _summary(client, topic, group)
    idle_ms = given.number() if given.looks_like("IDLE") else 0
    start, end = parse_start(given.take()), parse_end(given.take())
    count = given.number(-(2**53))
    consumer = words.consumer(given.take()) if given.left else None
    given.end()
    if count <= 0 or start > end:
        return []
    which = PendingFilter(
        min(count, COUNT_MAX), start.offset, end.offset, consumer, idle_ms_min=idle_ms
    )
    found = await client.broker.queue.pending(group, topic, PARTITION, which)
    return [
        [str(note(client, topic, group, one)), one.consumer, one.idle_ms, one.attempt]
        for one in found.found
    ]


async def _summary(client: Client, topic: str, group: str) -> Reply:
    found = await client.broker.queue.pending(group, topic, PARTITION, PendingFilter())
    total = sum(found.by_consumer.values())
    if not total:
        return [0, None, None, NO_LIST]
    ends = PendingFilter(2, offsets=[found.first, found.last])
    edges = await client.broker.queue.pending(group, topic, PARTITION, ends)
    ids: list[Reply] = [str(note(client, topic, group, one)) for one in edges.found] or [None]
    consumers: list[Reply] = [[name, str(n)] for name, n in sorted(found.by_consumer.items())]
    return [total, ids[0], ids[-1], consumers]


async def claim(client: Client, arguments: list[bytes]) -> Reply:
    """`key group consumer min-idle-time start [COUNT n] [JUSTID]`."""
    topic, group = words.topic(arguments[0]), words.group(arguments[1])
    consumer, given = words.consumer(arguments[2]), Words(arguments[3:])
    idle_ms, start = given.number(), parse_start(given.take())
    count, is_bare = COUNT_DEFAULT, False
    while given.left:
        if given.looks_like("COUNT"):
            count = given.number(1)
        elif given.looks_like("JUSTID"):
            is_bare = True
        else:
            raise RedisError(words.SYNTAX)
    await require(client, topic, group)
    which = PendingFilter(min(count, COUNT_MAX), start.offset, idle_ms_min=idle_ms)
    taken, before = await client.broker.queue.take_over(group, topic, PARTITION, consumer, which)
    gone = {one.offset for one in before.found} - {message.offset for message in taken}
    for message in taken:
        client.receipts.add((topic, group), entry_of(message).id, message.receipt)
    following = await _id_at(client, topic, before.following)
    ids = [
        str(EntryId(one.message.time_ms if one.message is not None else 0, one.offset))
        for one in before.found
        if one.offset in gone
    ]
    entries: list[Reply] = [
        str(entry_of(message).id) if is_bare else entry_of(message).told for message in taken
    ]
    return [following, entries, list(ids)]


async def _id_at(client: Client, topic: str, offset: int) -> str:
    """Where the next XAUTOCLAIM begins: `0-0` at the end."""
    if offset < 0:
        return str(FIRST)
    read = await Reader(client, topic).step(offset, 1)
    return str(read.entries[0].id if read.entries else EntryId(0, offset))


async def info_groups(client: Client, arguments: list[bytes]) -> Reply:
    topic = words.topic(arguments[0])
    if not await is_stream(client, topic):
        raise no_such_key()
    replies: list[Reply] = []
    for one in await client.broker.figures.queue_stats(topic):
        for name, view in sorted(one.groups.items()):
            pending = await client.broker.queue.pending(name, topic, PARTITION, PendingFilter())
            last = await _last_delivered(client, topic, view)
            replies.append(
                {
                    "name": name,
                    "consumers": len(pending.by_consumer),
                    "pending": view.in_flight,
                    "last-delivered-id": last,
                    "entries-read": None,
                    "lag": view.ready + view.waiting,
                }
            )
    return replies


async def info_consumers(client: Client, arguments: list[bytes]) -> Reply:
    """Those that have something pending."""
    topic, group = words.topic(arguments[0]), words.group(arguments[1])
    await require(client, topic, group)
    found = await client.broker.queue.pending(group, topic, PARTITION, PendingFilter())
    replies: list[Reply] = []
    for name, count in sorted(found.by_consumer.items()):
        which = PendingFilter(1, consumer=name)
        first = await client.broker.queue.pending(group, topic, PARTITION, which)
        idle_ms = first.found[0].idle_ms if first.found else 0
        replies.append({"name": name, "pending": count, "idle": idle_ms, "inactive": idle_ms})
    return replies


async def _last_delivered(client: Client, topic: str, view: GroupPartitionView) -> str:
    """The last entry that the group has settled without a gap."""
    first, _end = await bounds(client, topic)
    at = view.committed_offset - 1
    if at < first:
        return str(FIRST)
    read = await Reader(client, topic).step(at, 1)
    return str(read.entries[0].id if read.entries else FIRST)


TABLE = (
    Command("XPENDING", pending, "describeGroup", 2, 7, key_at=0),
    Command("XAUTOCLAIM", claim, "receive", 5, 8, key_at=0, is_write=True),
    Command("XINFO GROUPS", info_groups, "describeGroup", 1, 1, key_at=0),
    Command("XINFO CONSUMERS", info_consumers, "describeGroup", 2, 2, key_at=0),
)

"""Groups of streams: a consumer group of GoQueue each, whose leases are Redis' pending entries.

A lease carries the consumer's name and outlives its connection. It ends by XACK, or once the
group's visibility is over: then the entry comes again, to whoever reads next.
"""

from __future__ import annotations

from goqueue.wire.errors import (
    GoQueueError,
    NotFound,
    NotInFlight,
    OffsetOutOfRange,
    ReceiptExpired,
    Unavailable,
    UnknownGroup,
    UnknownTopic,
)
from node.api.claims import Claim
from node.api.figures import GroupPartitionView
from node.api.queue import PendingFilter, PendingMessage, QueuedMessage, Received, SettleRequest
from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.command import Command
from node.listeners.redis.entries import (
    PARTITION,
    Reader,
    StreamEntry,
    entry_of,
    is_stream,
)
from node.listeners.redis.ids import FIRST, EntryId, parse_id
from node.listeners.redis.replies import NO_LIST, OK, RedisError, Reply
from node.listeners.redis.streams import block_of, streams_of, told
from node.listeners.redis.words import Words
from node.listeners.waiting import room_for

COUNT_DEFAULT = 100
"""Entries of XREADGROUP and XAUTOCLAIM where no COUNT is given; Redis' XAUTOCLAIM has 100, too."""
COUNT_MAX = 1000
KNOWN_S = 1.0
"""For how long a group that was there is not looked for again."""
KNOWN_MAX = 1000
END, BEGIN = -2, -1
"""Where a group is set to, as `Positions.seek` has it."""


class NoGroup(UnknownGroup):
    """There is no such group in this stream."""

    def __init__(self, topic: str, group: str) -> None:
        super().__init__(group)
        self.message = (
            f"No such key '{topic}' or consumer group '{group}': XGROUP CREATE {topic} {group} $"
        )


class GroupExists(GoQueueError):
    """The stream has a group of this name."""

    code, http_status = "group_exists", 409
    text = "Consumer Group name already exists"


# XGROUP


async def create(client: Client, arguments: list[bytes]) -> Reply:
    """`key group id|$ [MKSTREAM] [ENTRIESREAD n]`."""
    topic, group, id = words.topic(arguments[0]), words.group(arguments[1]), arguments[2]
    given, makes_stream = Words(arguments[3:]), False
    while given.left:
        if given.looks_like("MKSTREAM"):
            makes_stream = True
        elif given.looks_like("ENTRIESREAD"):
            given.take()
        else:
            raise RedisError(words.SYNTAX)
    if not await is_stream(client, topic):
        if not makes_stream:
            raise RedisError(
                "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may"
                " want to use the MKSTREAM option to create an empty stream automatically."
            )
        await client.broker.topics.ensure_topic(topic, 1)
    place = await _place(client, topic, id)
    await client.broker.groups.put_group(group, {})
    if not await client.broker.positions.begin(group, topic, PARTITION, offset=place):
        raise GroupExists
    return OK


async def set_id(client: Client, arguments: list[bytes]) -> Reply:
    """`key group id|$ [ENTRIESREAD n]`: what was settled behind it comes again; pending entries
    behind it end."""
    topic, group = words.topic(arguments[0]), words.group(arguments[1])
    if arguments[3:] and arguments[3].upper() != b"ENTRIESREAD":
        raise RedisError(words.SYNTAX)
    await require(client, topic, group)
    place = await _place(client, topic, arguments[2])
    await client.broker.positions.seek(group, topic, PARTITION, offset=place, time_ms=None)
    return OK


async def destroy(client: Client, arguments: list[bytes]) -> Reply:
    """`key group`: 0 where there is none. A group that is in other topics as well stays."""
    topic, group = words.topic(arguments[0]), words.group(arguments[1])
    if await _view(client, topic, group) is None:
        return 0
    view = await client.broker.groups.group(group)
    others = sorted({one.topic for one in view.partitions} - {topic})
    if others:
        raise RedisError(
            f"ERR group '{group}' is in other topics, too ({', '.join(others[:5])}), and would end"
            " there as well: delete it over HTTP if that is meant"
        )
    await client.broker.groups.delete_group(group)
    client.groups.pop((topic, group), None)
    return 1


async def create_consumer(client: Client, arguments: list[bytes]) -> Reply:
    """`key group consumer`: consumers are made as they read; this only looks at the names."""
    topic, group = words.topic(arguments[0]), words.group(arguments[1])
    consumer = words.consumer(arguments[2])
    await require(client, topic, group)
    which = PendingFilter(consumer=consumer)
    pending = await client.broker.queue.pending(group, topic, PARTITION, which)
    return int(consumer not in pending.by_consumer)


async def delete_consumer(client: Client, arguments: list[bytes]) -> Reply:
    """`key group consumer`: what it has in flight is ready again for others, and was how many. In
    Redis it would be lost to the group."""
    topic, group = words.topic(arguments[0]), words.group(arguments[1])
    consumer = words.consumer(arguments[2])
    await require(client, topic, group)
    count, start = 0, 0
    while start >= 0:
        which = PendingFilter(COUNT_MAX, start, consumer=consumer)
        found = await client.broker.queue.pending(group, topic, PARTITION, which)
        requests = [
            SettleRequest(one.receipt, "nack", "its consumer was deleted", 0) for one in found.found
        ]
        if requests:
            await client.broker.receipts.settle(requests, group)
        count, start = count + len(requests), found.following
    return count


# reading


async def read_group(client: Client, arguments: list[bytes]) -> Reply:
    """`GROUP group consumer [COUNT n] [BLOCK ms] [NOACK] STREAMS key [key ...] >|id [...]`."""
    given = Words(arguments)
    if not given.looks_like("GROUP"):
        raise RedisError(words.SYNTAX)
    group, consumer = words.group(given.take()), words.consumer(given.take())
    count, block_ms, is_acked = COUNT_DEFAULT, None, False
    while True:
        option = given.option()
        if option == "COUNT":
            count = min(COUNT_MAX, max(1, given.number(-(2**53))))
        elif option == "BLOCK":
            block_ms = block_of(given)
        elif option == "NOACK":
            is_acked = True
        elif option == "STREAMS":
            break
        else:
            raise RedisError(words.SYNTAX)
    topics, ids = streams_of(given, "xreadgroup")
    for id in ids:
        if id != b">":
            parse_id(id)
    for topic in topics:
        await require(client, topic, group)
    old = [(topic, parse_id(id)) for topic, id in zip(topics, ids, strict=True) if id != b">"]
    found: dict[str, list[StreamEntry]] = {}
    replies: dict[str, Reply] = {}
    for topic, after in old:
        replies[topic] = await _history(client, topic, group, consumer, after, count)
    fresh = [topic for topic, id in zip(topics, ids, strict=True) if id == b">"]
    if fresh:
        taken = await _take(client, group, consumer, fresh, count, None if old else block_ms)
        if is_acked and taken:
            taken = await settled_first(client, group, taken)
        for message in taken:
            entry = entry_of(message)
            if not is_acked:
                client.receipts.add((message.topic, group), entry.id, message.receipt)
            found.setdefault(message.topic, []).append(entry)
    if not old:
        return told([(topic, found.get(topic, [])) for topic in topics], client)
    for topic, entries in found.items():
        replies[topic] = [entry.told for entry in entries]
    ordered: dict[str, Reply] = {topic: replies[topic] for topic in topics if topic in replies}
    return ordered if client.resp3 else [[topic, one] for topic, one in ordered.items()]


async def _take(
    client: Client,
    group: str,
    consumer: str,
    topics: list[str],
    count: int,
    block_ms: int | None,
) -> list[QueuedMessage]:
    """Messages that are leased to the consumer: of one stream after the other, at most `count` of
    each; where all are empty, the first that come within the time."""
    taken: list[QueuedMessage] = []
    for topic in topics:
        taken += await receive(client, group, [topic], count, 0.0, Claim(consumer)) or ()
    if taken or block_ms is None:
        return taken
    longest_s = client.requests.parts.limits.long_poll_s_max
    end_s = client.loop_s + block_ms / 1000 if block_ms else None
    while not client.is_stopping and not client.wire.said_all().done():
        left_s = longest_s if end_s is None else min(longest_s, end_s - client.loop_s)
        if left_s <= 0:
            break
        found = await client.waited(receive(client, group, topics, count, left_s, Claim(consumer)))
        if found:
            return list(found)
    return taken


async def receive(
    client: Client, group: str, topics: list[str], count: int, wait_s: float, claim: Claim
) -> Received:
    """As `Queue.receive`; what is taken is charged until the reply is written."""
    with room_for(client.requests, client.caller) as room:
        found = await client.broker.queue.receive(
            group, topics, claim=claim, limit=count, wait_s=wait_s, visibility_ms=None
        )
        client.keep(room)
    return found


async def settled_first(
    client: Client, group: str, taken: list[QueuedMessage]
) -> list[QueuedMessage]:
    """Those that are settled, as with NOACK: they do not come again, whatever becomes of the
    reply."""
    requests = [SettleRequest(message.receipt, "ack") for message in taken]
    ends = await client.broker.receipts.settle(requests, group)
    return [
        message
        for message, end in zip(taken, ends, strict=True)
        if not isinstance(end, GoQueueError)
    ]


async def _history(
    client: Client, topic: str, group: str, consumer: str, after: EntryId, count: int
) -> Reply:
    """What the consumer has pending behind this id. Entries that are gone have no fields."""
    which = PendingFilter(count, _offset_after(after), consumer=consumer)
    pending = await client.broker.queue.pending(group, topic, PARTITION, which)
    replies: list[Reply] = []
    for one in pending.found:
        id = note(client, topic, group, one)
        if one.message is not None:
            replies.append(entry_of(one.message).told)
        else:
            replies.append([str(id), NO_LIST])
    return replies


def note(client: Client, topic: str, group: str, one: PendingMessage) -> EntryId:
    """Its id; of what can't be read any more the time is not known."""
    id = EntryId(one.message.time_ms if one.message is not None else 0, one.offset)
    client.receipts.add((topic, group), id, one.receipt)
    return id


def _offset_after(id: EntryId) -> int:
    """Pending entries are told apart by their offsets: an id of another time is one, too."""
    return 0 if id == FIRST else id.offset + 1


# settling


async def ack(client: Client, arguments: list[bytes]) -> Reply:
    """`key group id [id ...]`: how many were pending and are not any more."""
    topic, group = words.topic(arguments[0]), words.group(arguments[1])
    ids = list(dict.fromkeys(map(parse_id, arguments[2:])))
    place = (topic, group)
    known = {id: client.receipts.take(place, id) for id in ids}
    done, missing = set[EntryId](), [id for id, receipt in known.items() if receipt is None]
    again = [id for id, receipt in known.items() if receipt is not None]
    if again:
        receipts = [receipt for receipt in known.values() if receipt is not None]
        ended = await _settle(client, group, dict(zip(again, receipts, strict=True)))
        done |= ended
        missing += [id for id in again if id not in ended]
    if missing:
        done |= await _ack_unknown(client, topic, group, missing)
    return len(done)


async def _ack_unknown(client: Client, topic: str, group: str, ids: list[EntryId]) -> set[EntryId]:
    """What was given to other connections, or anew meanwhile."""
    done = set[EntryId]()
    for at in range(0, len(ids), COUNT_MAX):
        some = {id.offset: id for id in ids[at : at + COUNT_MAX]}
        which = PendingFilter(COUNT_MAX, offsets=list(some))
        try:
            pending = await client.broker.queue.pending(group, topic, PARTITION, which)
        except NotFound:
            return done
        receipts = {
            some[one.offset]: one.receipt
            for one in pending.found
            if one.message is None or one.message.time_ms == some[one.offset].time_ms
        }
        done |= await _settle(client, group, receipts)
    return done


async def _settle(client: Client, group: str, receipts: dict[EntryId, str]) -> set[EntryId]:
    """Which of them are acknowledged now. Raises what stands in the way of the rest."""
    requests = [SettleRequest(receipt, "ack") for receipt in receipts.values()]
    ends = await client.broker.receipts.settle(requests, group)
    done = set[EntryId]()
    for id, end in zip(receipts, ends, strict=True):
        if not isinstance(end, GoQueueError):
            done.add(id)
        elif not isinstance(end, NotInFlight | ReceiptExpired | NotFound):
            raise end
    return done


# what there is


async def _place(client: Client, topic: str, id: bytes) -> int:
    """The offset that a group begins at which has had everything up to this id."""
    if id == b"$":
        return END
    given = parse_id(id)
    return BEGIN if given == FIRST else await Reader(client, topic).offset_of(given.following)


async def _view(client: Client, topic: str, group: str) -> GroupPartitionView | None:
    """The group in this stream; None where it is not in it. Raises Unavailable where nobody can
    say: what is made anew is not to take the place of what is there."""
    try:
        view = await client.broker.groups.group(group, topic)
    except (UnknownGroup, UnknownTopic, OffsetOutOfRange):
        return None
    if view.partitions:
        return view.partitions[0]
    if view.stale:
        raise Unavailable(f"nobody tells whether group {group} is in {topic}: its leader is silent")
    return None


async def require(client: Client, topic: str, group: str) -> None:
    """Raises NoGroup. One that was there is not looked for again for a second."""
    place, now_s = (topic, group), client.loop_s
    if client.groups.get(place, 0.0) > now_s:
        return
    if not await is_stream(client, topic) or await _view(client, topic, group) is None:
        client.groups.pop(place, None)
        raise NoGroup(topic, group)
    if len(client.groups) >= KNOWN_MAX:
        client.groups.clear()
    client.groups[place] = now_s + KNOWN_S


TABLE = (
    Command("XGROUP CREATE", create, "seek", 3, key_at=0, is_write=True),
    Command("XGROUP SETID", set_id, "seek", 3, 5, key_at=0, is_write=True),
    Command("XGROUP DESTROY", destroy, "deleteGroup", 2, 2, key_at=0, is_write=True),
    Command("XGROUP CREATECONSUMER", create_consumer, "receive", 3, 3, key_at=0, is_write=True),
    Command("XGROUP DELCONSUMER", delete_consumer, "settle", 3, 3, key_at=0, is_write=True),
    Command("XREADGROUP", read_group, "receive", 6, may_wait=True, is_write=True),
    Command("XACK", ack, "settle", 3, key_at=0, is_write=True),
)

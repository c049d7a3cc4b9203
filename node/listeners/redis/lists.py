"""Lists as queues: a topic each, whose oldest message is popped, whichever end is named.

LPUSH and RPUSH append; LPOP, RPOP, BLPOP and BRPOP take what was stored first. So the usual pairs,
LPUSH with BRPOP and RPUSH with BLPOP, are what they are in Redis, and a stack is none.
"""

from __future__ import annotations

import asyncio

from goqueue.wire.errors import UnknownGroup, UnknownTopic
from node.api.claims import NOBODY
from node.api.queue import QueuedMessage, SettleRequest
from node.listeners.redis import words
from node.listeners.redis.client import Client
from node.listeners.redis.command import Command
from node.listeners.redis.entries import partitions_of
from node.listeners.redis.groups import receive, settled_first
from node.listeners.redis.replies import NO_LIST, RedisError, Reply

SUFFIX = ".list"
"""A topic's name and this is the consumer group that pops it: whoever reaches one by the prefix of
a key reaches both."""
POP_MAX = 1000
KEYS_MAX = 64
LOOK_AGAIN_S = 1.0
"""How often a wait looks whether a list that was not there is by now."""


async def pop(client: Client, arguments: list[bytes]) -> Reply:
    """`key [count]`."""
    topic = words.topic(arguments[0])
    count = words.number(arguments[1], 0, 2**31) if arguments[1:] else None
    if count == 0 or not await partitions_of(client, topic):
        return None if count is None else NO_LIST
    group = words.group_of(topic, SUFFIX)
    found = await receive(client, group, [topic], min(count or 1, POP_MAX), 0.0, NOBODY)
    taken = await _settled(client, topic, list(found))
    if count is None:
        return taken[0].value if taken else None
    return [message.value for message in taken] if taken else NO_LIST


async def blocking_pop(client: Client, arguments: list[bytes]) -> Reply:
    """`key [key ...] timeout`: (key, value) of the first message there is, of the first key that
    has any; 0 waits for ever."""
    topics, timeout_s = list(map(words.topic, arguments[:-1])), words.seconds(arguments[-1])
    if len(topics) > KEYS_MAX:
        raise RedisError(f"ERR more than {KEYS_MAX} keys in one command")
    end_s = client.loop_s + timeout_s if timeout_s else None
    longest_s = client.requests.parts.limits.long_poll_s_max
    wait_s = 0.0
    while True:
        there = [topic for topic in topics if await partitions_of(client, topic)]
        taken = await client.waited(_first(client, there, wait_s)) or []
        for message in await _settled(client, taken[0].topic, taken) if taken else ():
            return [message.topic, message.value]
        if client.is_stopping or client.wire.said_all().done():
            return NO_LIST
        wait_s = longest_s if end_s is None else min(longest_s, end_s - client.loop_s)
        if wait_s <= 0:
            return NO_LIST
        if len(there) < len(topics):
            wait_s = min(wait_s, LOOK_AGAIN_S)


async def _first(client: Client, topics: list[str], wait_s: float) -> list[QueuedMessage]:
    """A message of the first topic that has one within the time; what came from others at the same
    moment is given back."""
    if not topics:
        await asyncio.sleep(wait_s)
        return []
    found: list[QueuedMessage] = []
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(
                receive(client, words.group_of(topic, SUFFIX), [topic], 1, wait_s, NOBODY)
            )
            for topic in topics
        ]
        rest = set(tasks)
        while rest and not any(task.done() and task.result() for task in tasks):
            _done, rest = await asyncio.wait(rest, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
    for task in tasks:
        if task.cancelled():
            continue
        if not found:
            found = list(task.result())
        else:
            await _give_back(client, list(task.result()))
    return found


async def _settled(client: Client, topic: str, taken: list[QueuedMessage]) -> list[QueuedMessage]:
    """Those that are settled, and so the client's; where it has gone they are given back."""
    if not taken:
        return []
    if client.is_gone:
        await _give_back(client, taken)
        return []
    return await settled_first(client, words.group_of(topic, SUFFIX), taken)


async def _give_back(client: Client, taken: list[QueuedMessage]) -> None:
    requests = [SettleRequest(message.receipt, "release") for message in taken]
    if requests:
        await client.broker.receipts.settle(requests)


async def length(client: Client, arguments: list[bytes]) -> Reply:
    """What can be popped, and what waits to be."""
    topic = words.topic(arguments[0])
    if not await partitions_of(client, topic):
        return 0
    try:
        view = await client.broker.groups.group(words.group_of(topic, SUFFIX), topic)
    except (UnknownGroup, UnknownTopic):
        view = None
    known = {} if view is None else {one.partition: one for one in view.partitions}
    total = 0
    for partition, (first, end) in (await client.broker.records.end_offsets(topic)).items():
        one = known.get(partition)
        total += end - first if one is None else one.ready + one.waiting
    return total


TABLE = (
    Command("LPOP", pop, "receive", 1, 2, key_at=0, is_write=True),
    Command("RPOP", pop, "receive", 1, 2, key_at=0, is_write=True),
    Command("BLPOP", blocking_pop, "receive", 2, may_wait=True, is_write=True),
    Command("BRPOP", blocking_pop, "receive", 2, may_wait=True, is_write=True),
    Command("LLEN", length, "describeQueue", 1, 1, key_at=0),
)

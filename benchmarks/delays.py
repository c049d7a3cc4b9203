"""How late delayed messages are: from the time they asked for to the consumer that has them."""

from __future__ import annotations

import asyncio
import json
import time

import msgspec

from benchmarks.connection import BadAnswer, Connection, post
from benchmarks.processes import DevCluster

AHEAD_S = 4.0
"""The first is due so long after the publishing begins."""
SPAN_S = 1.0
BATCH = 100
PUBLISHERS = 4
CONSUMERS = 6
LIMIT = 1000


class _Message(msgspec.Struct, gc=False):
    value: str
    receipt: str


class _Received(msgspec.Struct):
    messages: list[_Message]


async def lateness(cluster: DevCluster, topic: str, count: int) -> list[float]:
    """Milliseconds that each of `count` messages came after its time, by this machine's clock.

    They fall due evenly over a second. Raises `BadAnswer` where one comes twice or not at all.
    """
    first_ms = int((time.time() + AHEAD_S) * 1000)
    due_ms = [first_ms + number * int(SPAN_S * 1000) // count for number in range(count)]
    late: dict[int, float] = {}
    receipts: asyncio.Queue[list[str]] = asyncio.Queue()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_ack(cluster, count, receipts))
        for number in range(CONSUMERS):
            tasks.create_task(_consume(cluster, topic, number, due_ms, late, receipts))
        await _publish(cluster, topic, due_ms)
        if time.time() * 1000 > first_ms:
            raise BadAnswer(f"publishing {count} delayed messages took more than {AHEAD_S} s")
    return list(late.values())


async def _publish(cluster: DevCluster, topic: str, due_ms: list[int]) -> None:
    starts = iter(range(0, len(due_ms), BATCH))

    async def work(number: int) -> None:
        connection = await Connection.open(cluster.addresses[number % len(cluster.addresses)])
        for start in starts:
            messages = [
                {"key": str(one), "value": str(one), "deliverAt": due_ms[one]}
                for one in range(start, min(start + BATCH, len(due_ms)))
            ]
            body = json.dumps({"messages": messages}).encode()
            _, answer = await connection.ask(
                post(f"/v1/topics/{topic}/messages", body, "application/json")
            )
            if b'"error"' in answer:
                raise BadAnswer(answer[:300].decode())
        connection.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(PUBLISHERS):
            tasks.create_task(work(number))


async def _consume(
    cluster: DevCluster,
    topic: str,
    number: int,
    due_ms: list[int],
    late: dict[int, float],
    receipts: asyncio.Queue[list[str]],
) -> None:
    connection = await Connection.open(cluster.addresses[number % len(cluster.addresses)])
    decoder = msgspec.json.Decoder(_Received)
    deadline = time.monotonic() + AHEAD_S + SPAN_S + 30.0
    wanted = json.dumps({"topic": topic, "limit": LIMIT, "wait": "1s"}).encode()
    while len(late) < len(due_ms):
        if time.monotonic() > deadline:
            raise BadAnswer(f"{len(late)} of {len(due_ms)} delayed messages came")
        _, body = await connection.ask(
            post("/v1/groups/delays/receive", wanted, "application/json")
        )
        now_ms = time.time() * 1000
        messages = decoder.decode(body).messages
        for message in messages:
            one = int(message.value)
            if one in late:
                raise BadAnswer(f"delayed message {one} came twice")
            late[one] = now_ms - due_ms[one]
        if messages:
            receipts.put_nowait([message.receipt for message in messages])
    connection.close()


async def _ack(cluster: DevCluster, count: int, receipts: asyncio.Queue[list[str]]) -> None:
    """What has come is acked beside the receives, through each node in turn."""
    opened = [await Connection.open(address) for address in cluster.addresses]
    acked = turn = 0
    while acked < count:
        batch = await receipts.get()
        turn += 1
        body = json.dumps({"receipts": batch}).encode()
        await opened[turn % len(opened)].ask(
            post("/v1/groups/delays/ack", body, "application/json")
        )
        acked += len(batch)
    for connection in opened:
        connection.close()

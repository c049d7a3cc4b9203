"""End to end: from the call that publishes to the consumer that has the message."""

from __future__ import annotations

import asyncio
import time

import msgspec

from benchmarks.connection import BadAnswer, Connection, get, post
from benchmarks.processes import DevCluster, cpu_seconds
from benchmarks.publish import Load

CONNECTIONS = 8
WAIT_S = 5


class _Message(msgspec.Struct):
    value: str


class _Page(msgspec.Struct):
    messages: list[_Message]
    next_offset: int


async def end_to_end(cluster: DevCluster, topic: str, rate: float, seconds: float) -> Load:
    """Publish one message every 1/rate seconds to partition 0 through the first node, whether or
    not the one before was answered, and read them by long poll through the last node."""
    total = int(rate * seconds)
    sent_at: dict[int, float] = {}
    latencies: list[float] = []
    clock = time.perf_counter
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await Connection.open(cluster.addresses[0]))
    path = f"/v1/topics/{topic}/partitions/0/messages"

    async def send(number: int, connection: Connection) -> None:
        body = b'{"messages":[{"partition":0,"value":"%d"}]}' % number
        _, answer = await connection.ask(
            post(f"/v1/topics/{topic}/messages", body, "application/json")
        )
        if b'"error"' in answer:
            raise BadAnswer(answer[:300].decode())
        free.put_nowait(connection)

    async def consume() -> None:
        connection = await Connection.open(cluster.addresses[-1])
        decoder = msgspec.json.Decoder(_Page)
        offset = 0
        while len(latencies) < total:
            _, body = await connection.ask(get(f"{path}?offset={offset}&wait={WAIT_S}s"))
            now = clock()
            page = decoder.decode(body)
            for message in page.messages:
                latencies.append(now - sent_at.pop(int(message.value)))
            offset = page.next_offset
        connection.close()

    pids = cluster.pids()
    cpu_before = cpu_seconds(pids)
    began = clock()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consume())
        for number in range(total):
            await asyncio.sleep(max(0.0, began + number / rate - clock()))
            sent_at[number] = clock()
            connection = await free.get()
            tasks.create_task(send(number, connection))
    took = clock() - began
    return Load(total, took, cpu_seconds(pids) - cpu_before, 0, latencies)

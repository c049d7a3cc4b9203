"""Reads a topic back as fast as the server gives it."""

from __future__ import annotations

import asyncio
import time

import msgspec

from benchmarks.connection import BadAnswer, Connection, get, header
from benchmarks.payloads import MASK, fingerprint
from benchmarks.processes import DevCluster, cpu_seconds
from benchmarks.publish import Load
from goqueue import AsyncClient
from goqueue.wire.batch import BATCH_MEDIA_TYPE
from goqueue.wire.stream import NEXT_OFFSET_HEADER

LIMIT = 1000
_NEXT = b'"next_offset":'


async def read_back(
    cluster: DevCluster, topic: str, *, binary: bool, seconds: float, connections: int = 2
) -> Load:
    """Page through partitions, over and over, until the time is up.

    The harness finds where to go on without decoding the messages, so the figure is the server's;
    their content is checked by whoever published them.
    """
    async with AsyncClient(cluster.urls) as client:
        details = await client.partitions(topic)
    ends = [partition.next for partition in details]
    media_type = BATCH_MEDIA_TYPE if binary else "application/json"
    pids = cluster.pids()
    cpu_before = cpu_seconds(pids)
    began = time.perf_counter()
    until = began + seconds
    counts: list[int] = []
    times: list[float] = []

    async def work(number: int) -> None:
        connection = await Connection.open(cluster.addresses[number % len(cluster.addresses)])
        partition, offset = number % len(ends), 0
        while (before := time.perf_counter()) < until:
            path = f"/v1/topics/{topic}/partitions/{partition}/messages"
            head, body = await connection.ask(
                get(f"{path}?offset={offset}&limit={LIMIT}", media_type)
            )
            following = _next_offset(head, body, binary=binary)
            if following <= offset:
                raise BadAnswer(f"{topic}/{partition} stands still at {offset}")
            counts.append(following - offset)
            times.append(time.perf_counter() - before)
            offset = following
            if offset >= ends[partition]:
                partition, offset = (partition + connections) % len(ends), 0
        connection.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(connections):
            tasks.create_task(work(number))
    took = time.perf_counter() - began
    return Load(sum(counts), took, cpu_seconds(pids) - cpu_before, 0, times)


class _Message(msgspec.Struct, gc=False):
    value: str


class _Page(msgspec.Struct):
    messages: list[_Message]
    next_offset: int


async def check_json(cluster: DevCluster, topic: str, load: Load) -> None:
    """Read the topic whole as JSON through the last node and compare. Raises `BadAnswer`."""
    connection = await Connection.open(cluster.addresses[-1])
    decoder = msgspec.json.Decoder(_Page)
    count = total = 0
    async with AsyncClient(cluster.urls) as client:
        ends = [partition.next for partition in await client.partitions(topic)]
    for partition, end in enumerate(ends):
        path, offset = f"/v1/topics/{topic}/partitions/{partition}/messages", 0
        while offset < end:
            _, body = await connection.ask(get(f"{path}?offset={offset}&limit={LIMIT}"))
            page = decoder.decode(body)
            count += len(page.messages)
            total += fingerprint(message.value.encode() for message in page.messages)
            offset = page.next_offset
    connection.close()
    if (count, total & MASK) != (load.count, load.print):
        raise BadAnswer(f"{topic}: {load.count} messages acked, {count} read, or other content")


def _next_offset(head: bytes, body: bytes, *, binary: bool) -> int:
    if binary:
        return int(header(head, NEXT_OFFSET_HEADER.lower().encode()) or b"-1")
    at = body.rfind(_NEXT)
    end = body.find(b",", at)
    return int(body[at + len(_NEXT) : end if end > 0 else -1].strip(b"} \n"))

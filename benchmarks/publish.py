"""Publishes as fast as a number of connections can, and checks that what was acked is there."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.connection import BadAnswer, Connection, get
from benchmarks.payloads import MASK, Body, Sent, fingerprint
from benchmarks.processes import DevCluster, cpu_seconds
from goqueue import AsyncClient

PARTITIONS = 6


@dataclass(frozen=True, slots=True)
class Load:
    """What was acknowledged, how fast, and at what cost of the servers."""

    count: int
    seconds: float
    cpu_s: float
    print: int
    latencies_s: list[float]

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def sent(self) -> Sent:
        return Sent(self.count, self.print)

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / max(1, self.count) * 1e6


async def create_topic(cluster: DevCluster, topic: str, **settings: object) -> None:
    async with AsyncClient(cluster.urls) as client:
        await client.create_topic(topic, **{"partitions": PARTITIONS, **settings})  # type: ignore[arg-type]


async def publish(
    cluster: DevCluster,
    bodies: Sequence[Body],
    connections: int,
    seconds: float,
    count_max: int | None = None,
) -> Load:
    """Send `bodies` round and round on each connection until time or count is up."""
    opened = [
        await Connection.open(cluster.addresses[number % len(cluster.addresses)])
        for number in range(connections)
    ]
    turn = itertools.count()
    sent: list[Body] = []
    latencies: list[float] = []
    clock = time.perf_counter
    for connection in opened:
        await connection.ask(get("/healthz"))
    pids = cluster.pids()
    cpu_before = cpu_seconds(pids)
    began = clock()
    until = began + seconds
    limit = None if count_max is None else count_max // bodies[0].count

    async def work(connection: Connection) -> None:
        now = clock()
        while now < until:
            number = next(turn)
            if limit is not None and number >= limit:
                return
            body = bodies[number % len(bodies)]
            _, answer = await connection.ask(body.request)
            if b'"error"' in answer:
                raise BadAnswer(answer[:300].decode())
            sent.append(body)
            before, now = now, clock()
            latencies.append(now - before)

    async with asyncio.TaskGroup() as tasks:
        for connection in opened:
            tasks.create_task(work(connection))
    took = clock() - began
    cpu = cpu_seconds(pids) - cpu_before
    for connection in opened:
        connection.close()
    total = sum(body.print for body in sent) & MASK
    return Load(sum(body.count for body in sent), took, cpu, total, latencies)


async def check(cluster: DevCluster, topic: str, load: Load) -> None:
    """Read the topic whole through the last node and compare. Raises `BadAnswer`."""
    await check_all(cluster, [topic], load.sent)


async def check_all(cluster: DevCluster, topics: Iterable[str], acked: Sent) -> None:
    """The same of some topics together."""
    found = Sent()
    async with AsyncClient(cluster.urls[-1]) as client:
        for topic in topics:
            for partition in range((await client.topic(topic)).partitions):
                found = found.plus(await _read(client, topic, partition))
    if found != acked:
        told = f"{acked.count} messages acked, {found.count} read, or other content"
        raise BadAnswer(f"{', '.join(topics)}: {told}")


async def _read(client: AsyncClient, topic: str, partition: int) -> Sent:
    found, expected = Sent(), 0
    async for page in client.pages(topic, partition):
        for message in page.messages:
            if message.offset != expected:
                raise BadAnswer(f"{topic}/{partition}: {message.offset}, not {expected}")
            expected += 1
        values = [message.value for message in page.messages]
        found = found.plus(Sent(len(values), fingerprint(values)))
    return found


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of them don't exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

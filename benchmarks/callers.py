"""Callers that await their publishes, many in one process: what users of each system's own client
for Python get. Every client is a process of its own, and what it says it stored is counted where it
was stored.

`python -m benchmarks.callers [--write]` measures these rows alone. Peers run by the Python that
PEERS_PYTHON names, in which `pip install nats-py aio-pika redis` was done; what is missing
is left out and said.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import alone
from benchmarks.amqp import Channel
from benchmarks.nats import Nats
from benchmarks.processes import DevCluster, cpu_seconds, environment
from benchmarks.publish import create_topic
from benchmarks.rabbitmq import RabbitMq
from benchmarks.redis import Redis
from benchmarks.report import Report, Row, Target
from goqueue import AsyncClient

SECTION = "Callers that await each publish, 100 B a message"
INTRO = """All callers are in one process, and use one client of the system's own library: each
publishes one message, and the next once it is acknowledged. GoQueue's is fsynced by a majority;
RabbitMQ confirms as it does for quorum queues, NATS JetStream (three replicas) does not fsync
before it answers, and Redis is one server with every write fsynced. p50 and p99 are a call's."""
PEERS = "PEERS_PYTHON"
CALLERS = 64
TIMES = 1.5
"""Of the best of NATS' and RabbitMQ's clients."""

HEAD = f"""
import asyncio, json, sys, time
NAME, PORTS, SECONDS = sys.argv[1], sys.argv[2].split(","), float(sys.argv[3])
VALUE = b"x" * 100
async def measured(publish):
    times = []
    async def call():
        while (before := time.perf_counter()) < until:
            await publish()
            times.append(time.perf_counter() - before)
    for _ in range(200):
        await publish()
    began = time.perf_counter()
    until = began + SECONDS
    await asyncio.gather(*(call() for _ in range({CALLERS})))
    took = time.perf_counter() - began
    times.sort()
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    told = dict(count=len(times), stored=len(times) + 200, seconds=took, p50=p50, p99=p99)
    print(json.dumps(told))
"""
GOQUEUE = """
from goqueue import AsyncClient
async def main():
    async with AsyncClient([f"http://127.0.0.1:{port}" for port in PORTS]) as client:
        await measured(lambda: client.publish(NAME, VALUE))
asyncio.run(main())
"""
NATS = """
import nats
async def main():
    link = await nats.connect([f"nats://127.0.0.1:{port}" for port in PORTS])
    stream = link.jetstream()
    await measured(lambda: stream.publish(NAME, VALUE))
    await link.close()
asyncio.run(main())
"""
AIO_PIKA = """
import aio_pika
async def main():
    link = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{PORTS[0]}/")
    channel = await link.channel(publisher_confirms=True)
    message = aio_pika.Message(VALUE, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    exchange = channel.default_exchange
    await measured(lambda: exchange.publish(message, routing_key=NAME))
    await link.close()
asyncio.run(main())
"""
REDIS = """
import redis.asyncio
async def main():
    client = redis.asyncio.Redis(port=int(PORTS[0]))
    await measured(lambda: client.xadd(NAME, {"value": VALUE}))
    await client.aclose()
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Called:
    """What a process of callers said, and what it cost the servers."""

    count: int
    stored: int
    seconds: float
    p50: float
    p99: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds


async def measure(
    report: Report, folder: Path, seconds: float, *, quick: bool, with_peers: bool
) -> None:
    """Without peers there is no target."""
    report.intros[SECTION] = INTRO
    python = os.environ.get(PEERS)
    others: list[Called] = []
    if with_peers and python is None:
        report.tell(f"Clients of NATS, RabbitMQ and Redis are not measured: {PEERS} is not set.")
    elif with_peers and python is not None:
        others = await _peers(report, folder, seconds, python)
    with DevCluster(3, folder / "callers") as cluster:
        topic = "callers"
        await create_topic(cluster, topic)
        ports = [port for _, port in cluster.addresses]
        called = await _called(sys.executable, GOQUEUE, topic, ports, cluster.pids(), seconds)
        async with AsyncClient(cluster.urls) as client:
            stored = (await client.topic(topic)).total_messages
        _check("goqueue", called, stored)
    target = None
    if others:
        best = max(one.rate for one in others)
        target = Target(f"≥ {TIMES:g} × {best:,.0f}", lambda rate: rate >= TIMES * best)
    _add(report, f"three nodes, goqueue, callers: {CALLERS}", called, target)


async def _peers(report: Report, folder: Path, seconds: float, python: str) -> list[Called]:
    """Those whose rate GoQueue's is held against."""
    found: list[Called] = []
    ways: list[tuple[str, bool, Callable[[Path, float, str], Awaitable[Called]]]] = [
        ("nats-py, JetStream ×3", Nats.installed(), _nats),
        ("aio-pika, quorum queue ×3", RabbitMq.installed(), _amqp),
        ("redis-py, XADD, fsync always", Redis.installed(), _redis),
    ]
    for name, is_there, work in ways:
        if not is_there:
            report.tell(f"{name}: its server isn't installed: no row.")
            continue
        try:
            called = await work(folder, seconds, python)
        except (OSError, RuntimeError) as error:
            report.tell(f"{name} can't be measured: {str(error)[:300]}")
            continue
        _add(report, f"{name}, callers: {CALLERS}", called)
        if work is not _redis:
            found.append(called)
    return found


async def _nats(folder: Path, seconds: float, python: str) -> Called:
    with Nats(folder / "nats") as nats:
        stream = await nats.stream()
        called = await _called(python, NATS, stream, nats.ports, nats.pids(), seconds)
        await nats.check(stream, called.stored)
    return called


async def _amqp(folder: Path, seconds: float, python: str) -> Called:
    with RabbitMq(folder / "rabbitmq") as rabbitmq:
        channel = await Channel.connect(rabbitmq.ports[0], "callers", quorum=3)
        ports, pids = rabbitmq.ports, rabbitmq.pids()
        called = await _called(python, AIO_PIKA, "callers", ports, pids, seconds)
        _check("rabbitmq", called, await rabbitmq.stored(channel, "callers", called.stored))
        channel.close()
    return called


async def _redis(folder: Path, seconds: float, python: str) -> Called:
    with Redis(folder / "redis") as redis:
        await redis.ready()
        called = await _called(python, REDIS, "callers", [redis.port], [redis.pid], seconds)
        _check("redis", called, (await redis.stored(b"callers")).count)
    return called


async def _called(
    python: str,
    program: str,
    name: str,
    ports: Sequence[int],
    pids: Sequence[int],
    seconds: float,
) -> Called:
    """Raises RuntimeError with what the process said where it failed."""
    before = cpu_seconds(pids)
    words = [name, ",".join(map(str, ports)), str(seconds)]
    process = await asyncio.create_subprocess_exec(
        python,
        "-c",
        HEAD + program,
        *words,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    said, problem = await process.communicate()
    if process.returncode:
        raise RuntimeError(problem.decode(errors="replace")[-300:])
    return Called(**json.loads(said), cpu_s=cpu_seconds(pids) - before)


def _check(of: str, called: Called, stored: int) -> None:
    if stored != called.stored:
        raise RuntimeError(f"{of} acknowledged {called.stored} messages and has {stored}")


def _add(report: Report, name: str, called: Called, target: Target | None = None) -> None:
    note = f"p50 {called.p50 * 1e3:.1f} ms, p99 {called.p99 * 1e3:.1f} ms"
    cpu_us = called.cpu_s / max(1, called.stored) * 1e6
    report.add(SECTION, Row(name, called.rate, "msg/s", target, cpu_us, note))


if __name__ == "__main__":
    alone.run("callers", __doc__, "one second a row", SECTION, measure)

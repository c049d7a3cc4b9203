"""The queue on three nodes: receive and ack beside its peers, a deep backlog, exact delays."""

from __future__ import annotations

import asyncio
import statistics
from pathlib import Path

from benchmarks.delays import lateness
from benchmarks.nats import Nats
from benchmarks.payloads import batch_bodies
from benchmarks.processes import DevCluster, memory_bytes
from benchmarks.publish import PARTITIONS, Load, create_topic, percentile, publish
from benchmarks.rabbitmq import RabbitMq
from benchmarks.receive import Receiver, receive
from benchmarks.redis import Redis
from benchmarks.report import Report, Row, Target, number

SECTION = "Receive and ack, 100 B a message"
SHAPES = {(1, 1): 0.6, (1, 8): 0.5, (100, 8): 0.7, (1000, 8): 1.0}
"""The least part of RabbitMQ's rate, by (messages a request, consumers)."""
BACKLOG = 0.95
STORED = {1: 20_000, 100: 200_000, 1000: 400_000}
PEERS_STORED = {1: 40_000, 100: 200_000, 1000: 200_000}
ROUNDS = 5
ROUND_COUNT = 30_000
SETTLE_S = 3.0
DELAYED = 10_000
MIB = 1 << 20


async def measure(
    report: Report, folder: Path, seconds: float, *, quick: bool, with_peers: bool
) -> None:
    if with_peers:
        await _peers(report, folder, seconds)
    with DevCluster(3, folder / "queue") as cluster:
        for limit, consumers in SHAPES:
            await _receive(report, cluster, limit, consumers, seconds)
        await _delays(report, cluster)
    count = 200_000 if quick else 1_000_000
    with DevCluster(3, folder / "memory") as cluster:
        await _memory(report, cluster, count)
    with DevCluster(3, folder / "backlog") as cluster:
        await _backlog(report, cluster, count)


async def _peers(report: Report, folder: Path, seconds: float) -> None:
    """Those that are missing have been told of with the rows of publishing."""
    if RabbitMq.installed():
        with RabbitMq(folder / "rabbitmq") as rabbitmq:
            for limit, consumers in SHAPES:
                load = await rabbitmq.settle(consumers, limit, 100, PEERS_STORED[limit], seconds)
                _add(report, _rabbitmq(limit, consumers), load)
    if Nats.installed():
        with Nats(folder / "nats") as nats:
            for limit, consumers in SHAPES:
                load = await nats.settle(consumers, limit, 100, PEERS_STORED[limit], seconds)
                _add(report, f"NATS JetStream ×3, {_shape(limit, consumers)}", load)
    if Redis.installed():
        with Redis(folder / "redis") as redis:
            for limit, consumers in SHAPES:
                load = await redis.settle(consumers, limit, 100, PEERS_STORED[limit], seconds)
                _add(report, f"Redis stream, fsync always, {_shape(limit, consumers)}", load)


async def _receive(
    report: Report, cluster: DevCluster, limit: int, consumers: int, seconds: float
) -> None:
    """Acks as requests of their own, and with the next receive."""
    peer = report.figure(SECTION, _rabbitmq(limit, consumers))
    target = None
    if peer is not None:
        least = SHAPES[limit, consumers]
        text = f"≥ {least:g} × RabbitMQ's {number(peer)}"
        target = Target(text, lambda rate: rate >= least * peer)
    for rides in (False, True):
        topic = f"receive-{limit}-{consumers}{'-rides' if rides else ''}"
        await create_topic(cluster, topic)
        ends = await fill(cluster, topic, STORED[limit])
        load = await receive(
            cluster, topic, ends, limit=limit, connections=consumers, seconds=seconds, rides=rides
        )
        name = f"three nodes, {_shape(limit, consumers)}"
        _add(report, f"{name}, acked with the next receive" if rides else name, load, target)


async def _memory(report: Report, cluster: DevCluster, count: int) -> None:
    receiver = Receiver(cluster, "deep", "g", 1000, shuffled=True)
    await create_topic(cluster, "deep")
    await receiver.open()
    await asyncio.sleep(SETTLE_S)
    idle = _anonymous(cluster)
    receiver.expect(await fill(cluster, "deep", count, lanes=True))
    await asyncio.sleep(SETTLE_S)
    _add_memory(report, count, "RssAnon above idle, largest node", idle, cluster)
    left = count // 2
    while left > 0:
        left -= (await receiver.work(8, 1.0)).count
    await receiver.check()
    await asyncio.sleep(SETTLE_S)
    _add_memory(report, count, "RssAnon above idle, half acked out of order", idle, cluster)


async def _backlog(report: Report, cluster: DevCluster, count: int) -> None:
    """Rounds over a small backlog and over a deep one take turns, so that both see one machine."""
    deep = Receiver(cluster, "deep", "g", 100, shuffled=True)
    await create_topic(cluster, "deep")
    await deep.open()
    deep.expect(await fill(cluster, "deep", count, lanes=True))
    rates: list[tuple[float, float]] = []
    for turn in range(ROUNDS + 1):
        small = Receiver(cluster, f"small-{turn}", "g", 100, shuffled=True)
        await create_topic(cluster, small.topic)
        await small.open()
        small.expect(await fill(cluster, small.topic, ROUND_COUNT, lanes=True))
        empty = await small.work(8, 60.0)
        backlog = await deep.work(8, empty.seconds)
        await small.check()
        if turn:  # the first round warms up
            rates.append((empty.rate, backlog.rate))
    await deep.check()
    ratio = statistics.median(full / empty for empty, full in rates)
    note = f"{statistics.median(full for _, full in rates):,.0f} against " + (
        f"{statistics.median(empty for empty, _ in rates):,.0f} msg/s, {ROUNDS} pairs"
    )
    name = "delivery rate against an empty backlog's"
    row = Row(name, ratio, "×", Target.at_least(BACKLOG, "×"), note=note)
    report.add(_pending(count), row)


async def _delays(report: Report, cluster: DevCluster) -> None:
    section = "Three nodes, delays"
    await create_topic(cluster, "delays")
    late_ms = await lateness(cluster, "delays", DELAYED)
    name = f"{DELAYED:,} due in one second, lateness p99"
    middle = f"p50 {percentile(late_ms, 0.5):.1f} ms, max {max(late_ms):.1f} ms"
    p99_ms = percentile(late_ms, 0.99)
    report.add(section, Row(name, p99_ms, "ms", Target.at_most(50, "ms"), note=middle))
    report.add(
        section,
        Row("the earliest of them", min(late_ms), "ms late", Target.at_least(0, "ms late")),
    )


async def fill(cluster: DevCluster, topic: str, count: int, *, lanes: bool = False) -> list[int]:
    """Where each partition ends after `count` messages, in batches of a thousand or less."""
    batch = 1000 if count >= 1000 * PARTITIONS * 2 else 100
    bodies = batch_bodies(topic, 100, batch, PARTITIONS, lanes=lanes)[:PARTITIONS]
    load = await publish(cluster, bodies, 4, 120.0, count_max=count)
    if load.count != count:
        raise RuntimeError(f"{load.count} of {count} messages in time")
    turns = count // batch
    return [batch * len(range(first, turns, PARTITIONS)) for first in range(PARTITIONS)]


def _pending(count: int) -> str:
    return f"Three nodes with {count:,} messages of 100 B pending in five lanes"


def _anonymous(cluster: DevCluster) -> list[int]:
    return [memory_bytes(pid, "RssAnon") for pid in cluster.pids()]


def _add_memory(
    report: Report, count: int, name: str, idle: list[int], cluster: DevCluster
) -> None:
    above = [(now - before) / MIB for now, before in zip(_anonymous(cluster), idle, strict=True)]
    note = "each: " + ", ".join(f"{one:.1f}" for one in above)
    target = Target("≤ 60 MB", lambda value: value * MIB <= 60e6)
    report.add(_pending(count), Row(name, max(above), "MiB", target, note=note))


def _add(report: Report, name: str, load: Load, target: Target | None = None) -> None:
    note = f"p99 {percentile(load.latencies_s, 0.99) * 1e3:.1f} ms a turn"
    report.add(SECTION, Row(name, load.rate, "msg/s", target, load.cpu_us, note))


def _rabbitmq(limit: int, consumers: int) -> str:
    return f"RabbitMQ quorum queue ×3, {_shape(limit, consumers)}"


def _shape(limit: int, consumers: int) -> str:
    return f"{limit} a turn, consumers: {consumers}"

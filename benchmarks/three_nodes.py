"""Three processes, an fsynced majority: rates against RabbitMQ's, latency, and idling."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks import peers
from benchmarks.latency import end_to_end
from benchmarks.processes import DevCluster, cpu_seconds, memory_bytes
from benchmarks.publish import percentile
from benchmarks.report import Report, Row, Target, number
from benchmarks.rows import Rows

END_TO_END_RATE = 200.0
SINGLES, KEYED = ((1, 0.8), (8, 0.7), (64, 0.75)), 0.55
"""(connections, the least part of RabbitMQ's rate), without a key; and with one, 64 connections."""
BATCHES = 3.0
"""Times the best peer's rate."""
IDLE_PARTITIONS = 64
SETTLE_S = 5.0
MIB = 1 << 20


async def measure(report: Report, folder: Path, seconds: float, *, quick: bool) -> None:
    with DevCluster(3, folder / "idle") as cluster:
        rows = Rows(report, "Three nodes, idle", cluster, seconds)
        await _idle(rows, 3.0 if quick else 10.0)
    with DevCluster(3, folder / "three") as cluster:
        rows = Rows(report, "Three nodes", cluster, seconds)
        await _end_to_end(rows, 3.0 if quick else 10.0)
        for connections, factor in SINGLES:
            await rows.single(connections, _against_rabbitmq(report, connections, factor))
        await rows.single(64, _against_rabbitmq(report, 64, KEYED), keyed=True)
        await rows.json(10, 100)
        for batch in (100, 1000):
            await rows.json(batch, 100, _against_batches(report, batch))
        await rows.json(100, 1024)
        await rows.binary(Target.at_least(200_000, "msg/s"))
        topic, stored = await rows.fill(100_000 if quick else 300_000, lanes=False)
        await rows.read(topic, stored, binary=False, target=Target.at_least(300_000, "msg/s"))
        await rows.read(topic, stored, binary=True, target=Target.at_least(1_000_000, "msg/s"))


async def _end_to_end(rows: Rows, seconds: float) -> None:
    topic = await rows.topic(partitions=1)
    await end_to_end(rows.cluster, topic, END_TO_END_RATE, 1.0)
    topic = await rows.topic(partitions=1)
    load = await end_to_end(rows.cluster, topic, END_TO_END_RATE, seconds)
    for name, share, bound_ms in (("p50", 0.5, 2), ("p99", 0.99, 8)):
        rows.report.add(
            rows.section,
            Row(
                f"end to end at {END_TO_END_RATE:.0f} msg/s, {name}",
                percentile(load.latencies_s, share) * 1e3,
                "ms",
                Target.at_most(bound_ms, "ms"),
                load.cpu_us,
                f"max {max(load.latencies_s) * 1e3:.1f} ms",
            ),
        )


async def _idle(rows: Rows, seconds: float) -> None:
    await rows.topic(partitions=IDLE_PARTITIONS)
    await asyncio.sleep(SETTLE_S)
    pids = rows.cluster.pids()
    before = [cpu_seconds([pid]) for pid in pids]
    await asyncio.sleep(seconds)
    shares = [
        (cpu_seconds([pid]) - cpu) / seconds * 100 for pid, cpu in zip(pids, before, strict=True)
    ]
    rows.report.add(
        rows.section,
        Row(
            f"CPU of the busiest node, {IDLE_PARTITIONS} partitions",
            max(shares),
            "%",
            Target.at_most(2, "%"),
            note=" ".join(f"{share:.1f} %" for share in shares),
        ),
    )
    memory = [memory_bytes(pid, "VmRSS") / MIB for pid in pids]
    rows.report.add(
        rows.section,
        Row(f"RSS of the largest node, {IDLE_PARTITIONS} partitions", max(memory), "MiB"),
    )


def _against_batches(report: Report, batch: int) -> Target | None:
    rows = peers.rabbitmq_row(batch, 8), peers.nats_row(batch, 8)
    found = [figure for row in rows if (figure := report.figure(peers.SECTION, row)) is not None]
    if not found:
        return None
    best = max(found)
    text = f"≥ {BATCHES:g} × the best peer's {number(best)}"
    return Target(text, lambda value: value >= BATCHES * best)


def _against_rabbitmq(report: Report, connections: int, factor: float) -> Target | None:
    peer = report.figure(peers.SECTION, peers.rabbitmq_row(1, connections))
    if peer is None:
        return None
    return Target(f"≥ {factor:g} × RabbitMQ's {number(peer)}", lambda value: value >= factor * peer)

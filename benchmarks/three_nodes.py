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
        for connections, factor in ((1, 1.0), (8, None), (64, 1.5)):
            await rows.single(connections, _against_rabbitmq(report, connections, factor))
        for batch in (10, 100, 1000):
            await rows.json(batch, 100)
        await rows.binary(Target.at_least(200_000, "msg/s"))
        topic, stored = await rows.fill(100_000 if quick else 300_000, lanes=False)
        await rows.read(topic, stored, binary=False, target=Target.at_least(300_000, "msg/s"))
        await rows.read(topic, stored, binary=True, target=Target.at_least(1_000_000, "msg/s"))


async def _end_to_end(rows: Rows, seconds: float) -> None:
    topic = await rows.topic(partitions=1)
    await end_to_end(rows.cluster, topic, END_TO_END_RATE, 1.0)
    topic = await rows.topic(partitions=1)
    load = await end_to_end(rows.cluster, topic, END_TO_END_RATE, seconds)
    for name, share, bound_ms in (("p50", 0.5, 5), ("p99", 0.99, 25)):
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


def _against_rabbitmq(report: Report, connections: int, factor: float | None) -> Target | None:
    peer = report.figure(peers.SECTION, peers.rabbitmq_row(connections))
    if factor is None or peer is None:
        return None
    return Target(f"≥ {factor:g} × RabbitMQ's {number(peer)}", lambda value: value >= factor * peer)

"""One process: rates, memory with a million messages, and how soon it is back."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from benchmarks.bare import MACHINE, aiohttp_row
from benchmarks.processes import DevCluster, memory_bytes
from benchmarks.report import Report, Row, Target, number
from benchmarks.rows import Rows
from benchmarks.tails import READERS, tails

GOQUEUE_JSON_1KB, GOQUEUE_JSON_100B = 106_467, 422_667
BARE = 0.3
"""Of the rate of an HTTP server that parses JSON and does nothing, at 64 connections."""
SETTLE_S = 3.0
MIB = 1 << 20


async def measure(report: Report, folder: Path, seconds: float, *, quick: bool) -> None:
    with DevCluster(1, folder / "one") as cluster:
        rows = Rows(report, "One node", cluster, seconds)
        for connections in (1, 8, 64):
            await rows.single(connections, _against_aiohttp(report, connections))
        for batch in (10, 100, 1000):
            await rows.json(batch, 100)
        await rows.single(64, durability="relaxed")
        await rows.json(
            100, 1024, Target.at_least(1.3 * GOQUEUE_JSON_1KB, "msg/s"), durability="relaxed"
        )
        await rows.json(
            1000, 100, Target.at_least(1.5 * GOQUEUE_JSON_100B, "msg/s"), durability="relaxed"
        )
        await rows.binary(Target.at_least(500_000, "msg/s"))
        await rows.binary(Target.at_least(500_000, "msg/s"), durability="relaxed")
        for readers in (1, READERS):
            await tails(rows, readers)
    count = 200_000 if quick else 1_000_000
    with DevCluster(1, folder / "million") as cluster:
        await _million(
            Rows(report, f"One node with {count:,} messages of 100 B", cluster, seconds), count
        )


def _against_aiohttp(report: Report, connections: int) -> Target | None:
    bare = report.figure(MACHINE, aiohttp_row(connections))
    if bare is None or connections < 64:
        return None
    return Target(f"≥ {BARE:g} × aiohttp's {number(bare)}", lambda rate: rate >= BARE * bare)


async def _million(rows: Rows, count: int) -> None:
    cluster = rows.cluster
    await rows.topic()
    await asyncio.sleep(SETTLE_S)
    (pid,) = cluster.pids()
    idle, idle_rss = memory_bytes(pid, "RssAnon"), memory_bytes(pid, "VmRSS")
    rows.report.add(
        rows.section,
        Row(
            "idle RssAnon",
            idle / MIB,
            "MiB",
            note=f"RSS {idle_rss / MIB:.0f} MiB",
        ),
    )
    topic, stored = await rows.fill(count, lanes=True)
    await asyncio.sleep(SETTLE_S)
    above, rss = memory_bytes(pid, "RssAnon") - idle, memory_bytes(pid, "VmRSS")
    rows.report.add(
        rows.section,
        Row(
            "RssAnon above idle, five lanes",
            above / MIB,
            "MiB",
            Target("≤ 60 MB", lambda value: value * MIB <= 60e6),
            note=f"RSS {rss / MIB:.0f} MiB",
        ),
    )
    await rows.read(topic, stored, binary=False, target=Target.at_least(300_000, "msg/s"))
    await rows.read(topic, stored, binary=True, target=Target.at_least(1_000_000, "msg/s"))
    for how in (signal.SIGTERM, signal.SIGKILL):
        seconds = cluster.restart(0, how)
        rows.report.add(
            rows.section,
            Row(f"exec to ready after {how.name}", seconds, "s", Target.at_most(2, "s")),
        )
    (pid,) = cluster.pids()
    rows.report.add(
        rows.section,
        Row("RssAnon after the restart", memory_bytes(pid, "RssAnon") / MIB, "MiB"),
    )

"""What one message costs three nodes: frames, syncs, entries, hops and CPU of each path.

    python -m benchmarks.costs [--seconds 3]

Counted by the nodes' own metrics, less what they exchange while nobody asks anything. A frame is
counted where it is sent, a sync and CPU on each of the nodes, an entry once, by its leader. A hop
is a request that a node sends on to another one.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.counters import FRAMES, SYNCS, counted
from benchmarks.payloads import json_bodies
from benchmarks.processes import ROOT, DevCluster, cpu_seconds
from benchmarks.publish import Load, create_topic, publish
from benchmarks.queue_rows import fill
from benchmarks.receive import receive
from goqueue import AsyncClient

COUNTED = {
    "frames": FRAMES,
    "syncs": SYNCS,
    "entries": "goqueue_raft_commit_index",
    "hops": "goqueue_forwarded_requests_total",
}
"""Columns, and the metric that each is the sum of."""
STORED = 20_000
WARM_UP_S = 0.3
SETTLE_S = 2.0
"""So long a new topic has to come to rest."""
Work = Callable[[DevCluster, str, float], Awaitable[Load]]
Counts = dict[str, float]


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one path: what a message, or a turn with one, takes."""

    path: str
    load: Load
    counts: Counts

    def __str__(self) -> str:
        figures = "".join(f"{self.counts[name]:>9.2f}" for name in COUNTED)
        return f"{self.path:<44}{self.load.rate:>9,.0f}{figures}{self.load.cpu_us:>9,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each path")
    parser.add_argument("--data", type=Path, default=ROOT / ".benchmarks", help="scratch folder")
    given = parser.parse_args()
    asyncio.run(_measure(given.data.resolve() / "costs", given.seconds))


async def _measure(folder: Path, seconds: float) -> None:
    names = "".join(f"{name:>9}" for name in COUNTED)
    print(f"{'a message of':<44}{'msg/s':>9}{names}{'CPU us':>9}")
    with DevCluster(3, folder) as cluster:
        async with AsyncClient(cluster.urls) as client:
            await client.admin.finish_upgrade()
        idle = await _idle(cluster, seconds)
        for number, (path, work) in enumerate(_PATHS.items()):
            topic = f"costs-{number}"
            await create_topic(cluster, topic)
            await work(cluster, topic, WARM_UP_S)
            await asyncio.sleep(SETTLE_S)
            print(await _cost(cluster, path, topic, work, seconds, idle), flush=True)


async def _idle(cluster: DevCluster, seconds: float) -> Counts:
    """What nodes exchange in a second when nobody asks anything."""
    await create_topic(cluster, "idle")
    await asyncio.sleep(SETTLE_S)
    before = await counted(cluster, COUNTED)
    await asyncio.sleep(seconds)
    after = await counted(cluster, COUNTED)
    return {name: (after[name] - before[name]) / seconds for name in COUNTED}


async def _cost(
    cluster: DevCluster, path: str, topic: str, work: Work, seconds: float, idle: Counts
) -> Cost:
    before, began_s = await counted(cluster, COUNTED), time.perf_counter()
    load = await work(cluster, topic, seconds)
    took_s = time.perf_counter() - began_s
    after = await counted(cluster, COUNTED)
    counts = {
        name: max(0.0, after[name] - before[name] - idle[name] * took_s) / max(1, load.count)
        for name in COUNTED
    }
    return Cost(path, load, counts)


def _raw(connections: int) -> Work:
    async def work(cluster: DevCluster, topic: str, seconds: float) -> Load:
        return await publish(cluster, json_bodies(topic, 100, 1), connections, seconds)

    return work


def _library(callers: int) -> Work:
    async def work(cluster: DevCluster, topic: str, seconds: float) -> Load:
        done = itertools.count()
        latencies: list[float] = []
        clock, pids = time.perf_counter, cluster.pids()

        async def call(client: AsyncClient) -> None:
            while (before := clock()) < until:
                await client.publish(topic, "x" * 100)
                next(done)
                latencies.append(clock() - before)

        async with AsyncClient(cluster.urls) as client:
            cpu_before, began = cpu_seconds(pids), clock()
            until = began + seconds
            await asyncio.gather(*(call(client) for _ in range(callers)))
            took, cpu_s = clock() - began, cpu_seconds(pids) - cpu_before
        return Load(next(done), took, cpu_s, 0, latencies)

    return work


def _turns(consumers: int, *, rides: bool = False) -> Work:
    ends: list[int] = []

    async def work(cluster: DevCluster, topic: str, seconds: float) -> Load:
        if not ends:  # the warm-up
            ends.extend(await fill(cluster, topic, STORED))
            return Load(0, 0.0, 0.0, 0, [])
        return await receive(
            cluster, topic, ends, limit=1, connections=consumers, seconds=seconds, rides=rides
        )

    return work


_PATHS: dict[str, Work] = {
    "publish, raw HTTP, connections: 1": _raw(1),
    "publish, raw HTTP, connections: 64": _raw(64),
    "publish, the library, callers: 1": _library(1),
    "publish, the library, callers: 64": _library(64),
    "receive + ack 1, raw HTTP, consumers: 1": _turns(1),
    "receive + ack 1, raw HTTP, consumers: 8": _turns(8),
    "ack with the next receive, consumers: 1": _turns(1, rides=True),
    "ack with the next receive, consumers: 8": _turns(8, rides=True),
}


if __name__ == "__main__":
    main()

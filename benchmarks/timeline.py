"""What timelines cost, switched on against off, and how long it takes to look one up.

`python -m benchmarks.timeline` prints these rows alone, `--lookups` only the latter. The cost:
three nodes, five pairs of runs, on and off in turn, each of which publishes and then receives and
acks all; what is stored and what a timeline tells is checked. The look-ups: one replica with real
entries on the disk, which ten groups have read; one of them took 50,000 messages each by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.connection import BadAnswer, Connection, get, post
from benchmarks.processes import ROOT, DevCluster
from benchmarks.publish import create_topic, percentile
from benchmarks.report import Report, Row, Target
from benchmarks.timeline_log import LoggedPartition, in_pieces
from delivery.config import GroupConfig
from delivery.ops import ACK, NACK, Delivered, OpenGroup, Settled
from log.config import StorageConfig
from log.disk import OsDisk

PAIRS = 5
COST_SECTION = "Timelines, on against off, three nodes, five interleaved pairs"
LOOKUP_SECTION = "One timeline, one replica"
COST_MAX = 5.0
LOOKUP_MAX_MS = 50.0
REDELIVERIES = 1000
GROUPS_MANY = 10
SINGLES = 50_000
"""Messages that one group takes one by one; the rest, and other groups, take them in batches."""
SAMPLES = 60
BATCH = 100
"""Messages in a publish, a receive and a settle."""
CONNECTIONS = 4
SWITCH = "GOQUEUE_TIMELINES_ENABLED"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second: published, and received and acked."""

    publish: float
    settle: float


async def measure(report: Report, folder: Path, *, quick: bool) -> None:
    await measure_cost(report, folder, 4_000 if quick else 20_000)
    await measure_lookups(report, folder, quick=quick)


# what it costs


async def measure_cost(report: Report, folder: Path, count: int) -> None:
    """Median and spread of the five pairs' quotients."""
    pairs: list[tuple[Rates, Rates]] = []
    for number in range(PAIRS):
        found: dict[bool, Rates] = {}
        for on in (True, False) if number % 2 else (False, True):
            os.environ[SWITCH] = "true" if on else "false"
            try:
                name = f"timeline-{number}-{'on' if on else 'off'}"
                with DevCluster(3, folder / name) as cluster:
                    found[on] = await _rates(cluster, count, on=on)
            finally:
                del os.environ[SWITCH]
        pairs.append((found[True], found[False]))
    for what in ("publish", "settle"):
        lost = sorted((1 - getattr(on, what) / getattr(off, what)) * 100 for on, off in pairs)
        rates = statistics.median(getattr(on, what) for on, _off in pairs)
        note = f"{rates:,.0f} msg/s with; pairs from {lost[0]:+.1f} to {lost[-1]:+.1f} %"
        title = "publish" if what == "publish" else "receive + ack"
        row = Row(
            f"{title} lost to timelines, median",
            statistics.median(lost),
            "%",
            Target.at_most(COST_MAX, "%"),
            note=note,
        )
        report.add(COST_SECTION, row)


async def _rates(cluster: DevCluster, count: int, *, on: bool) -> Rates:
    await create_topic(cluster, "cost", partitions=1)
    await _publish(cluster, BATCH * CONNECTIONS)  # warm, and the group is there
    await _settle(cluster, BATCH * CONNECTIONS)
    began = time.perf_counter()
    await _publish(cluster, count)
    published_s = time.perf_counter() - began
    began = time.perf_counter()
    await _settle(cluster, count)
    settled_s = time.perf_counter() - began
    offset = count // 2
    connection = await Connection.open(cluster.addresses[0])
    try:
        _, body = await connection.ask(get(f"/v1/messages/cost:0:{offset}/timeline"))
        told = [event["event_type"] for event in json.loads(body)["events"]]
        wanted = ["PUBLISHED", "REPLICATED", "DELIVERED", "ACKNOWLEDGED", "RETAINED"]
        assert on and told == wanted, told
    except BadAnswer as refused:
        if on or '"timeline_off"' not in str(refused):
            raise
    connection.close()
    return Rates(count / published_s, count / settled_s)


async def _each(
    cluster: DevCluster, work: Callable[[Connection], Coroutine[Any, Any, None]]
) -> None:
    """Connections beside each other, spread over the nodes."""
    async with asyncio.TaskGroup() as group:
        for number in range(CONNECTIONS):
            address = cluster.addresses[number % len(cluster.addresses)]
            connection = await Connection.open(address)
            group.create_task(work(connection))


async def _publish(cluster: DevCluster, count: int) -> None:
    request = {"messages": [{"value": "v" * 100}] * BATCH}
    body = json.dumps(request).encode()

    async def work(connection: Connection) -> None:
        for _ in range(count // BATCH // CONNECTIONS):
            await connection.ask(post("/v1/topics/cost/messages/batch", body, JSON))
        connection.close()

    await _each(cluster, work)


async def _settle(cluster: DevCluster, count: int) -> None:
    left = [count]

    async def work(connection: Connection) -> None:
        wanted = {"topics": ["cost"], "limit": BATCH, "wait": "1s", "visibility_timeout": "60s"}
        while left[0] > 0:
            ask = post("/v1/groups/g/receive", json.dumps(wanted).encode(), JSON)
            _, body = await connection.ask(ask)
            receipts = [message["receipt"] for message in json.loads(body)["messages"]]
            left[0] -= len(receipts)
            if receipts:
                acks = json.dumps({"receipts": receipts}).encode()
                await connection.ask(post("/v1/groups/g/ack", acks, JSON))
        connection.close()

    await _each(cluster, work)


# how long a look-up takes


async def measure_lookups(report: Report, folder: Path, *, quick: bool) -> None:
    """Of messages that were delivered and acked by entries of their own, or in batches, and of one
    that was redelivered many times."""
    count = 50_000 if quick else 1_000_000
    with tempfile.TemporaryDirectory(dir=folder) as root:
        config = StorageConfig(watermark_percent=0, watermark_bytes=0)
        partition = LoggedPartition(OsDisk(), f"{root}/data", config)
        _fill(partition, count)
        began = time.perf_counter()
        assert await partition.mentions.catch_up(math.inf)
        indexed_s = time.perf_counter() - began
        entries = partition.applied_index
        gc.collect()
        gc.freeze()
        note = f"{entries:,} entries, {partition.mentions.disk_bytes / entries:.1f} B of index each"
        report.add(
            LOOKUP_SECTION, Row("indexing, one entry", indexed_s / entries * 1e6, "us", note=note)
        )
        await partition.timeline(2)  # warm
        rng = random.Random(1)
        samples = [rng.randrange(1, count) for _ in range(SAMPLES)]
        for name, offsets, least in (
            (f"any of {count:,} messages", samples, 5),
            ("the first message", [0] * 5, 5),
            (f"one redelivered {REDELIVERIES:,} times", [1] * 5, 2 * REDELIVERIES),
        ):
            times_s = [await _timed(partition, offset, least) for offset in offsets]
            slow, middle = percentile(times_s, 0.99) * 1e3, percentile(times_s, 0.5) * 1e3
            target = Target.at_most(LOOKUP_MAX_MS, "ms")
            row = Row(name, slow, "ms", target, note=f"p50 {middle:.1f} ms")
            report.add(LOOKUP_SECTION, row)
        partition.close()


async def _timed(partition: LoggedPartition, offset: int, least: int) -> float:
    began = time.perf_counter()
    found = await partition.timeline(offset)
    took_s = time.perf_counter() - began
    assert found.exact and len(found.events) >= least, found.events[:10]
    assert found.states["g1"] == "acked", found.states
    return took_s


def _fill(partition: LoggedPartition, count: int) -> None:
    groups = range(1, GROUPS_MANY + 1)
    for group in groups:
        partition.do(OpenGroup(group, f"g{group}", 1, GroupConfig(max_attempts=0), 0))
    for _ in range(count // 1000):
        partition.publish(1000)
        partition.now_ms += 1
    for _ in range(REDELIVERIES):
        lease = partition.do(Delivered(1, "m", 30_000, [1]))
        partition.do(Settled(1, NACK, [(lease, [1])], "no"))
        partition.now_ms += 1
    for group in groups:
        singles = min(SINGLES, count) if group == 1 else 0
        for piece in (
            *in_pieces(range(singles), 1),
            *in_pieces(range(singles, count), BATCH),
        ):
            lease = partition.do(Delivered(group, "m", 30_000, piece))
            partition.do(Settled(group, ACK, [(lease, piece)]))
            partition.now_ms += 1
    partition.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timeline", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer messages")
    parser.add_argument("--lookups", action="store_true", help="not what it costs")
    parser.add_argument("--data", type=Path, default=ROOT / ".benchmarks", help="scratch folder")
    given = parser.parse_args()
    report = Report()
    given.data.mkdir(exist_ok=True)
    folder = given.data.resolve()
    one = measure_lookups if given.lookups else measure
    asyncio.run(one(report, folder, quick=given.quick))
    print(f"\n{len(report.misses())} of the targets missed")


if __name__ == "__main__":
    main()

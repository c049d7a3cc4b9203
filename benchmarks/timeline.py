"""What timelines cost, switched on against off, and how long it takes to look one up.

`python -m benchmarks.timeline` prints these rows alone, `--cost` and `--lookups` some of them. The
cost: three nodes, five pairs of runs, on and off in turn, each of which publishes and then receives
and acks all; what is stored and what a timeline tells is checked. Beside the rates stands the CPU
time of all nodes, which other work on the machine moves less: of a run, and until every node has
indexed all of it. The look-ups: one replica with real entries on the disk, which ten groups have
read; one of them took 50,000 messages each by itself.
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
from benchmarks.processes import ROOT, DevCluster, cpu_seconds
from benchmarks.publish import create_topic, percentile
from benchmarks.report import Report, Row, Target
from benchmarks.timeline_log import LoggedPartition, in_pieces
from delivery.config import GroupConfig
from delivery.ops import ACK, NACK, Delivered, OpenGroup, Settled
from log.config import StorageConfig
from log.disk import OsDisk
from node.segment_follower import DUE_S

PAIRS, PAIRS_QUICK = 5, 3
COST_SECTION = "Timelines, on against off, three nodes, interleaved pairs"
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
INDEXED_AFTER_S = DUE_S + 1.0
"""By then nodes that have nothing else to do have indexed all."""
SWITCH = "GOQUEUE_TIMELINES_ENABLED"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Run:
    """Messages a second: published, and received and acked; and the nodes' CPU for each message,
    us, until all was acked, and then indexed by every node."""

    publish: float
    settle: float
    acked_us: float
    indexed_us: float


COSTS = (
    ("publish lost to", "publish", True),
    ("receive + ack lost to", "settle", True),
    ("CPU added by", "acked_us", False),
    ("CPU added, until all is indexed, by", "indexed_us", False),
)
"""Title, field, whether more of it is better."""


async def measure(report: Report, folder: Path, *, quick: bool) -> None:
    await measure_cost(report, folder, quick=quick)
    await measure_lookups(report, folder, quick=quick)


# what it costs


async def measure_cost(report: Report, folder: Path, *, quick: bool) -> None:
    """Median and spread of the pairs' quotients."""
    count = 4_000 if quick else 20_000
    pairs: list[tuple[Run, Run]] = []
    for number in range(PAIRS_QUICK if quick else PAIRS):
        found: dict[bool, Run] = {}
        for on in (True, False) if number % 2 else (False, True):
            os.environ[SWITCH] = "true" if on else "false"
            try:
                name = f"timeline-{number}-{'on' if on else 'off'}"
                with DevCluster(3, folder / name) as cluster:
                    found[on] = await _rates(cluster, count, on=on)
            finally:
                del os.environ[SWITCH]
        pairs.append((found[True], found[False]))
    for title, field, is_rate in COSTS:
        with_, without = (
            [getattr(run, field) for run in runs] for runs in zip(*pairs, strict=True)
        )
        lost = sorted(
            (1 - on / off if is_rate else on / off - 1) * 100
            for on, off in zip(with_, without, strict=True)
        )
        figure = statistics.median(with_)
        note = f"{figure:,.0f} msg/s with; " if is_rate else ""
        row = Row(
            f"{title} timelines, median",
            statistics.median(lost),
            "%",
            Target.at_most(COST_MAX, "%"),
            cpu_us=None if is_rate else figure,
            note=f"{note}pairs from {lost[0]:+.1f} to {lost[-1]:+.1f} %",
        )
        report.add(COST_SECTION, row)


async def _rates(cluster: DevCluster, count: int, *, on: bool) -> Run:
    await create_topic(cluster, "cost", partitions=1)
    await _publish(cluster, BATCH * CONNECTIONS)  # warm, and the group is there
    await _settle(cluster, BATCH * CONNECTIONS)
    pids = cluster.pids()
    cpu_s, began = cpu_seconds(pids), time.perf_counter()
    await _publish(cluster, count)
    published_s = time.perf_counter() - began
    began = time.perf_counter()
    await _settle(cluster, count)
    settled_s = time.perf_counter() - began
    acked_s = cpu_seconds(pids) - cpu_s
    await asyncio.sleep(INDEXED_AFTER_S)
    indexed_s = cpu_seconds(pids) - cpu_s
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
    return Run(
        count / published_s, count / settled_s, acked_s / count * 1e6, indexed_s / count * 1e6
    )


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
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--lookups", action="store_true", help="not what it costs")
    parts.add_argument("--cost", action="store_true", help="nothing else")
    parser.add_argument("--data", type=Path, default=ROOT / ".benchmarks", help="scratch folder")
    given = parser.parse_args()
    report = Report()
    given.data.mkdir(exist_ok=True)
    folder = given.data.resolve()
    one = measure_lookups if given.lookups else measure_cost if given.cost else measure
    asyncio.run(one(report, folder, quick=given.quick))
    print(f"\n{len(report.misses())} of the targets missed")


if __name__ == "__main__":
    main()

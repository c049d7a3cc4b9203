"""What timelines cost, switched on against off, and how long it takes to look one up.

`python -m benchmarks.timeline` prints these rows alone, `--cost` and `--lookups` some of them. The
cost: five pairs of clusters of three nodes, one with timelines and one without, which live beside
each other and work in turn, a few seconds each, so that a machine whose speed changes changes both
alike. A turn publishes and then receives and acks all; what is stored and what a timeline tells is
checked. Beside the rates stands the CPU time of all nodes: of the turns, and until every node has
indexed all of it. The look-ups: one replica with real entries on the disk, which ten groups have
read; one of them took 50,000 messages each by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.connection import BadAnswer, Connection, get, post
from benchmarks.processes import ROOT, DevCluster, cpu_seconds
from benchmarks.publish import create_topic, percentile
from benchmarks.report import Report, Row, Target
from benchmarks.timeline_log import LoggedPartition, in_pieces
from delivery.config import GroupConfig
from delivery.entries.ops import ACK, NACK, Delivered, OpenGroup, Settled
from log.config import StorageConfig
from log.disk.files import OsDisk
from node.partition.reading.segment_follower import DUE_S

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
CONNECTIONS = 6
"""As many to each node: who leads must not make a difference."""
TURNS, TURNS_QUICK = 8, 2
INDEXED_AFTER_S = DUE_S + 1.0
"""By then nodes that have nothing else to do have indexed all."""
SWITCH = "GOQUEUE_TIMELINES_ENABLED"
JSON = "application/json"


@dataclass(slots=True)
class Spent:
    """By one cluster, for all its messages: seconds of publishing, and of receiving and acking; and
    its nodes' CPU seconds in its turns, and until every node has indexed all."""

    publish: float = 0.0
    settle: float = 0.0
    acked: float = 0.0
    indexed: float = 0.0


COSTS = (
    ("publish lost to", "publish", True),
    ("receive + ack lost to", "settle", True),
    ("CPU added by", "acked", False),
    ("CPU added, until all is indexed, by", "indexed", False),
)
"""Title, field, whether its rate is told."""


async def measure(report: Report, folder: Path, *, quick: bool) -> None:
    await measure_cost(report, folder, quick=quick)
    await measure_lookups(report, folder, quick=quick)


# what it costs


async def measure_cost(report: Report, folder: Path, *, quick: bool) -> None:
    """Median and spread of the pairs' quotients."""
    count = 6_000 if quick else 30_000
    turns = TURNS_QUICK if quick else TURNS
    pairs: list[dict[bool, Spent]] = []
    for number in range(PAIRS_QUICK if quick else PAIRS):
        order = (True, False) if number % 2 else (False, True)
        with ExitStack() as stack:
            clusters = {
                on: stack.enter_context(_cluster(folder / f"timeline-{number}-{on}", on=on))
                for on in order
            }
            pairs.append(await _pair(clusters, count, turns))
    for title, field, is_rate in COSTS:
        with_, without = ([getattr(pair[on], field) for pair in pairs] for on in (True, False))
        # of a rate: what is lost of it; of a time: what is added to it
        lost = sorted(
            (1 - off / on if is_rate else on / off - 1) * 100
            for on, off in zip(with_, without, strict=True)
        )
        each_s = statistics.median(with_) / count / turns
        note = f"{1 / each_s:,.0f} msg/s with; " if is_rate else ""
        row = Row(
            f"{title} timelines, median",
            statistics.median(lost),
            "%",
            Target.at_most(COST_MAX, "%"),
            cpu_us=None if is_rate else each_s * 1e6,
            note=f"{note}pairs from {lost[0]:+.1f} to {lost[-1]:+.1f} %",
        )
        report.add(COST_SECTION, row)


def _cluster(folder: Path, *, on: bool) -> DevCluster:
    return DevCluster(3, folder, environment={SWITCH: "true" if on else "false"})


async def _pair(clusters: dict[bool, DevCluster], count: int, turns: int) -> dict[bool, Spent]:
    """What each cluster spent on `count` messages a turn; who begins changes turn by turn."""
    pids = {on: cluster.pids() for on, cluster in clusters.items()}
    for cluster in clusters.values():
        await create_topic(cluster, "cost", partitions=1)
        await _publish(cluster, BATCH * CONNECTIONS)  # warm, and the group is there
        await _settle(cluster, BATCH * CONNECTIONS)
    spent = {on: Spent() for on in clusters}
    began_cpu_s = {on: cpu_seconds(pids[on]) for on in clusters}
    for turn in range(turns):
        for on in (True, False) if turn % 2 else (False, True):
            cpu_s, began = cpu_seconds(pids[on]), time.perf_counter()
            await _publish(clusters[on], count)
            published = time.perf_counter()
            settled = await _settle(clusters[on], count)
            spent[on].publish += published - began
            spent[on].settle += settled - published
            spent[on].acked += cpu_seconds(pids[on]) - cpu_s
    await asyncio.sleep(INDEXED_AFTER_S)
    whole_s = {on: cpu_seconds(pids[on]) - began_cpu_s[on] for on in clusters}
    # what each did between its turns is in this, too: only the difference is of interest
    spent[False].indexed = spent[False].acked
    spent[True].indexed = spent[False].acked + whole_s[True] - whole_s[False]
    for on, cluster in clusters.items():
        await _check(cluster, count * turns // 2, on=on)
    return spent


async def _check(cluster: DevCluster, offset: int, *, on: bool) -> None:
    """The message's timeline is told where timelines are on, and only there."""
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


async def _each(
    cluster: DevCluster, work: Callable[[Connection], Coroutine[Any, Any, None]]
) -> None:
    """Connections beside each other, spread over the nodes."""
    async with asyncio.TaskGroup() as tasks:
        for number in range(CONNECTIONS):
            address = cluster.addresses[number % len(cluster.addresses)]
            connection = await Connection.open(address)
            tasks.create_task(work(connection))


async def _publish(cluster: DevCluster, count: int) -> None:
    request = {"messages": [{"value": "v" * 100}] * BATCH}
    body = json.dumps(request).encode()

    async def work(connection: Connection) -> None:
        for _ in range(count // BATCH // CONNECTIONS):
            await connection.ask(post("/v1/topics/cost/messages/batch", body, JSON))
        connection.close()

    await _each(cluster, work)


async def _settle(cluster: DevCluster, count: int) -> float:
    """When the last one was acked: other receives may wait on then, for nothing."""
    left, acked = [count], 0.0

    async def work(connection: Connection) -> None:
        nonlocal acked
        wanted = {"topics": ["cost"], "limit": BATCH, "wait": "1s", "visibility_timeout": "60s"}
        while left[0] > 0:
            ask = post("/v1/groups/g/receive", json.dumps(wanted).encode(), JSON)
            _, body = await connection.ask(ask)
            receipts = [message["receipt"] for message in json.loads(body)["messages"]]
            left[0] -= len(receipts)
            if receipts:
                acks = json.dumps({"receipts": receipts}).encode()
                await connection.ask(post("/v1/groups/g/ack", acks, JSON))
                acked = time.perf_counter()
        connection.close()

    await _each(cluster, work)
    return acked


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
        assert await partition.message_entries.catch_up(math.inf)
        indexed_s = time.perf_counter() - began
        entries = partition.applied_index
        gc.collect()
        gc.freeze()
        index_bytes = partition.message_entries.disk_bytes / entries
        note = f"{entries:,} entries, {index_bytes:.1f} B of index each"
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

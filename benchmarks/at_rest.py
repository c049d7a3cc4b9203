"""Thousands of partitions: what three nodes take to make them, and to keep them with nothing to do.

`python -m benchmarks.at_rest --partitions 5000` prints these rows alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.connection import Connection, get, post
from benchmarks.counters import figures
from benchmarks.payloads import Body, Sent, fingerprint, sample
from benchmarks.processes import ROOT, DevCluster, cpu_seconds, memory_bytes
from benchmarks.publish import check_all, publish
from benchmarks.report import Report, Row, Target
from goqueue import AsyncClient

NODES = 3
TOPIC_PARTITIONS = 1000
"""Topics are made one after the other. Each is answered once all its partitions are led."""
MADE_S, IDLE_SHARE, RSS_MIB, RESTART_S = 30.0, 0.03, 250.0, 10.0
"""Targets, of 5,000 partitions."""
SETTLE_S, SETTLE_TURNS, IDLE_S = 10.0, 9, 20.0
"""No leadership has moved for so long, which is looked for so often; and then nothing is asked for
so long."""
LOOK_S = 0.5
FEW, CONNECTIONS, SPREAD_SHARE = 64, 64, 0.7
FIRST_S, SPREAD_S = 120.0, 8.0
"""Most that a first message to each partition takes, and how long is measured then."""
QUIET_S, QUIET_TURNS, QUIET_SHARE = 1.0, 120, 0.1
"""Before that each node uses less than this share of a core, for so long; so often it is asked."""
LEADERSHIPS = "goqueue_cluster_leaders_per_node"
MIB = 1 << 20


async def measure(report: Report, folder: Path, partitions: int) -> None:
    section = f"{partitions:,} partitions at rest: three nodes, three replicas of each"
    topics = {
        f"t{at}": min(TOPIC_PARTITIONS, partitions - at)
        for at in range(0, partitions, TOPIC_PARTITIONS)
    }
    with DevCluster(NODES, folder / "at-rest") as cluster:
        began_s, made_s = time.monotonic(), 0.0
        async with AsyncClient(cluster.urls, timeout_s=240.0, attempt_timeout_s=120.0) as client:
            there = 0
            for topic, count in topics.items():
                await client.create_topic(topic, partitions=count, replication_factor=NODES)
                there += count
                made_s = time.monotonic() - began_s
                print(f"  {there:,} are led after {made_s:.0f} s", flush=True)
        await all_led(cluster, partitions)
        await settled(cluster)
        pids = cluster.pids()
        before = [cpu_seconds([pid]) for pid in pids]
        await asyncio.sleep(IDLE_S)
        used = [cpu_seconds([pid]) - one for pid, one in zip(pids, before, strict=True)]
        rss = max(memory_bytes(pid, "VmRSS") for pid in pids) / MIB
        await stored(cluster, topics)
        ended_s = time.monotonic()
        cluster.restart(0, signal.SIGTERM)
        await stored(cluster, topics)
        restart_s = time.monotonic() - ended_s
        spread = await spread_rate(cluster, topics)
    rows = [
        Row("made, each with a leader", made_s, "s", Target.at_most(MADE_S, "s")),
        Row(
            "CPU of a node with nothing to do",
            max(used) / IDLE_S * 100,
            "% of a core",
            Target.at_most(IDLE_SHARE * 100, "%"),
        ),
        Row("RSS of a node", rss, "MiB", Target.at_most(RSS_MIB, "MiB")),
        Row("restart, to its first answer", restart_s, "s", Target.at_most(RESTART_S, "s")),
        spread,
    ]
    for row in rows:
        report.add(section, row)


async def spread_rate(cluster: DevCluster, topics: dict[str, int]) -> Row:
    """Single messages to each partition in turn, against those to a topic of a few. All partitions
    had one before, and nodes have written their files: what is measured makes none."""
    async with AsyncClient(cluster.urls) as client:
        await client.create_topic("few", partitions=FEW, replication_factor=NODES)
    before = [b"at rest"] * 2 * len(topics)
    _, few = await _rates(cluster, {"few": FEW}, Sent())
    first, spread = await _rates(cluster, topics, Sent(len(before), fingerprint(before)))
    name = (
        f"publishing spread over all, {CONNECTIONS} connections, of the rate over {FEW} partitions"
    )
    note = f"{spread:,.0f} and {few:,.0f} msg/s; a first message to each: {first:,.0f} msg/s"
    return Row(name, spread / few, "×", Target.at_least(SPREAD_SHARE, "×"), note=note)


async def _rates(cluster: DevCluster, topics: dict[str, int], there: Sent) -> tuple[float, float]:
    """Of the first message to each partition, and of those after it."""
    bodies = [one for topic, count in topics.items() for one in _bodies(topic, count)]
    first = await publish(cluster, bodies, CONNECTIONS, FIRST_S, len(bodies))
    await quiet(cluster)
    load = await publish(cluster, bodies, CONNECTIONS, SPREAD_S)
    await check_all(cluster, topics, there.plus(first.sent).plus(load.sent))
    return first.rate, load.rate


def _bodies(topic: str, partitions: int) -> Iterator[Body]:
    """A message of 100 B to each partition."""
    path = f"/v1/topics/{topic}/messages"
    for partition, value in enumerate(sample(100, partitions)):
        body = {"messages": [{"value": value.decode(), "partition": partition}]}
        request = post(path, json.dumps(body).encode(), "application/json")
        yield Body(request, 1, fingerprint([value]))


async def all_led(cluster: DevCluster, partitions: int) -> None:
    """Each partition has a leader, and none is just being handed over."""
    while True:
        if sum(await leaderships(cluster)) >= partitions:
            return
        await asyncio.sleep(LOOK_S)


async def settled(cluster: DevCluster) -> None:
    """Leaderships go to the replicas that the placement prefers, a few a second: that has ended, or
    goes on for longer than is waited for."""
    before: list[int] = []
    for _ in range(SETTLE_TURNS):
        now = await leaderships(cluster)
        if now == before:
            return
        before = now
        await asyncio.sleep(SETTLE_S)


async def quiet(cluster: DevCluster) -> None:
    """What nodes do after they have answered, as writing to thousands of files, is done."""
    pids = cluster.pids()
    for _ in range(QUIET_TURNS):
        before = cpu_seconds(pids)
        await asyncio.sleep(QUIET_S)
        if cpu_seconds(pids) - before <= QUIET_SHARE * QUIET_S * len(pids):
            return
    raise RuntimeError(f"the nodes are still at work after {QUIET_TURNS * QUIET_S:.0f} s")


async def leaderships(cluster: DevCluster) -> list[int]:
    """How many partitions each node leads, as it says itself: of a topic's route each leader would
    have to confirm its end, which wakes groups that are at rest."""
    return [
        int((await figures(address, [LEADERSHIPS]))[LEADERSHIPS]) for address in cluster.addresses
    ]


async def stored(cluster: DevCluster, topics: dict[str, int]) -> None:
    """A message in each topic is acknowledged by the first node, and read back there."""
    link = await Connection.open(cluster.addresses[0])
    for topic in topics:
        body = b'{"messages":[{"value":"at rest","partition":0}]}'
        await link.ask(post(f"/v1/topics/{topic}/messages", body, "application/json"))
        page = get(f"/v1/topics/{topic}/partitions/0/messages?offset=0&limit=1000")
        _status, answer = await link.ask(page)
        assert b"at rest" in answer, answer
    link.close()


async def alone(partitions: int) -> None:
    report = Report()
    await measure(report, ROOT / ".benchmarks", partitions)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.at_rest", description=__doc__)
    parser.add_argument("--partitions", type=int, default=5000)
    asyncio.run(alone(parser.parse_args().partitions))

"""Tails while a topic is written: what one reader gets, and what ten of them cost."""

from __future__ import annotations

import asyncio
import time

from benchmarks.counters import KEPT_S, figures
from benchmarks.payloads import json_bodies
from benchmarks.processes import cpu_seconds
from benchmarks.publish import publish
from benchmarks.report import Row, Target
from benchmarks.rows import Rows

RATE = 20_000
READERS = 10
DRAIN_S = 30.0
READS = [f'goqueue_tail_reads_total{{reader="{reader}"}}' for reader in ("shared", "own")]
_EVENT = b"\ndata: "


class Reader:
    """Counts the messages of one stream, and decodes none."""

    def __init__(self) -> None:
        self.count = 0
        self.last_s = 0.0

    async def follow(self, address: tuple[str, int], topic: str, begun: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
        writer.write(f"GET /v1/topics/{topic}/tail HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        text = await reader.readuntil(b"\n\n")
        begun.set()
        while piece := await reader.read(1 << 18):
            text = text[-len(_EVENT) + 1 :] + piece
            self.count += text.count(_EVENT)
            self.last_s = time.perf_counter()


async def tails(rows: Rows, readers: int) -> None:
    """Publish at full speed while so many read the topic, each to its end."""
    topic = await rows.topic()
    address = rows.cluster.addresses[0]
    found = [Reader() for _ in range(readers)]
    async with asyncio.TaskGroup() as group:
        begun = [asyncio.Event() for _ in found]
        tasks = [
            group.create_task(one.follow(address, topic, event))
            for one, event in zip(found, begun, strict=True)
        ]
        for event in begun:
            await event.wait()
        before, cpu_before = await _reads(rows), cpu_seconds(rows.cluster.pids())
        began_s = time.perf_counter()
        load = await publish(rows.cluster, json_bodies(topic, 100, 100), 4, rows.seconds)
        async with asyncio.timeout(DRAIN_S):
            while any(one.count < load.count for one in found):  # noqa: ASYNC110 - of many
                await asyncio.sleep(0.01)
        cpu_s = cpu_seconds(rows.cluster.pids()) - cpu_before
        shared, own = (now - then for now, then in zip(await _reads(rows), before, strict=True))
        for task in tasks:
            task.cancel()
    if any(one.count != load.count for one in found):
        raise RuntimeError(f"{load.count} acked, {[one.count for one in found]} tailed")
    took_s = max(one.last_s for one in found) - began_s
    rows.report.add(
        rows.section,
        Row(
            f"SSE tail of all partitions while it is written, readers: {readers}",
            load.count / took_s,
            "msg/s each",
            Target.at_least(RATE, "msg/s each") if readers == 1 else None,
            cpu_s / max(1, load.count) * 1e6,
            f"{shared:,.0f} shared reads, {own:,.0f} by readers themselves",
        ),
    )


async def _reads(rows: Rows) -> tuple[float, float]:
    """Reads of partitions for tails until now: shared, and of readers by themselves."""
    found = await figures(rows.cluster.addresses[0], READS)
    await asyncio.sleep(KEPT_S)
    return found[READS[0]], found[READS[1]]

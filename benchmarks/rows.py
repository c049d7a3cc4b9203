"""Rows that clusters of one and of three nodes have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from benchmarks.counters import FRAMES, KEPT_S, SYNCS, counted
from benchmarks.payloads import Body, batch_bodies, json_bodies
from benchmarks.processes import DevCluster
from benchmarks.publish import PARTITIONS, Load, check, create_topic, percentile, publish
from benchmarks.read import check_json, read_back
from benchmarks.report import Report, Row, Target

WARM_UP_S = 0.3
COUNTED = {"frames": FRAMES, "fsyncs": SYNCS}


class Rows:
    """Measures rows of one section against one cluster."""

    def __init__(self, report: Report, section: str, cluster: DevCluster, seconds: float) -> None:
        self.report = report
        self.section = section
        self.cluster = cluster
        self.seconds = seconds
        self._topics = 0

    async def topic(self, **settings: object) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        await create_topic(self.cluster, name, **settings)
        return name

    def add(self, name: str, load: Load, target: Target | None = None, counts: str = "") -> None:
        p50_ms, p99_ms = (percentile(load.latencies_s, share) * 1e3 for share in (0.5, 0.99))
        note = f"p50 {p50_ms:.1f} ms, p99 {p99_ms:.1f} ms a request{counts}"
        row = Row(name, load.rate, "msg/s", target, load.cpu_us, note)
        self.report.add(self.section, row)

    async def single(
        self,
        connections: int,
        target: Target | None = None,
        durability: str = "majority",
        *,
        keyed: bool = False,
    ) -> None:
        topic = await self.topic(durability=durability)
        bodies = json_bodies(topic, 100, 1, keyed=keyed)
        kind = "keyed JSON" if keyed else "JSON"
        name = f"{durability}, {kind} 1 × 100 B, connections: {connections}"
        await self._publish(name, topic, bodies, connections, target)

    async def json(
        self, batch: int, size: int, target: Target | None = None, durability: str = "majority"
    ) -> None:
        topic = await self.topic(durability=durability)
        name = f"{durability}, JSON {batch} × {size} B, connections: 8"
        await self._publish(name, topic, json_bodies(topic, size, batch), 8, target)

    async def binary(self, target: Target | None, durability: str = "majority") -> None:
        topic = await self.topic(durability=durability)
        name = f"{durability}, binary 1000 × 100 B, connections: 8"
        await self._publish(name, topic, batch_bodies(topic, 100, 1000, PARTITIONS), 8, target)

    async def read(self, topic: str, stored: Load, *, binary: bool, target: Target | None) -> None:
        """Read what `fill` stored; it has checked the binary form, and this checks the JSON."""
        load = await read_back(self.cluster, topic, binary=binary, seconds=self.seconds)
        if not binary:
            await check_json(self.cluster, topic, stored)
        kind = "binary" if binary else "JSON"
        self.add(f"read back, {kind}, limit 1000, connections: 2", load, target)

    async def fill(self, count: int, *, lanes: bool) -> tuple[str, Load]:
        """A new topic of `count` messages of 100 B, read back and found equal."""
        topic = await self.topic()
        bodies = batch_bodies(topic, 100, 1000, PARTITIONS, lanes=lanes)
        load = await publish(self.cluster, bodies, 4, 120.0, count_max=count)
        await check(self.cluster, topic, load)
        if load.count != count:
            raise RuntimeError(f"{load.count} of {count} messages in time")
        return topic, load

    async def _publish(
        self,
        name: str,
        topic: str,
        bodies: Sequence[Body],
        connections: int,
        target: Target | None,
    ) -> None:
        warm = await self.topic()
        await publish(self.cluster, json_bodies(warm, 100, 1), connections, WARM_UP_S)
        await asyncio.sleep(KEPT_S)
        before = await counted(self.cluster, COUNTED)
        load = await publish(self.cluster, bodies, connections, self.seconds)
        await asyncio.sleep(max(0.0, KEPT_S - load.seconds))
        after = await counted(self.cluster, COUNTED)
        await check(self.cluster, topic, load)
        counts = "".join(
            f", {(after[one] - before[one]) / max(1, load.count):.2f} {one}" for one in COUNTED
        )
        self.add(name, load, target, counts)

"""The one that kills: the leader of a random partition, by kill -9, then waits for health."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.cluster import Cluster, ClusterError, Node
from tests.chaos.http import Http, NoAnswer
from tests.check.history import History

HEALTHY_S = 90.0
POLL_S = 0.1


@dataclass
class Nemesis:
    """Kills leaders of one topic's partitions, one node at a time, and restarts them."""

    cluster: Cluster
    http: Http
    topic: str
    history: History
    rng: random.Random
    down_s: tuple[float, float] = (1.5, 3.0)
    between_s: tuple[float, float] = (0.3, 1.0)
    recoveries_s: list[float] = field(default_factory=list)

    async def strike(self) -> Node:
        """One kill and restart; returns when the cluster is healthy again."""
        view = await self._view()
        partition = self.rng.randrange(len(view))
        node = self.cluster.node(view[partition]["leader"])
        led = [p["partition"] for p in view if p["leader"] == node.id]
        try:
            node.kill()
        except ProcessLookupError:
            raise ClusterError(f"{node.id} had died by itself") from None
        self.history.kill(node.id, led, time.monotonic())
        await node.gone()
        await asyncio.sleep(self.rng.uniform(*self.down_s))
        self.cluster.restart(node)
        restarted = time.monotonic()
        self.history.note("restart", node=node.id)
        await self.wait_until_healthy()
        self.recoveries_s.append(time.monotonic() - restarted)
        self.history.note("healthy", node=node.id, after_s=self.recoveries_s[-1])
        await asyncio.sleep(self.rng.uniform(*self.between_s))
        return node

    async def wait_until_healthy(self) -> None:
        """All nodes ready, and every partition led with all replicas in step, as each says."""
        end = time.monotonic() + HEALTHY_S
        while (problem := await self._problem()) is not None:
            if time.monotonic() > end:
                raise ClusterError(f"not healthy within {HEALTHY_S:.0f} s: {problem}")
            await asyncio.sleep(POLL_S)

    async def _problem(self) -> str | None:
        for node in self.cluster.nodes:
            if node.process is not None and node.process.poll() is not None:
                raise ClusterError(f"{node.id} exited with {node.process.returncode}")
            try:
                ready = await self.http.ask("GET", f"{node.url}/readyz", timeout_s=3)
            except NoAnswer as error:
                return f"{node.id} does not answer: {error}"
            if ready.status != 200:
                return f"{node.id} is not ready: {ready.body}"
            view = await self.http.partitions(node.url, self.topic)
            if view is None:
                return f"{node.id} does not know the topic"
            for part in view:
                if part["leader"] is None:
                    return f"{node.id}: partition {part['partition']} has no leader"
                if len(part["isr"]) < len(self.cluster.nodes):
                    return f"{node.id}: partition {part['partition']} in step: {part['isr']}"
        return None

    async def _view(self) -> list[dict[str, Any]]:
        end = time.monotonic() + HEALTHY_S
        while time.monotonic() < end:
            node = self.rng.choice(self.cluster.running())
            view = await self.http.partitions(node.url, self.topic)
            if view and all(part["leader"] for part in view):
                return view
            await asyncio.sleep(POLL_S)
        raise ClusterError("some partition has no leader")

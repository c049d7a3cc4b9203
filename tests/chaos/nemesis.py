"""kill -9 of the leader of a random partition, and a restart; then it waits for health."""

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

    async def strike(self) -> str:
        """One kill and its end; returns when the cluster is healthy again, with what was hit."""
        hit = await self._kill()
        ended = time.monotonic()
        await self.wait_until_healthy()
        self.recoveries_s.append(time.monotonic() - ended)
        self.history.note("healthy", nodes=hit, after_s=self.recoveries_s[-1])
        await asyncio.sleep(self.rng.uniform(*self.between_s))
        return hit

    async def _kill(self) -> str:
        node, led = await self._leader()
        self._kill_now(node)
        self.history.kill(node.id, led, time.monotonic())
        await node.gone()
        await asyncio.sleep(self.rng.uniform(*self.down_s))
        self._restart(node)
        return node.id

    def _kill_now(self, node: Node) -> None:
        try:
            node.kill()
        except ProcessLookupError:
            raise ClusterError(f"{node.id} had died by itself") from None

    def _restart(self, node: Node) -> None:
        self.cluster.restart(node)
        self.history.note("restarted", node=node.id)

    async def _leader(self) -> tuple[Node, list[int]]:
        """The leader of a random partition, and all partitions it leads."""
        view = await self._view()
        leader = view[self.rng.randrange(len(view))]["leader"]
        led = [part["partition"] for part in view if part["leader"] == leader]
        return self.cluster.node(leader), led

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
        for node in self.cluster.nodes:
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

"""How the cluster is, as its nodes say: who leads, whether all is well again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Any

from tests.chaos.cluster import ClusterError
from tests.chaos.http import Http, NoAnswer
from tests.chaos.storm.site import Site, StormNode

HEALTHY_S = 120.0
POLL_S = 0.1
LEADER_S = 60.0
STARTS_MAX = 20
NODE_WAITS_S = 0.5


class Watch:
    """Asks all nodes about the topics that are worked on."""

    def __init__(self, site: Site, http: Http, rng: random.Random) -> None:
        self.site = site
        self.http = http
        self.topics: dict[str, int] = {}
        """How many replicas each partition has, by topic."""
        self.restarts: list[str] = []
        """Nodes that ended by themselves where they may, and were started again."""
        self.waited_for = ""
        """What was not well last, the last time."""
        self._had_one = ""
        self._rng = rng

    async def leaders(self, topic: str) -> list[str]:
        """Who leads each partition of a topic."""
        ends = time.monotonic() + LEADER_S
        while time.monotonic() < ends:
            node = self._rng.choice(self.site.members)
            view = await self.http.partitions(node.url, topic)
            if view and all(part["leader"] for part in view):
                return [part["leader"] for part in view]
            await asyncio.sleep(POLL_S)
        raise ClusterError(f"some partition of {topic} has no leader")

    async def until_healthy(self, *, may_exit: bool = False, bound_s: float = HEALTHY_S) -> float:
        """How long it took until all nodes were ready, all replicas in step and no damage told.

        With `may_exit` a node that ends by itself is started again, as a supervisor does.
        Raises ClusterError.
        """
        began = time.monotonic()
        starts = 0
        self.waited_for = ""
        while True:
            for node in self.site.members:
                if node.is_there:
                    continue
                if not may_exit or starts == STARTS_MAX:
                    raise ClusterError(f"{node.id} ended by itself:\n{node.tail()}")
                starts += 1
                self.restarts.append(node.id)
                await asyncio.sleep(NODE_WAITS_S)
                self.site.restart(node)
            problem = await self._problem()
            took_s = time.monotonic() - began
            if problem is None:
                return took_s
            self.waited_for = problem
            if took_s > bound_s:
                raise ClusterError(f"not healthy within {bound_s:.0f} s: {problem}")
            await asyncio.sleep(POLL_S)

    async def _problem(self) -> str | None:
        """The first one, at the node that had one last; None when all nodes, asked in turn, have
        none."""
        for node in sorted(self.site.members, key=lambda node: node.id != self._had_one):
            problem = await self._problem_at(node)
            if problem is not None:
                self._had_one = node.id
                return f"{node.id}: {problem}"
        return None

    async def _problem_at(self, node: StormNode) -> str | None:
        try:
            ready = await self.http.ask("GET", f"{node.url}/readyz", timeout_s=3)
            health = await self.http.ask("GET", f"{node.url}/cluster/health", timeout_s=3)
        except NoAnswer as error:
            return f"does not answer: {error}"
        if ready.status != 200:
            return f"not ready: {ready.body}"
        if health.status != 200 or health.body["problems"]:
            return f"problems: {health.body}"
        for topic, replicas in self.topics.items():
            view = await self.http.partitions(node.url, topic)
            if view is None:
                return f"does not know {topic}"
            for part in view:
                if part["leader"] is None or len(part["isr"]) < replicas:
                    return f"{topic}: {_state_of(part)}"
        return None


def _state_of(part: dict[str, Any]) -> str:
    return f"partition {part['partition']}: leader {part['leader']}, in step {part['isr']}"


def choose(
    nodes: Sequence[StormNode], leaders: Sequence[str], rng: random.Random, bias: float = 0.8
) -> StormNode:
    """A node; with this probability the leader of some partition."""
    if leaders and rng.random() < bias:
        wanted = rng.choice(leaders)
        for node in nodes:
            if node.id == wanted:
                return node
    return rng.choice(nodes)

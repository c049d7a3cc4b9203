"""Reads for the checker: samples while things break, every partition of every node at the end."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from tests.chaos.cluster import Cluster, ClusterError
from tests.chaos.http import Http, NoAnswer
from tests.check.history import History

PAGE = 1000
SAMPLE = 200
SAMPLE_PAUSE_S = 0.3
SETTLE_S = 60.0


class Reader:
    """Reads one topic over HTTP into the history."""

    def __init__(
        self,
        cluster: Cluster,
        http: Http,
        topic: str,
        history: History,
        rng: random.Random,
        *,
        sample_pause_s: float = SAMPLE_PAUSE_S,
    ) -> None:
        self._cluster = cluster
        self._http = http
        self._topic = topic
        self._history = history
        self._rng = rng
        self._sample_pause_s = sample_pause_s
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Read a page near the end of a random partition on a random node, until `stop()`."""
        while not self._stopping.is_set():
            await asyncio.sleep(self._sample_pause_s)
            node = self._rng.choice(self._cluster.nodes)
            view = await self._http.partitions(node.url, self._topic)
            if not view:
                continue
            part = self._rng.choice(view)
            offset = max(0, part["next"] - self._rng.randrange(2 * SAMPLE))
            try:
                await self._page(node.id, node.url, part["partition"], offset, SAMPLE)
            except NoAnswer:
                continue

    def stop(self) -> None:
        self._stopping.set()

    async def read_everything(self) -> None:
        """Every partition, from 0 to the end, from each node, once all agree on the ends."""
        ends = await self._agreed_ends()
        for node in self._cluster.nodes:
            for partition, end in ends.items():
                at = 0
                while at < end:
                    following = await self._page(node.id, node.url, partition, at, PAGE, final=True)
                    if following <= at:
                        raise ClusterError(
                            f"{node.id} partition {partition}: reading stops at {at} of {end}"
                        )
                    at = following

    async def _agreed_ends(self) -> dict[int, int]:
        deadline = time.monotonic() + SETTLE_S
        before: dict[int, int] = {}
        while True:
            views = [
                await self._http.partitions(node.url, self._topic) for node in self._cluster.nodes
            ]
            found = [{p["partition"]: p["next"] for p in view} for view in views if view]
            if len(found) == len(views) and all(f == found[0] for f in found):
                if before == found[0]:
                    return before
                before = found[0]
            if time.monotonic() > deadline:
                raise ClusterError(f"nodes disagree on the ends of partitions: {found}")
            await asyncio.sleep(0.5)

    async def _page(
        self, name: str, url: str, partition: int, offset: int, limit: int, *, final: bool = False
    ) -> int:
        path = f"/topics/{self._topic}/partitions/{partition}/messages"
        answer = await self._http.ask("GET", f"{url}{path}?offset={offset}&limit={limit}")
        if answer.status != 200:
            if final:
                raise ClusterError(f"{name} {path} at {offset}: {answer.body}")
            return offset
        found: list[dict[str, Any]] = answer.body["messages"]
        if found:
            self._history.read(
                name,
                partition,
                [message["offset"] for message in found],
                [message.get("key") for message in found],
                [message["value"] for message in found],
                final=final,
            )
        return int(answer.body["next_offset"])

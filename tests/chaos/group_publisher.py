"""A steady stream of messages to all partitions, some of them in each request."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from itertools import count
from typing import Any

from tests.chaos.cluster import Cluster
from tests.chaos.group_crew import Journal
from tests.chaos.http import Http, NoAnswer

AT_ONCE = 6
"""Messages a request, each to another partition."""
BEHIND_MAX = 64
"""Requests that may be on their way at once."""


class SteadyPublisher:
    """Publishes `rate` messages a second, whatever becomes of them; each is told in the journal."""

    def __init__(
        self,
        cluster: Cluster,
        http: Http,
        topic: str,
        partitions: int,
        rate: float,
        journal: Journal,
        rng: random.Random,
    ) -> None:
        self.published = 0
        self.errors: Counter[str] = Counter()
        self._cluster = cluster
        self._http = http
        self._path = f"/topics/{topic}/messages"
        self._partitions = partitions
        self._interval_s = AT_ONCE / rate
        self._journal = journal
        self._rng = rng
        self._numbers = count()
        self._stopping = asyncio.Event()
        self._began = self._ended = 0.0

    @property
    def rate(self) -> float:
        """Acked messages a second."""
        seconds = self._ended - self._began
        return self.published / seconds if seconds > 0 else 0.0

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Until `stop()`; every request that was begun has ended when it returns."""
        slots = asyncio.Semaphore(BEHIND_MAX)
        self._began = due = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            first = 0
            while not self._stopping.is_set():
                await slots.acquire()
                partitions = [(first + at) % self._partitions for at in range(AT_ONCE)]
                tasks.create_task(self._publish(partitions, slots))
                first += AT_ONCE
                due += self._interval_s
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        self._ended = time.monotonic()

    async def _publish(self, partitions: list[int], slots: asyncio.Semaphore) -> None:
        messages = [{"value": f"m{next(self._numbers)}", "partition": p} for p in partitions]
        try:
            await self._send(messages)
        finally:
            slots.release()

    async def _send(self, messages: list[dict[str, Any]]) -> None:
        node = self._rng.choice(self._cluster.running())
        try:
            answer = await self._http.ask(
                "POST", node.url + self._path, json={"messages": messages}
            )
        except NoAnswer as error:
            self.errors["no answer"] += 1
            if not error.is_unsent:
                self._doubt(messages)
            return
        results = answer.body.get("results") if isinstance(answer.body, dict) else None
        if results is None:
            results = [answer.body if isinstance(answer.body, dict) else {}] * len(messages)
        for message, result in zip(messages, results, strict=True):
            if "offset" in result and not result.get("error"):
                self.published += 1
                place = {"partition": result["partition"], "offset": result["offset"]}
                self._journal.add("published", value=message["value"], **place)
                continue
            self.errors[str(result.get("code", answer.status))] += 1
            if result.get("outcome") != "none":
                self._doubt([message])

    def _doubt(self, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            self._journal.add("doubtful", value=message["value"])

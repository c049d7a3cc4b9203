"""One round of work under faults: a topic that is published to and read, a queue that is consumed,
one history, judged when the round is over."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.chaos import queue_clients, queue_run, readers
from tests.chaos.cluster import ClusterError
from tests.chaos.http import Http
from tests.chaos.publishers import KINDS, Publisher
from tests.chaos.queue_clients import Consumer, Producer
from tests.chaos.readers import Reader
from tests.chaos.storm.site import Site
from tests.chaos.storm.speakers import Speakers
from tests.check import logcheck, queuecheck
from tests.check.history import Event, History
from tests.check.queuehistory import QueueHistory

PARTITIONS = 6
REPLICAS = 3
PUBLISHERS = 4
PACE_S = 0.15
BATCH = 24
PRODUCERS = 2
MEMBERS = 2
SAMPLE_PAUSE_MAX_S = 1.0
CLIENTS_END_S = 90.0
LIMITS = replace(queue_run.LIMITS, late_s=15.0)
"""How soon a delayed message comes is judged where nothing else happens: by `make chaos-queue`."""


@dataclass(frozen=True, slots=True)
class Load:
    """How often clients send, and read beside it; the defaults are as much as one cluster takes."""

    pace_s: float = PACE_S
    queue_pace_s: float = queue_clients.PACE_S
    sample_pause_s: float = readers.SAMPLE_PAUSE_S

    @classmethod
    def of_rate(cls, per_second: float) -> Load:
        """About so many sends to the log's topic, and the rest slower in the same proportion."""
        by_kind = {"plain": 2, "json": 2, "batch": BATCH}
        messages = sum(by_kind[KINDS[n % len(KINDS)]] for n in range(PUBLISHERS))
        slower = messages * PARTITIONS / per_second / PACE_S
        return cls(
            PACE_S * slower,
            queue_clients.PACE_S * slower,
            min(readers.SAMPLE_PAUSE_S * slower, SAMPLE_PAUSE_MAX_S),
        )


class SharedHistory(QueueHistory):
    """Queue work told in the lines of a history that others write to."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.events = history.events
        self._history = history

    def add(self, kind: str, **fields: Any) -> None:
        self._history.add(kind, **fields)


@dataclass
class Judgement:
    """What both checkers found, and what was counted."""

    log: logcheck.Verdict
    queue: queuecheck.Verdict
    errors: Counter[str]
    events: list[Event] = field(default_factory=list[Event])
    spoken: list[str] = field(default_factory=list[str])
    """What clients of other protocols found broken."""
    spoken_counts: Counter[str] = field(default_factory=Counter[str])

    @property
    def is_clean(self) -> bool:
        return self.log.is_clean and self.queue.is_clean and not self.spoken

    @property
    def acked(self) -> int:
        return self.log.acked + self.queue.published


class Round:
    """Work from `begin()` to `end()`, which judges it."""

    def __init__(
        self,
        number: int,
        site: Site,
        http: Http,
        history: History,
        rng: random.Random,
        load: Load,
        protocols: Sequence[str] = (),
    ) -> None:
        """`protocols`: those beside HTTP that have a client each."""
        self.log = f"log-{number}"
        self.queue = f"queue-{number}"
        self.history = history
        self.tells = SharedHistory(history)
        self._site = site
        self._http = http
        self._rng = rng
        self._load = load
        self.took_s: dict[str, float] = {}
        """The parts of its end."""
        self._publishers: list[Publisher] = []
        self._producers: list[Producer] = []
        self._consumers: list[Consumer] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: list[asyncio.Task[None]] = []
        """Of all but consumers."""
        self._speakers = Speakers(number, site, http, protocols)
        self._reader = Reader(
            site, http, self.log, history, rng, sample_pause_s=load.sample_pause_s
        )

    @property
    def topics(self) -> dict[str, int]:
        """With how many replicas each has."""
        replicas = min(REPLICAS, len(self._site.members))
        return {self.log: replicas, self.queue: replicas, **self._speakers.topics}

    async def make(self) -> None:
        """The topics and groups."""
        topic = {"name": self.log, "num_partitions": PARTITIONS, "replication_factor": REPLICAS}
        await queue_run.until(self._http, self._site, "POST", "/topics", topic)
        await queue_run.make(self._http, self._site, self.tells, self.queue)
        await self._speakers.make()

    def begin(self) -> None:
        site, http = self._site, self._http
        self._publishers = [
            Publisher(
                *(n, site, http, self.log, PARTITIONS, self.history, self._rng),
                pace_s=self._load.pace_s,
                batch=BATCH,
            )
            for n in range(PUBLISHERS)
        ]
        shared = (site, http, self.tells, self._rng)
        self._producers = [
            Producer(
                *(n, self.queue, queue_run.PARTITIONS, *shared), pace_s=self._load.queue_pace_s
            )
            for n in range(PRODUCERS)
        ]
        self._consumers = [
            Consumer(n, group, self.queue, *shared)
            for group in queue_run.GROUPS
            for n in range(MEMBERS)
        ]
        workers = [*self._publishers, self._reader, *self._producers, *self._consumers]
        self._tasks = [asyncio.create_task(worker.run()) for worker in workers]
        self._sending = self._tasks[: -len(self._consumers)]
        self._speakers.begin()

    def check_workers(self) -> None:
        """Raises what one of them raised."""
        for task in self._tasks:
            if task.done():
                task.result()
        self._speakers.check()

    async def end(self) -> Judgement:
        """Nothing more is published; all that is there is consumed, read and judged.
        Raises ClusterError."""
        for worker in (*self._publishers, *self._producers, self._reader):
            worker.stop()
        self._speakers.stop()
        for consumer in self._consumers:
            consumer.is_calm = True
        began = time.monotonic()
        try:
            await _end_of(self._sending)
            await queue_run.drain(self._http, self._site, self.queue)
        finally:
            for consumer in self._consumers:
                consumer.stop()
        await _end_of(self._tasks)
        await self._speakers.end()
        began = self._took("drain", began)
        await queue_run.collect_dead(self._http, self._site, self.tells, self.queue)
        await self._reader.read_everything()
        began = self._took("read", began)
        judged = self.judge()
        self._took("judge", began)
        return judged

    def _took(self, part: str, began: float) -> float:
        now = time.monotonic()
        self.took_s[part] = now - began
        return now

    def judge(self, *, is_whole: bool = True) -> Judgement:
        """Without its end, a history can't show that something is missing at the end."""
        events = self.history.events
        log, queue = logcheck.check(events), queuecheck.check(events, LIMITS)
        if not is_whole:
            log.lost = 0
            for found in (log, queue):
                found.violations = [v for v in found.violations if " was never " not in v.text]
        errors: Counter[str] = Counter()
        for worker in (*self._publishers, *self._producers, *self._consumers):
            errors.update(worker.errors)
        spoken = self._speakers
        return Judgement(log, queue, errors, events, spoken.problems, spoken.counts)

    async def abandon(self) -> None:
        """End the workers, whatever they do."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._speakers.abandon()

    async def delete(self) -> None:
        """The topics of a round that was judged are of no use any more."""
        for topic in (self.log, self.queue):
            await self._http.ask("DELETE", f"{self._site.nodes[0].url}/topics/{topic}")
        await self._speakers.delete()
        self.history.note("deleted", after_s=time.monotonic())


async def _end_of(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Raises ClusterError, and what one of them raised."""
    try:
        async with asyncio.timeout(CLIENTS_END_S):
            await asyncio.gather(*tasks)
    except TimeoutError:
        raise ClusterError("clients do not come to an end") from None

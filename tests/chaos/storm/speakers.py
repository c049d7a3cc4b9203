"""Clients of streams, and of other protocols, in a storm: a publisher and a consumer of each, on a
topic of its own.

They are those of `tests.protocols`, each on a thread, and go to another node when one does not do
what they ask. What they were told is held against what is stored in the end: nothing that was
confirmed is lost, and nothing is acked twice.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from tests.chaos import queue_run
from tests.chaos.cluster import ClusterError
from tests.chaos.http import Http, NoAnswer
from tests.chaos.storm.site import Site
from tests.protocols.client import Client, Door, Line, Unreachable
from tests.protocols.duplex import DuplexClient
from tests.protocols.ledger import Ledger
from tests.protocols.redis_py import RedisPy
from tests.protocols.stream import Library
from tests.protocols.stubs import Stubs

LISTENERS = ("redis", "h2", "grpc")
"""Those that have a port of their own."""
PROTOCOLS: dict[str, type[Client]] = {
    "redis": RedisPy,
    "h2": DuplexClient,
    "grpc": Stubs,
    "stream": Library,
}
REPLICAS_MAX = 3
LINES = 5
"""Of one publish."""
PACE_S = 0.2
RETRY_S = 0.05
GIVE_UP_S = 60.0
LEVEL, LEVEL_S = 2, 60.0
"""What subscriptions need."""
PAGE = 1000


class Speaker:
    """Of one protocol, from `begin()` until both its threads have ended."""

    def __init__(self, protocol: str, number: int, site: Site) -> None:
        self.protocol = protocol
        self.topic = f"spoken-{protocol}-{number}"
        self.group = "listeners"
        self.kind = PROTOCOLS[protocol]
        self.ledger = Ledger(stores_once=self.kind.stores_once)
        self.is_told = threading.Event()
        """Nothing more is published."""
        self.is_over = threading.Event()
        self._site = site
        self._turn = number

    def publish(self) -> None:
        client = self.kind(self.topic, self.group, 0)
        number = 0
        while not self.is_told.wait(PACE_S):
            left = [Line(number + at, f"{self.protocol} {'x' * 40}") for at in range(LINES)]
            number += LINES
            self.ledger.begin(left)
            give_up = time.monotonic() + GIVE_UP_S
            while left and time.monotonic() < give_up:
                told = client.publish(self._door(), left)
                self.ledger.told(told)
                left = [line for line in left if not told.stored[line.number]]
                if left:
                    time.sleep(RETRY_S)

    def consume(self) -> None:
        client = self.kind(self.topic, self.group, 1)
        while not self.is_over.is_set():
            try:
                client.consume(self._door(), self.ledger, self.is_over)
            except Unreachable:
                self.is_over.wait(RETRY_S)

    def _door(self) -> Door:
        """The next node's."""
        self._turn += 1
        members = list(self._site.members)
        node = members[self._turn % len(members)]
        place = urlsplit(node.url)
        ports = node.listeners
        return Door(
            *(str(place.hostname), int(place.port or 0)),
            *(ports.get(name, 0) for name in LISTENERS),
        )


class Speakers:
    """Of one round: of each protocol that is asked for."""

    def __init__(self, number: int, site: Site, http: Http, protocols: Sequence[str]) -> None:
        self._site = site
        self._http = http
        self.all = [Speaker(protocol, number, site) for protocol in protocols]
        self.problems: list[str] = []
        self.counts: Counter[str] = Counter()
        self._pool: ThreadPoolExecutor | None = None
        self._publishing: list[Future[None]] = []
        self._consuming: list[Future[None]] = []

    @property
    def topics(self) -> dict[str, int]:
        replicas = min(REPLICAS_MAX, len(self._site.members))
        return {speaker.topic: replicas for speaker in self.all}

    async def make(self) -> None:
        """Topics of one partition, and groups in which no message is ever dead.
        Raises ClusterError."""
        if self.all:
            await self._level()
        for speaker in self.all:
            topic = {"name": speaker.topic, "num_partitions": 1}
            topic["replication_factor"] = self.topics[speaker.topic]
            await queue_run.until(self._http, self._site, "POST", "/topics", topic)
            path = f"/groups/{speaker.group}"
            await queue_run.until(self._http, self._site, "PUT", path, {"max_attempts": 0})

    def begin(self) -> None:
        if self.all:
            self._pool = ThreadPoolExecutor(2 * len(self.all))
            self._publishing = [self._pool.submit(one.publish) for one in self.all]
            self._consuming = [self._pool.submit(one.consume) for one in self.all]

    def check(self) -> None:
        """Raises what a thread raised."""
        for one in (*self._publishing, *self._consuming):
            if one.done():
                one.result()

    def stop(self) -> None:
        for speaker in self.all:
            speaker.is_told.set()

    async def end(self) -> None:
        """All is consumed and judged. Raises ClusterError."""
        self.stop()
        try:
            for one in self._publishing:
                await asyncio.wrap_future(one)
            for speaker in self.all:
                await self._drained(speaker)
        finally:
            for speaker in self.all:
                speaker.is_over.set()
        for one in self._consuming:
            await asyncio.wrap_future(one)
        for speaker in self.all:
            values = await self._values(speaker)
            found = speaker.ledger.problems(values)
            self.problems += [f"{speaker.protocol}: {text}" for text in found]
            self.counts[f"{speaker.protocol} published"] += speaker.ledger.confirmed.total()
            self.counts[f"{speaker.protocol} acked"] += speaker.ledger.acked.total()
            self.counts[f"{speaker.protocol} in doubt"] += speaker.ledger.in_doubt.total()

    async def abandon(self) -> None:
        """End the threads, whatever was published."""
        for speaker in self.all:
            speaker.is_told.set()
            speaker.is_over.set()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown)

    async def delete(self) -> None:
        for speaker in self.all:
            await self._http.ask("DELETE", f"{self._site.nodes[0].url}/topics/{speaker.topic}")

    async def _level(self) -> None:
        ends = time.monotonic() + LEVEL_S
        while time.monotonic() < ends:
            told = await queue_run.until(self._http, self._site, "GET", "/v1/version", None)
            if told.get("level", 0) >= LEVEL:
                return
            await asyncio.sleep(0.2)
        raise ClusterError(f"the cluster does not finish level {LEVEL}")

    async def _drained(self, speaker: Speaker) -> None:
        path = f"/groups/{speaker.group}?topic={speaker.topic}"
        ends = time.monotonic() + queue_run.DRAIN_S
        left: object = None
        while time.monotonic() < ends:
            try:
                url = self._site.running()[0].url
                answer = await self._http.ask("GET", url + path)
                rows: list[dict[str, Any]] = answer.body.get("partitions", [])
                left = [row for row in rows if row["lag"] or row["in_flight"]] or (
                    None if rows else answer.body
                )
            except NoAnswer as error:
                left = error
            if not left:
                return
            self.check()
            await asyncio.sleep(0.3)
        raise ClusterError(f"{speaker.topic} is not consumed: {left}")

    async def _values(self, speaker: Speaker) -> list[bytes]:
        found: list[bytes] = []
        at = 0
        while True:
            path = f"/topics/{speaker.topic}/partitions/0/messages?offset={at}&limit={PAGE}"
            page = await queue_run.until(self._http, self._site, "GET", path, None)
            found += [message["value"].encode() for message in page["messages"]]
            if page["next_offset"] <= at or not page["messages"]:
                return found
            at = page["next_offset"]

"""Queue chaos against fronts over one node: an honest one passes, liars are caught."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from goqueue.wire.errors import GoQueueError
from node.api.claims import NOBODY, Claim
from node.api.dead_letters import DeadPage
from node.api.queue import Received, SettleRequest, SettleView
from node.broker.node import NodeBroker
from tests.chaos import queue_run
from tests.chaos.cluster import Cluster, Node
from tests.chaos.http import Http
from tests.chaos.queue_clients import Consumer, Producer
from tests.chaos.two_fronts import two_fronts
from tests.check.queuecheck import Verdict, check
from tests.check.queuehistory import QueueHistory
from tests.one_node import one_node

LIMITS = replace(queue_run.LIMITS, late_s=30.0)
"""How soon a node answers is not what is tested."""
ENOUGH = {"published": 60, "acked": 120, "requeued": 4, "dead": 2}
"""What a history has at least, each group what concerns groups, before it is judged."""


class Liar:
    """In the place of some of a broker's methods: lies, now and then, as it is told to."""

    def __init__(self, broker: NodeBroker) -> None:
        self.fault = ""
        self._count = 0
        self._settle = broker.receipts.settle
        self._receive = broker.queue.receive
        self._dead_letters = broker.letters.dead_letters
        broker.receipts.settle = self.settle  # type: ignore[method-assign]
        broker.queue.receive = self.receive  # type: ignore[method-assign]
        broker.letters.dead_letters = self.dead_letters  # type: ignore[method-assign]

    def _lies(self, fault: str) -> bool:
        self._count += 1
        return fault == self.fault and self._count % 5 == 0

    async def settle(
        self,
        requests: Sequence[SettleRequest],
        group: str | None = None,
        claim: Claim = NOBODY,
    ) -> list[SettleView | GoQueueError]:
        """`forget acks` answers an ack, and gives the message back."""
        found = await self._settle(
            [
                structs.replace(r, action="release")
                if r.action == "ack" and self._lies("forget acks")
                else r
                for r in requests
            ],
            group,
            claim,
        )
        return [
            structs.replace(view, outcome="acked")
            if isinstance(view, SettleView) and request.action == "ack"
            else view
            for request, view in zip(requests, found, strict=True)
        ]

    async def receive(self, *args: Any, **options: Any) -> Received:
        """`miscount` tells another attempt."""
        found = await self._receive(*args, **options)
        if found and self._lies("miscount"):
            return Received(
                structs.replace(message, attempt=message.attempt + 1) for message in found
            )
        return found

    async def dead_letters(self, *args: Any, **options: Any) -> DeadPage:
        """`hide deaths` lists nothing."""
        page = await self._dead_letters(*args, **options)
        return DeadPage([], None, 0, {}) if self.fault == "hide deaths" else page


@dataclass
class Stage:
    """Fronts over one broker, playing a cluster."""

    liar: Liar
    cluster: Cluster
    http: Http

    async def work(self) -> Verdict:
        """Load until there is enough to judge, drain, judgement."""
        history, rng = QueueHistory(), random.Random(1)
        await queue_run.make(self.http, self.cluster, history)
        shared = (self.cluster, self.http, history, rng)
        producers = [Producer(n, queue_run.TOPIC, queue_run.PARTITIONS, *shared) for n in range(2)]
        consumers = [Consumer(0, group, queue_run.TOPIC, *shared) for group in queue_run.GROUPS]
        workers: list[Producer | Consumer] = [*producers, *consumers]
        working = [asyncio.create_task(worker.run()) for worker in workers]
        while not has_enough(history):  # noqa: ASYNC110 - any condition: there is no event for it
            await asyncio.sleep(0.1)
        for producer in producers:
            producer.stop()
        for consumer in consumers:
            consumer.is_calm = True
        await queue_run.drain(self.http, self.cluster)
        for consumer in consumers:
            consumer.stop()
        await asyncio.gather(*working)
        await queue_run.collect_dead(self.http, self.cluster, history)
        return check(history.events, LIMITS)


def has_enough(history: QueueHistory) -> bool:
    """Counts what was done: how long that takes is up to the machine."""
    groups = {event["op"]: event["group"] for event in history if event["type"] == "settle"}
    counts = Counter(event["type"] for event in history)
    settled = Counter(
        (groups[event["op"]], event["outcome"]) for event in history if event["type"] == "settled"
    )
    return counts["published"] >= ENOUGH["published"] and all(
        settled[group, outcome] >= ENOUGH[outcome]
        for group in queue_run.GROUPS
        for outcome in ("acked", "requeued", "dead")
    )


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with one_node() as node, two_fronts(node.broker, tmp_path) as (_, cluster):
        await node.broker.topics.create_topic(
            queue_run.TOPIC, {"partitions": queue_run.PARTITIONS, "replication_factor": 1}
        )  # as its nodes are one
        http = Http()
        yield Stage(Liar(node.broker), cluster, http)
        await http.close()


async def test_an_honest_queue_keeps_every_promise(stage: Stage) -> None:
    verdict = await stage.work()

    assert list(verdict.lines()) == []
    assert verdict.published > 50 and verdict.settles["acked"] > 100
    assert verdict.redeliveries and all(verdict.dead.values())


@pytest.mark.parametrize(
    ("fault", "rule"), [("forget acks", "G3"), ("miscount", "Q1"), ("hide deaths", "Q2")]
)
async def test_a_lying_queue_is_caught(stage: Stage, fault: str, rule: str) -> None:
    stage.liar.fault = fault

    assert rule in (await stage.work()).rules()


async def test_a_slow_producer_that_is_told_to_stop_publishes_nothing_more() -> None:
    http, history = Http(), QueueHistory()
    cluster = Cluster(Path(), 1)
    cluster.nodes = [Node("n", "http://127.0.0.1:1", [], 0)]
    producer = Producer(1, "t", 4, cluster, http, history, random.Random(1), pace_s=100.0)
    running = asyncio.create_task(producer.run())
    await asyncio.sleep(0)

    producer.stop()

    await asyncio.wait_for(running, 30)
    assert history.events == []
    await http.close()

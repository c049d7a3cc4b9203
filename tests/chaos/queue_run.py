"""A queue on a running cluster whose leaders are killed: load, kills, drain, judgement.

Exit status: 0 good, 1 a promise was broken, 2 the cluster failed, 4 nothing was shown.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.cluster import Cluster, ClusterError
from tests.chaos.http import Http, NoAnswer
from tests.chaos.nemesis import Nemesis
from tests.chaos.queue_clients import Consumer, Producer
from tests.chaos.report import quantile
from tests.check.history import History
from tests.check.queuecase import Case
from tests.check.queuecheck import Verdict, check
from tests.check.queuehistory import QueueHistory
from tests.check.queuerules import Limits

TOPIC = "queue"
PARTITIONS = 4
REPLICAS_MAX = 3
KILL_EVERY_S = 5.0
DOWN_S = (1.0, 2.0)
DRAIN_S = 120.0
MINUTES = 2.0
PRODUCERS = 3
MEMBERS = 3
"""Consumers of each group."""
GROUPS: dict[str, dict[str, Any]] = {
    "plain": {"max_attempts": 3, "ordering": "none", "visibility_ms": 4000},
    "keyed": {"max_attempts": 3, "ordering": "key", "visibility_ms": 3000},
}
LIMITS = Limits(clock_s=0.1, late_s=2.0, calm_s=10.0)


async def run(options: argparse.Namespace, folder: Path) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    print(f"seed {seed}, folder {folder}", flush=True)
    cluster, http = Cluster(folder, options.nodes), Http()
    with QueueHistory(folder / "queue.jsonl") as history, History() as kills:
        nemesis = Nemesis(cluster, http, TOPIC, kills, rng, down_s=DOWN_S, between_s=(0.0, 0.0))
        try:
            await cluster.start()
            await make(http, cluster, history)
            await nemesis.wait_until_healthy()
            shared = (cluster, http, history, rng)
            producers = [Producer(n, TOPIC, PARTITIONS, *shared) for n in range(PRODUCERS)]
            consumers = [
                Consumer(n, group, TOPIC, *shared) for group in GROUPS for n in range(MEMBERS)
            ]
            struck = await _load(options, nemesis, history, producers, consumers)
            await collect_dead(http, cluster, history)
        finally:
            await http.close()
            await cluster.stop()
        return _conclude(history, struck, [*producers, *consumers])


async def make(http: Http, cluster: Cluster, history: QueueHistory, name: str = TOPIC) -> None:
    """The topic and its groups."""
    replicas = min(REPLICAS_MAX, len(cluster.nodes))
    topic = {"name": name, "num_partitions": PARTITIONS, "replication_factor": replicas}
    await until(http, cluster, "POST", "/topics", topic)
    for group, settings in GROUPS.items():
        body = {
            "max_attempts": settings["max_attempts"],
            "ordering": settings["ordering"],
            "visibility_timeout": settings["visibility_ms"],
        }
        await until(http, cluster, "PUT", f"/groups/{group}", body)
        history.group(group, **settings)


async def until(http: Http, cluster: Cluster, method: str, path: str, body: object) -> Any:
    """Ask any node until it is done."""
    said: object = None
    for number in range(150):
        node = cluster.running()[number % len(cluster.running())]
        try:
            answer = await http.ask(method, node.url + path, json=body)
            said = answer.body
            if answer.status < 300 or answer.status == 409:
                return answer.body
        except NoAnswer as error:
            said = error
        await asyncio.sleep(0.2)
    raise ClusterError(f"{method} {path}: {said}")


async def _load(
    options: argparse.Namespace,
    nemesis: Nemesis,
    history: QueueHistory,
    producers: list[Producer],
    consumers: list[Consumer],
) -> int:
    """Work and kills for the time asked for, then consumers alone until nothing is left."""
    kills = 0
    failure: ClusterError | None = None
    async with asyncio.TaskGroup() as tasks:
        for producer in producers:
            tasks.create_task(producer.run())
        for consumer in consumers:
            tasks.create_task(consumer.run())
        await asyncio.sleep(2)
        ends = time.monotonic() + 60 * (options.minutes or MINUTES)
        try:
            while time.monotonic() < ends:
                begun = time.monotonic()
                history.trouble("kill")
                hit = await nemesis.strike()
                history.trouble("healthy", node=hit)
                kills += 1
                print(f"kill {kills}: {hit}, {_progress(history)}", flush=True)
                await asyncio.sleep(max(0.0, begun + KILL_EVERY_S - time.monotonic()))
            for producer in producers:
                producer.stop()
            for consumer in consumers:
                consumer.is_calm = True
            await drain(nemesis.http, nemesis.cluster)
        except ClusterError as error:
            failure = error
        for worker in (*producers, *consumers):
            worker.stop()
    if failure is not None:
        raise failure
    return kills


def _progress(history: QueueHistory) -> str:
    counts = Counter(event["type"] for event in history.events)
    return f"{counts['published']} published, {counts['received']} received"


async def drain(http: Http, cluster: Cluster, topic: str = TOPIC) -> None:
    """Return once no group has anything left, and nothing is delayed."""
    ends = time.monotonic() + DRAIN_S
    left: object = None
    calm = 0
    while time.monotonic() < ends:
        left = await _left(http, cluster, topic)
        calm = 0 if left else calm + 1
        if calm == 3:
            return
        await asyncio.sleep(0.5)
    raise ClusterError(f"not drained within {DRAIN_S:.0f} s: {left}")


async def _left(http: Http, cluster: Cluster, topic: str) -> dict[str, Any]:
    url = cluster.running()[0].url
    found: dict[str, Any] = {}
    try:
        delayed = await http.ask("GET", f"{url}/topics/{topic}/delayed")
        if delayed.status != 200 or delayed.body["total"]:
            found["delayed"] = delayed.body
        for group in GROUPS:
            answer = await http.ask("GET", f"{url}/groups/{group}?topic={topic}")
            partitions = answer.body.get("partitions", [])
            busy = [p for p in partitions if p["lag"] or p["in_flight"]]
            if answer.status != 200 or len(partitions) < PARTITIONS or busy:
                found[group] = busy or answer.body
    except NoAnswer as error:
        found["error"] = str(error)
    return found


async def collect_dead(
    http: Http, cluster: Cluster, history: QueueHistory, topic: str = TOPIC
) -> None:
    """All dead letters of every group, page by page."""
    for group in GROUPS:
        after = ""
        count = total = 0
        while True:
            path = f"/groups/{group}/dlq?topic={topic}&limit=500{after}"
            page = await until(http, cluster, "GET", path, None)
            for letter in page["messages"]:
                count += 1
                history.dead(
                    group,
                    letter["partition"],
                    letter["offset"],
                    reason=letter["reason"],
                    attempts=letter["attempts"],
                    redrives=letter.get("redrives") or 0,
                )
            total = page["total"]
            if page["next"] is None:
                break
            after = f"&after={page['next']}"
        if count != total:
            raise ClusterError(f"{group} lists {count} dead letters of {total}")
    history.drained(list(GROUPS))


def _conclude(history: QueueHistory, kills: int, workers: list[Producer | Consumer]) -> int:
    verdict = check(history.events, LIMITS)
    for line in _report(history, verdict, kills):
        print(line)
    errors: Counter[str] = Counter()
    for worker in workers:
        errors += worker.errors
    print(f"errors seen           {dict(sorted(errors.items()))}")
    if not verdict.is_clean:
        return 1
    return 0 if kills and verdict.published and verdict.settles.get("acked") else 4


def _report(history: QueueHistory, verdict: Verdict, kills: int) -> list[str]:
    return [
        *verdict.lines(),
        f"leaders killed        {kills}",
        *verdict.counts(),
        *(f"settled once, {line}" for line in _settled_once(history)),
        *(_late(group, verdict.lateness_s.get(group, [])) for group in GROUPS),
        f"violations            {len(verdict.violations)}   (must be 0)",
    ]


def _late(group: str, lateness_s: list[float]) -> str:
    late = sorted(lateness_s)
    waits = ", each behind those of its key" if GROUPS[group]["ordering"] == "key" else ""
    p50, p99, longest = (quantile(late, at) for at in (0.5, 0.99, 1.0))
    return (
        f"{f'late by, {group}':<22}p50 {p50:.3f} s, p99 {p99:.3f} s, max {longest:.3f} s "
        f"over {len(late)} delayed messages{waits}"
    )


def _settled_once(history: QueueHistory) -> list[str]:
    """Of each group, how the messages that were acked to their publishers ended."""
    case = Case(history.events)
    published = {place for place, message in case.messages.items() if message.publishes}
    lines = []
    for group in GROUPS:
        grants = case.grants[group]
        acks = Counter(place for place in published for g in grants.get(place, ()) if g.done("ack"))
        dead = {letter.place for letter in case.dead[group]}
        once = sum(count == 1 for count in acks.values())
        doubt = published - set(acks) - dead
        lines.append(
            f"{group}: {once} acked once, {sum(c > 1 for c in acks.values())} more than once, "
            f"{len(dead & published)} dead, {len(doubt)} with an ack in doubt, of {len(published)}"
        )
    return lines

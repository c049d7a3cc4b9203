"""Planned stops under load: how long each partition that was handed over was without an ack.

Node after node gets SIGTERM, hands over what it leads, exits and is started again. Told is, for
each partition that it led, the longest time between two acks from the request until the first ack
after the node was gone: what the old leader still acked on its way out does not hide the handover.
Beside it stands what these partitions had in the two seconds before, with nothing done to them.

Exit status: 0 good, 1 a promise was broken, 2 the cluster failed, 3 too slow, 4 too few to tell.
"""

from __future__ import annotations

import argparse
import asyncio
import bisect
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.chaos.cluster import Cluster, ClusterError
from tests.chaos.http import Http
from tests.chaos.nemesis import Nemesis
from tests.chaos.publishers import Publisher
from tests.chaos.readers import Reader
from tests.chaos.report import quantile
from tests.check.history import Event, History
from tests.check.logcheck import Verdict, check

TOPIC = "handed"
PARTITIONS = 6
PUBLISHERS = 4
PACE_S = 0.05
"""A partition is published to up to 80 times a second: so coarse is what is measured."""
BEFORE_S = 2.0
TARGET_P99_S = 0.2
STOPPED = "stopped"


class Stopper(Nemesis):
    """Stops leaders as an operator does, instead of killing them."""

    async def _kill(self) -> str:
        node, led = await self._leader()
        at = time.monotonic()
        try:
            node.stop()
        except ProcessLookupError:
            raise ClusterError(f"{node.id} had died by itself") from None
        await node.gone()
        self.history.add(STOPPED, node=node.id, partitions=led, at=at, until=time.monotonic())
        self._restart(node)
        return node.id


@dataclass(frozen=True, slots=True)
class Gap:
    """The longest time without an ack of a partition that was handed over, infinite where none
    came after; and the longest in the two seconds before."""

    node: str
    partition: int
    seconds: float
    before_s: float


def gaps(events: Iterable[Event]) -> Iterator[Gap]:
    """One for each partition that a stopped node led."""
    listed = list(events)
    acks: dict[int, list[float]] = defaultdict(list)
    for event in listed:
        if event["type"] == "ok":
            acks[event["partition"]].append(event["time"])
    for stop in (event for event in listed if event["type"] == STOPPED):
        for partition in stop["partitions"]:
            times = acks[partition]
            first = bisect.bisect_right(times, stop["at"])
            last = bisect.bisect_right(times, stop["until"])
            seen = [stop["at"], *times[first : last + 1]]
            if last >= len(times):
                seen.append(math.inf)
            before = times[bisect.bisect_left(times, stop["at"] - BEFORE_S) : first]
            yield Gap(stop["node"], partition, _longest(seen), _longest(before))


def _longest(times: Sequence[float]) -> float:
    return max((b - a for a, b in pairwise(times)), default=0.0)


def lines(verdict: Verdict, found: Sequence[Gap], stops_s: Sequence[float]) -> Iterator[str]:
    p50, p99, longest = (quantile([g.seconds for g in found], share) for share in (0.5, 0.99, 1.0))
    ordinary = [gap.before_s for gap in found]
    yield from verdict.lines()
    yield f"acked                 {verdict.acked}"
    yield f"lost                  {verdict.lost}   (must be 0)"
    yield f"violations            {len(verdict.violations)}   (must be 0)"
    yield (
        f"without an ack        p50 {p50:.3f} s, p99 {p99:.3f} s, max {longest:.3f} s "
        f"over {len(found)} partitions handed over"
    )
    yield (
        f"in the {BEFORE_S:.0f} s before       p50 {quantile(ordinary, 0.5):.3f} s, "
        f"p99 {quantile(ordinary, 0.99):.3f} s, max {quantile(ordinary, 1.0):.3f} s"
    )
    said = "pass" if p99 <= TARGET_P99_S else "MISSED"
    yield f"  target p99 <= {TARGET_P99_S} s  {said}"
    yield (
        f"SIGTERM to exit       p50 {quantile(stops_s, 0.5):.2f} s, "
        f"max {quantile(stops_s, 1.0):.2f} s over {len(stops_s)} stops"
    )


async def run(options: argparse.Namespace, folder: Path) -> int:
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    print(f"seed {seed}, folder {folder}", flush=True)
    cluster, http = Cluster(folder, options.nodes), Http()
    with History(folder / "history.jsonl") as history:
        stopper = Stopper(cluster, http, TOPIC, history, rng, between_s=(1.0, 2.0))
        try:
            await cluster.start()
            await _create(http, cluster)
            await stopper.wait_until_healthy()
            reader = Reader(cluster, http, TOPIC, history, rng)
            publishers = [
                Publisher(n, cluster, http, TOPIC, PARTITIONS, history, rng, pace_s=PACE_S)
                for n in range(PUBLISHERS)
            ]
            await _stop_under_load(stopper, publishers, options.transfers)
            await reader.read_everything()
        finally:
            await http.close()
            await cluster.stop()
        return _conclude(history, options.transfers)


async def _create(http: Http, cluster: Cluster) -> None:
    body = {
        "name": TOPIC,
        "num_partitions": PARTITIONS,
        "replication_factor": len(cluster.nodes),
    }
    answer = await http.ask("POST", f"{cluster.nodes[0].url}/topics", json=body)
    if answer.status >= 300:
        raise ClusterError(f"no topic could be created: {answer.body}")


async def _stop_under_load(
    stopper: Stopper, publishers: list[Publisher], transfers_wanted: int
) -> None:
    failure: ClusterError | None = None
    async with asyncio.TaskGroup() as tasks:
        for publisher in publishers:
            tasks.create_task(publisher.run())
        await asyncio.sleep(2)
        try:
            while (found := _handed_over(stopper.history)) < transfers_wanted:
                hit = await stopper.strike()
                print(f"{hit} stopped, {found} handed over before", flush=True)
        except ClusterError as error:
            failure = error
        for publisher in publishers:
            publisher.stop()
    if failure is not None:
        raise failure


def _handed_over(history: History) -> int:
    return sum(len(e["partitions"]) for e in history.events if e["type"] == STOPPED)


def _conclude(history: History, transfers_wanted: int) -> int:
    verdict = check(history)
    found = list(gaps(history.events))
    stops = [e["until"] - e["at"] for e in history.events if e["type"] == STOPPED]
    for line in lines(verdict, found, stops):
        print(line)
    if not verdict.is_clean or not verdict.acked:
        return 1
    if len(found) < transfers_wanted:
        return 4
    return 0 if quantile([gap.seconds for gap in found], 0.99) <= TARGET_P99_S else 3

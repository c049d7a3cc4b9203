"""What a node decides by itself, in one thread: the CPU time of each, without network or disk.

`python -m benchmarks.decisions` prints these rows. Tests count the steps of the same work, which
are alike on every machine; here is what they take on this one. A row is the best of a few rounds,
by the clock of the thread's CPU time, which other programs hardly touch.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from multidict import CIMultiDict, CIMultiDictProxy

from benchmarks.report import Report, Row, Target
from benchmarks.timeline_log import START_MS, LoggedPartition
from coordinator.groups.assignors import sticky
from coordinator.placement.planner import Picture, Site, plan_rebalance
from delivery.config import GroupConfig
from delivery.entries.ops import ACK, Delivered, OpenGroup, Settled, Tick
from delivery.entries.records import AppendBatch, encode_records
from delivery.group.lag import lag_count, lag_ms
from delivery.lookup.message_states import STATES, offsets_in
from goqueue.wire.batch import encode_columns
from goqueue.wire.types import NodeId, PartitionId, TopicId
from log.config import StorageConfig
from log.disk.files import OsDisk
from log.entry import EntryKind
from node.api.traces import EventsWanted
from node.http.auth.authenticator import Authenticator
from node.lookup.event_reader import EventReader
from node.partition.host import PartitionHost
from tests.one_node import Keys, cluster_of, one_node

SECTION = "What a node decides by itself"
ROUNDS = 5
PENDING, BATCH = 1_000_000, 50_000
DUE, DUE_BATCH = 10_000, 1000
CHECKS = 1000


def main() -> None:
    asyncio.run(measure(Report()))


async def measure(report: Report) -> None:
    """Add a row for each."""

    def add(name: str, took_s: float, most: float, unit: str = "ms") -> None:
        scale = {"ms": 1e3, "µs": 1e6}[unit]
        report.add(SECTION, Row(name, took_s * scale, unit, Target.at_most(most, unit)))

    with partition() as found:
        fill(found)
        queue, (group,) = found.state.queue, found.state.queue.groups.values()
        took_s = best_s(lambda: (lag_count(group), lag_ms(group, found.now_ms)))
        add("lag and age, 1,000,000 messages", took_s, 10)
        took_s = best_s(lambda: [offsets_in(queue, state, group) for state in STATES])
        add("the sets of all states, 1,000,000 messages", took_s, 10)
    add("10,000 delayed messages released in one entry", release_s(), 500)
    add("2,000 partitions planned over six nodes", best_s(plan, 1), 1000)
    add("5,000 partitions of one shared by 1,000 members", best_s(share, 2), 500)
    add("a key that was checked before", await check_s(), 20, "µs")
    add("the longest that a read of 20,000 events holds the loop", await held_s(), 2)


@contextmanager
def partition() -> Iterator[LoggedPartition]:
    with tempfile.TemporaryDirectory() as folder:
        storage = StorageConfig(watermark_percent=0, watermark_bytes=0)
        found = LoggedPartition(OsDisk(), folder, storage)
        found.do(OpenGroup(1, "g", 1, GroupConfig(), 0))
        try:
            yield found
        finally:
            found.close()


def fill(found: LoggedPartition) -> None:
    """A million messages, of which five thousand are settled."""
    for _ in range(PENDING // BATCH):
        found.publish(BATCH)
    for first in range(0, 5000, 1000):
        offsets = list(range(first, first + 1000))
        lease = found.do(Delivered(1, "a", 1000, offsets))
        found.do(Settled(1, ACK, [(lease, offsets)]))


def release_s() -> float:
    """Seconds of the entry by whose log time all of them are due."""
    with partition() as found:
        for _ in range(DUE // DUE_BATCH):
            due_ms = [START_MS + 60_000 + row for row in range(DUE_BATCH)]
            batch = encode_columns([b"v"] * DUE_BATCH, deliver_at_ms=due_ms)
            body = b"".join(encode_records([AppendBatch(batch, DUE_BATCH, 0)]))
            found._apply(EntryKind.RECORDS, body, found.state.next_offset, DUE_BATCH)
        found.now_ms += 62_000
        took_s = best_s(lambda: found.do(Tick()), 1)
        if found.state.queue.released != DUE:
            raise RuntimeError(f"{found.state.queue.released} of {DUE} were released")
        return took_s


def plan() -> object:
    nodes = [NodeId(f"n{at}") for at in range(6)]
    desired = {
        (topic, number): tuple(nodes[(topic + number + at) % 5] for at in range(3))
        for topic in range(1, 41)
        for number in range(50)
    }
    return plan_rebalance(Picture({n: Site(f"z{at % 3}") for at, n in enumerate(nodes)}, desired))


def share() -> object:
    topics = [TopicId(1, number) for number in range(50)]
    known = [PartitionId(topic, number) for topic in topics for number in range(100)]
    members = {f"m{number:04}": frozenset(topics) for number in range(1000)}
    return sticky(members, known, dict.fromkeys(known, "m0000"))


async def check_s() -> float:
    """Seconds that the gate takes for a request whose key it has seen."""
    async with one_node() as node:
        with ThreadPoolExecutor(1) as workers:
            keys = Keys(cluster_of(node.broker), lambda: START_MS, workers)
            return await _checked_s(keys)


async def _checked_s(keys: Keys) -> float:
    made = await keys.create_key("k", name="", role="producer", prefixes=("t",), expires_ms=0)
    headers = CIMultiDict({"Authorization": f"Bearer {made.secret}"})
    request = cast("Any", SimpleNamespace(headers=CIMultiDictProxy(headers)))
    authenticator, least_s = Authenticator(keys.checks), 1.0
    await authenticator.admit(request, "publish", {"topic": "t"})
    for _ in range(ROUNDS):
        began_s = time.thread_time()
        for _ in range(CHECKS):
            await authenticator.admit(request, "publish", {"topic": "t"})
        least_s = min(least_s, (time.thread_time() - began_s) / CHECKS)
    return least_s


async def held_s() -> float:
    """Seconds of CPU time of the loop's thread at a stretch, at most, in the best of the rounds."""
    with partition() as found:
        for _ in range(60):
            some = found.publish(100)
            lease = found.do(Delivered(1, "a", 1000, some))
            found.do(Settled(1, ACK, [(lease, some)]))
        found.append()
        return min([await longest_s(found) for _ in range(ROUNDS)])


async def longest_s(found: LoggedPartition) -> float:
    wanted = EventsWanted(0, None, 1 << 60, 20_000)
    worst_s, began_s = 0.0, time.thread_time()
    reading = asyncio.ensure_future(EventReader().read(cast("PartitionHost", found), wanted))
    while not reading.done():
        await asyncio.sleep(0)
        now_s = time.thread_time()
        worst_s, began_s = max(worst_s, now_s - began_s), now_s
    if (await reading).count < 10_000:
        raise RuntimeError("fewer events than there are")
    return worst_s


def best_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    took_s: list[float] = []
    for _ in range(rounds):
        began_s = time.thread_time()
        work()
        took_s.append(time.thread_time() - began_s)
    return min(took_s)


if __name__ == "__main__":
    main()

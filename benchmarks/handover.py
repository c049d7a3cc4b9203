"""A node is killed, and what it pushed comes over others: how long consumers wait meanwhile.

All consumers begin at the node that is killed. Every partition gets a message every 20 ms by way of
the others, and waits are counted from when it was stored: what publishers wait for, such as an
election, is no part of them. Polls are measured beside streams, in the same cluster and in turns.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field

from benchmarks.connection import BadAnswer
from benchmarks.processes import DevCluster
from benchmarks.publish import PARTITIONS, create_topic
from benchmarks.report import Report, Row, Target
from goqueue import AsyncClient, AsyncConsumer, GoQueueError, OutgoingMessage, Received

CONSUMERS = 3
EVERY_S = 0.02
BEFORE_S, AFTER_S = 2.0, 5.0
"""Published before the kill, and after it."""
VISIBILITY_S = 10.0
"""Of polls: about as long as it takes to know that a node's streams are lost."""
GIVEN_S = 60.0
LOST_S = 12.0
"""A stream is lost at ten looks of a second at most, by a leader that was chosen meanwhile."""

Place = tuple[int, int]


@dataclass(slots=True)
class Watched:
    """What was published, and when it came first."""

    published: dict[Place, float] = field(default_factory=dict[Place, float])
    """When each was answered."""
    begun: dict[Place, float] = field(default_factory=dict[Place, float])
    """When each was asked for."""
    came: dict[Place, float] = field(default_factory=dict[Place, float])
    killed_s: float = 0.0

    def wait_s(self) -> float:
        """The longest that a message waited for a consumer, from its answer on, of those that were
        asked for after the node was gone: what is answered later may have been given to it."""
        after = [
            (place, at) for place, at in self.published.items() if self.begun[place] > self.killed_s
        ]
        return max(0.0, *(self.came[place] - at for place, at in after))

    def last_s(self) -> float:
        """From the kill until all had come that was stored before."""
        before = [place for place, at in self.begun.items() if at <= self.killed_s]
        return max(0.0, *(self.came[place] - self.killed_s for place in before))

    def missing(self) -> list[Place]:
        return sorted(self.published.keys() - self.came.keys())


async def measure(report: Report, section: str, cluster: DevCluster, *, kills: int) -> None:
    """Rows of streams, and of polls that they are held against. Raises BadAnswer where a message
    that was acknowledged is lost."""
    found: dict[bool, list[Watched]] = {True: [], False: []}
    for number in range(2 * kills):
        stream = number % 2 == 0
        found[stream].append(await _killed(cluster, f"killed-{number}", number % 3, stream=stream))
    polled = statistics.median(one.wait_s() for one in found[False])
    for stream, kind in ((False, "long polls"), (True, "streams")):
        waits = [one.wait_s() for one in found[stream]]
        name = f"a node is killed, {kind}: the longest that a message waits, stored since"
        note = "kills: " + ", ".join(f"{wait:.2f}" for wait in waits) + " s"
        target = Target.at_most(polled, "s") if stream else None
        report.add(section, Row(name, statistics.median(waits), "s", target, note=note))
    for stream, kind in ((False, "long polls"), (True, "streams")):
        lasts = [one.last_s() for one in found[stream]]
        name = f"a node is killed, {kind}: until all is given that was stored before"
        note = "kills: " + ", ".join(f"{last:.2f}" for last in lasts) + " s"
        target = Target.at_most(LOST_S, "s") if stream else None
        report.add(section, Row(name, max(lasts), "s", target, note=note))


async def _killed(cluster: DevCluster, topic: str, node: int, *, stream: bool) -> Watched:
    """Kill the node, watch, start it again."""
    watched, over = Watched(), asyncio.Event()
    await create_topic(cluster, topic)
    urls = [*cluster.urls[node:], *cluster.urls[:node]]
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(AsyncClient(urls[1:], timeout_s=GIVEN_S))
        await publisher.put_group(topic, visibility_timeout=VISIBILITY_S, max_attempts=100)

        async def handle(message: Received) -> None:
            watched.came.setdefault((message.partition, message.offset), time.perf_counter())

        consumers = [
            await stack.enter_async_context(
                AsyncConsumer(urls, topic, topic, mode="shared", stream=stream)
            )
            for _ in range(CONSUMERS)
        ]
        async with asyncio.TaskGroup() as tasks:
            for one in consumers:
                tasks.create_task(one.run(handle))
            publishing = [
                tasks.create_task(_publish(publisher, topic, partition, watched, over))
                for partition in range(PARTITIONS)
            ]
            await asyncio.sleep(BEFORE_S)
            if not watched.came:
                raise BadAnswer(f"{topic}: nothing came before the kill")
            await asyncio.to_thread(cluster.end, node, signal.SIGKILL)
            watched.killed_s = time.perf_counter()
            await asyncio.sleep(AFTER_S)
            over.set()
            await asyncio.gather(*publishing)
            async with asyncio.timeout(GIVEN_S):
                while watched.missing():  # noqa: ASYNC110 - of many
                    await asyncio.sleep(0.05)
            for one in consumers:
                one.stop()
    await asyncio.to_thread(cluster.again, node)
    return watched


async def _publish(
    client: AsyncClient, topic: str, partition: int, watched: Watched, over: asyncio.Event
) -> None:
    message = OutgoingMessage("x" * 100, partition=partition)
    while not over.is_set():
        began_s = time.perf_counter()
        with suppress(GoQueueError):  # nobody has promised anything
            (stored,) = await client.publish_many(topic, [message])
            watched.begun[partition, stored.offset] = began_s
            watched.published[partition, stored.offset] = time.perf_counter()
        await asyncio.sleep(EVERY_S)

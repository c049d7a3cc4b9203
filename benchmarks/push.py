"""Streams of three nodes: how soon a message is pushed, how fast consumers settle what they are
pushed, how long they wait where a node is killed, and what streams cost on which nothing happens.

`python -m benchmarks.push` measures these rows alone.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from benchmarks import alone, handover
from benchmarks.connection import Connection, post
from benchmarks.processes import DevCluster, cpu_seconds, memory_bytes
from benchmarks.publish import Load, create_topic, percentile
from benchmarks.queue_rows import fill
from benchmarks.rabbitmq import RabbitMq
from benchmarks.report import Report, Row, Target
from benchmarks.stream import Stream, finished
from goqueue import AsyncClient, AsyncConsumer, Received

SECTION = "Push: streams of three nodes, 100 B a message"
INTRO = """`Consumer` is the library's `AsyncConsumer` with an empty handler, in one process;
WebSockets are bare clients that ack what comes at once. Each message comes once, and
nothing is left to settle. Where a node is killed, all consumers began at it, and every
partition gets a message every 20 ms by way of the others; a wait is from when a message
was stored until it is given, so elections are no part of it. What the node had given
out and was not settled comes again once its streams are known to be lost (ten looks of
a second), or once the lease of a poll is over (here 10 s as well, 30 s by default)."""
STREAMS, CREDIT = 8, 100
PUSHED_TIMES, POLLED_TIMES = 2.2, 2.0
IDLE_MIB, IDLE_SHARE = 100.0, 0.02
IDLE_S = 20.0
KILLS = 2
"""Of a node, for streams and for polls each: every one takes some 15 s."""
OPENED_AT_ONCE = 100
MIB = 1 << 20


async def measure(
    report: Report, folder: Path, seconds: float, *, quick: bool, with_peers: bool
) -> None:
    report.intros[SECTION] = INTRO
    with DevCluster(3, folder / "push") as cluster:
        await finished(cluster)
        await _pushed(report, cluster, seconds)
        await _settled(report, folder, cluster, seconds, with_peers=with_peers)
    with DevCluster(3, folder / "push") as cluster:
        await finished(cluster)
        await handover.measure(report, SECTION, cluster, kills=1 if quick else KILLS)
    with DevCluster(3, folder / "idle") as cluster:
        await _idle(report, cluster, 3_000 if quick else 10_000)


async def _pushed(report: Report, cluster: DevCluster, seconds: float) -> None:
    """One message at a time, published and pushed by the first node; each is acked."""
    await create_topic(cluster, "pushed")
    link = await Connection.open(cluster.addresses[0])
    request = post(
        "/v1/topics/pushed/messages",
        b'{"messages":[{"value":"%s"}]}' % (b"x" * 100),
        "application/json",
    )
    published: list[float] = []
    pushed: list[float] = []

    async def publish_one() -> float:
        began = time.perf_counter()
        await link.ask(request)
        return time.perf_counter() - began

    async with (
        aiohttp.ClientSession() as session,
        Stream.open(session, cluster.urls[0], "pushed", 10) as stream,
    ):
        until = time.perf_counter() + max(2.0, seconds)
        while time.perf_counter() < until:
            began = time.perf_counter()
            asking = asyncio.ensure_future(publish_one())
            messages = (await stream.next("messages"))["messages"]
            pushed.append(time.perf_counter() - began)
            published.append(await asking)
            await stream.ack(messages)
            await stream.next("settled")
    link.close()
    own, all_of_it = percentile(published, 0.5), percentile(pushed, 0.5)
    note = f"{own * 1e3:.2f} ms, {all_of_it * 1e3:.2f} ms until it is pushed, {len(pushed):,} times"
    target = Target.at_most(PUSHED_TIMES, "times")
    name = "published to a subscriber that waits, p50"
    report.add(SECTION, Row(name, all_of_it / own, "times", target, note=note))


async def _settled(
    report: Report, folder: Path, cluster: DevCluster, seconds: float, *, with_peers: bool
) -> None:
    """The same backlog three times: the library's consumer with polls and with streams, and bare
    WebSockets beside RabbitMQ's."""
    count = round(max(2.0, seconds) * 10_000)
    polled = await _consumed(cluster, "polled", count, stream=False)
    streamed = await _consumed(cluster, "streamed", count, stream=True)
    _add(report, f"Consumer, long polls, consumers: {STREAMS}", polled)
    twice = Target.at_least(POLLED_TIMES * polled.rate, "msg/s")
    note = f"{streamed.rate / polled.rate:.2f} times that with long polls"
    _add(report, f"Consumer, streams: {STREAMS}", streamed, twice, note)
    bare = await _bare(cluster, "bare", count)
    target: Target | None = None
    if with_peers and RabbitMq.installed():
        with RabbitMq(folder / "rabbitmq") as rabbitmq:
            peer = await rabbitmq.settle(STREAMS, CREDIT, 100, count, max(2.0, seconds))
        _add(report, f"RabbitMQ quorum queue ×3, prefetch {CREDIT}, consumers: {STREAMS}", peer)
        target = Target.at_least(peer.rate, "msg/s")
    _add(report, f"WebSockets, credit {CREDIT}, acked at once, streams: {STREAMS}", bare, target)


async def _consumed(cluster: DevCluster, topic: str, count: int, *, stream: bool) -> Load:
    await create_topic(cluster, topic)
    await fill(cluster, topic, count)
    seen: Counter[str] = Counter()
    done, times = asyncio.Event(), list[float]()

    async def handle(message: Received) -> None:
        seen[message.id] += 1
        times.append(time.perf_counter())
        if len(seen) == count:
            done.set()

    before = cpu_seconds(cluster.pids())
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(AsyncClient(cluster.urls))
        consumers = [
            await stack.enter_async_context(
                AsyncConsumer(client, topic, topic, prefetch=CREDIT, mode="shared", stream=stream)
            )
            for _ in range(STREAMS)
        ]
        async with asyncio.TaskGroup() as tasks:
            for one in consumers:
                tasks.create_task(one.run(handle))
            await done.wait()
            for one in consumers:
                one.stop()
    cpu_s = cpu_seconds(cluster.pids()) - before
    if set(seen.values()) != {1}:
        raise RuntimeError(f"{sum(seen.values())} came of {count}")
    async with AsyncClient(cluster.urls) as client:
        left = (await client.lag(topic)).total_lag
    if left:
        raise RuntimeError(f"{left} of {count} are not acked")
    return Load(count, times[-1] - times[0], cpu_s, 0, [0.0])


async def _bare(cluster: DevCluster, topic: str, count: int) -> Load:
    await create_topic(cluster, topic)
    await fill(cluster, topic, count)
    seen: Counter[tuple[int, int]] = Counter()
    settled, over = 0, asyncio.Event()
    before, began = cpu_seconds(cluster.pids()), time.perf_counter()

    async def consume(session: aiohttp.ClientSession, url: str) -> None:
        nonlocal settled
        async with Stream.open(session, url, topic, CREDIT) as stream:
            while not over.is_set():
                frame = await stream.frame()
                if frame["type"] == "messages":
                    seen.update((one["partition"], one["offset"]) for one in frame["messages"])
                    await stream.ack(frame["messages"])
                elif frame["type"] == "settled":
                    settled += sum(one["success"] for one in frame["results"])
                    if settled == count:
                        over.set()
                elif frame["type"] == "error":
                    raise RuntimeError(f"the stream was told {frame}")

    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
        working = [
            tasks.create_task(consume(session, cluster.urls[at % len(cluster.urls)]))
            for at in range(STREAMS)
        ]
        await over.wait()
        took_s = time.perf_counter() - began
        for one in working:
            one.cancel()
    cpu_s = cpu_seconds(cluster.pids()) - before
    if len(seen) != count or set(seen.values()) != {1}:
        raise RuntimeError(f"{sum(seen.values())} came of {count}")
    return Load(count, took_s, cpu_s, 0, [0.0])


class Idle(asyncio.Protocol):
    """A stream of a program that waits: it answers pings, in as few steps as it can."""

    PING, PONG = b"\x89\x00", b"\x8a\x80\x00\x00\x00\x00"

    def __init__(self) -> None:
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost = False
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        subscribe = json.dumps({"type": "subscribe", "topics": ["idle"]}).encode()
        frame = bytes([0x81, 0x80 | len(subscribe), 0, 0, 0, 0]) + subscribe
        transport.write(
            b"GET /v1/groups/idle/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" + frame
        )

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if b'"subscribed"' in data and not self.told.done():
            self.told.set_result(None)
        if self.PING in data:
            self._transport.write(self.PONG)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if not self.told.done():
            self.told.set_exception(exc or ConnectionError("the stream was refused"))


async def _idle(report: Report, cluster: DevCluster, count: int) -> None:
    """What a node takes for its third of so many streams, and has taken after a while."""
    loop = asyncio.get_running_loop()
    await finished(cluster)
    await create_topic(cluster, "idle")
    await asyncio.sleep(3.0)
    before = [memory_bytes(pid, "VmRSS") for pid in cluster.pids()]
    streams: list[Idle] = []
    for first in range(0, count, OPENED_AT_ONCE):
        opened = await asyncio.gather(
            *(
                loop.create_connection(Idle, *cluster.addresses[at % 3])
                for at in range(first, min(first + OPENED_AT_ONCE, count))
            )
        )
        some = [protocol for _transport, protocol in opened]
        await asyncio.gather(*(one.told for one in some))
        streams += some
    await asyncio.sleep(IDLE_S / 4)
    used = [cpu_seconds([pid]) for pid in cluster.pids()]
    await asyncio.sleep(IDLE_S)
    shares = [
        (cpu_seconds([pid]) - one) / IDLE_S for pid, one in zip(cluster.pids(), used, strict=True)
    ]
    more = [
        (memory_bytes(pid, "VmRSS") - one) / MIB
        for pid, one in zip(cluster.pids(), before, strict=True)
    ]
    if lost := sum(one.lost for one in streams):
        raise RuntimeError(f"{lost} of {count} streams were lost")
    name = f"{count:,} idle streams"
    limit = Target.at_most(IDLE_MIB, "MiB")
    report.add(SECTION, Row(f"{name}, more memory a node", max(more), "MiB", limit))
    limit = Target.at_most(IDLE_SHARE * 100, "%")
    report.add(SECTION, Row(f"{name}, CPU of a node", max(shares) * 100, "% of a core", limit))


def _add(
    report: Report, name: str, load: Load, target: Target | None = None, note: str = ""
) -> None:
    report.add(SECTION, Row(name, load.rate, "msg/s", target, load.cpu_us, note))


if __name__ == "__main__":
    alone.run("push", __doc__, "fewer messages and streams", SECTION, measure)

"""Messages that are pushed and acked, over WebSockets and over HTTP/2: the same work both ways."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

import aiohttp

from benchmarks.connection import BadAnswer, Connection, post
from benchmarks.duplex import Http2, Subscriber, publisher
from benchmarks.payloads import Body, Sent, fingerprint, numbered, sample
from benchmarks.processes import DevCluster, cpu_seconds
from benchmarks.publish import PARTITIONS, Load, create_topic, publish
from benchmarks.stream import Stream
from goqueue import AsyncClient
from goqueue.wire.batch import BATCH_MEDIA_TYPE
from goqueue.wire.encoding import encode_columns

PUBLISHERS, READERS, CREDIT = 64, 8, 100
ALL_ACKED_S = 60.0

Publish = Callable[[bytes], Awaitable[None]]


class Reader(Protocol):
    """A subscription that acks what it gets."""

    async def run(self, came: Callable[[list[bytes]], None]) -> None: ...

    async def finish(self) -> None:
        """Return once all that it has acked is confirmed."""
        ...


class Way(Protocol):
    """How messages get in and out."""

    def group(self, topic: str) -> str: ...

    async def publishers(self, stack: AsyncExitStack, topic: str) -> list[Publish]: ...

    async def readers(self, stack: AsyncExitStack, topic: str) -> list[Reader]: ...


class Sockets:
    """Published by HTTP/1.1, pushed over WebSockets."""

    def __init__(self, cluster: DevCluster) -> None:
        self._cluster = cluster

    def group(self, topic: str) -> str:
        return Stream.GROUP

    async def publishers(self, stack: AsyncExitStack, topic: str) -> list[Publish]:
        places = self._cluster.addresses
        links = [await Connection.open(places[at % len(places)]) for at in range(PUBLISHERS)]
        for link in links:
            stack.callback(link.close)
        return [_single(link, topic) for link in links]

    async def readers(self, stack: AsyncExitStack, topic: str) -> list[Reader]:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        urls = self._cluster.urls
        return [
            SocketReader(
                await stack.enter_async_context(
                    Stream.open(session, urls[at % len(urls)], topic, CREDIT)
                )
            )
            for at in range(READERS)
        ]


class SocketReader:
    """Over one WebSocket."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._unsettled = 0
        self._eased = asyncio.Event()

    async def run(self, came: Callable[[list[bytes]], None]) -> None:
        while True:
            frame = await self._stream.frame()
            if frame["type"] == "messages":
                messages = frame["messages"]
                self._unsettled += len(messages)
                came([one["value"].encode() for one in messages])
                await self._stream.ack(messages)
            elif frame["type"] == "settled":
                if not all(one["success"] for one in frame["results"]):
                    raise BadAnswer(f"not settled: {frame}")
                self._unsettled -= len(frame["results"])
                self._eased.set()
            elif frame["type"] == "error":
                raise BadAnswer(f"the stream was told {frame}")

    async def finish(self) -> None:
        while self._unsettled:
            self._eased.clear()
            await self._eased.wait()


class Duplexes:
    """Published and pushed by HTTP/2."""

    def __init__(self, cluster: DevCluster) -> None:
        self._places = cluster.listeners("h2")

    def group(self, topic: str) -> str:
        return f"{topic}.miniqueue"

    async def publishers(self, stack: AsyncExitStack, topic: str) -> list[Publish]:
        return [publisher(link, topic) for link in await self._links(stack, PUBLISHERS)]

    async def readers(self, stack: AsyncExitStack, topic: str) -> list[Reader]:
        links = await self._links(stack, READERS)
        return [Subscriber(link, topic, CREDIT) for link in links]

    async def _links(self, stack: AsyncExitStack, count: int) -> list[Http2]:
        links = [await Http2.open(self._places[at % len(self._places)]) for at in range(count)]
        for link in links:
            stack.callback(link.close)
        return links


class Flow:
    """Messages that are pushed and acked in one way, on a new topic each time."""

    def __init__(self, cluster: DevCluster, kind: str, way: Way) -> None:
        self._cluster = cluster
        self._kind = kind
        self._way = way
        self._times = 0

    async def publish_and_ack(self, seconds: float) -> Load:
        topic = await self._topic()
        async with AsyncExitStack() as stack:
            publishers = await self._way.publishers(stack, topic)
            readers = await self._way.readers(stack, topic)
            return await self._acked(topic, readers, lambda: _publish_all(publishers, seconds))

    async def drain(self, count: int) -> Load:
        topic = await self._topic()
        load = await publish(self._cluster, numbered_bodies(topic, count), 4, 120.0, count)
        async with AsyncExitStack() as stack:
            readers = await self._way.readers(stack, topic)
            return await self._acked(topic, readers, lambda: asyncio.sleep(0, load.sent))

    async def _topic(self) -> str:
        self._times += 1
        topic = f"{self._kind}-{self._times}"
        await create_topic(self._cluster, topic)
        return topic

    async def _acked(
        self, topic: str, readers: Sequence[Reader], work: Callable[[], Awaitable[Sent]]
    ) -> Load:
        """Until all that the work says was published is acked. Raises BadAnswer where something
        else came, or where not all of it is acked."""
        pids, came = self._cluster.pids(), Came()
        cpu_before, began = cpu_seconds(pids), time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(one.run(came.add)) for one in readers]
            sent = await work()
            async with asyncio.timeout(ALL_ACKED_S):
                await came.until(sent.count)
                await asyncio.gather(*(one.finish() for one in readers))
            took_s = time.perf_counter() - began
            for task in reading:
                task.cancel()
        cpu_s = cpu_seconds(pids) - cpu_before
        if came.sent != sent:
            raise BadAnswer(f"{topic}: {sent.count} published, {came.sent.count} came, or others")
        async with AsyncClient(self._cluster.urls) as client:
            left = (await client.lag(self._way.group(topic))).total_lag
        if left:
            raise BadAnswer(f"{topic}: {left} of {sent.count} are not acked")
        return Load(sent.count, took_s, cpu_s, sent.print, [0.0])


class Came:
    """What subscribers were given."""

    def __init__(self) -> None:
        self.sent = Sent()
        self._changed = asyncio.Event()

    def add(self, values: list[bytes]) -> None:
        self.sent = self.sent.plus(Sent(len(values), fingerprint(values)))
        self._changed.set()

    async def until(self, count: int) -> None:
        """Return once so many have come."""
        while self.sent.count < count:
            self._changed.clear()
            await self._changed.wait()


async def _publish_all(publishers: Sequence[Publish], seconds: float) -> Sent:
    """One message after the other by each of them, for so long; no two are equal."""
    endings = sample(88, 32)
    until, sent, at = time.perf_counter() + seconds, Sent(), 0

    async def work(publish_one: Publish) -> None:
        nonlocal sent, at
        while True:
            value, at = b"%012d" % at + endings[at % 32], at + 1
            await publish_one(value)
            sent = sent.plus(Sent(1, fingerprint([value])))
            if time.perf_counter() >= until:
                return

    async with asyncio.TaskGroup() as tasks:
        for publish_one in publishers:
            tasks.create_task(work(publish_one))
    return sent


def _single(link: Connection, topic: str) -> Publish:
    async def publish_one(value: bytes) -> None:
        body = json.dumps({"messages": [{"value": value.decode()}]}).encode()
        _, answer = await link.ask(post(f"/v1/topics/{topic}/messages", body, "application/json"))
        if b'"error"' in answer:
            raise BadAnswer(answer[:300].decode())

    return publish_one


def numbered_bodies(topic: str, count: int, partitions: int = PARTITIONS) -> list[Body]:
    """Requests of one batch each, of which no two messages are equal."""
    values, bodies = numbered(100, count), list[Body]()
    for at, first in enumerate(range(0, count, 1000)):
        some = values[first : first + 1000]
        encoded = encode_columns(some, timestamps_ms=1_736_937_000_000)
        path = f"/v1/topics/{topic}/partitions/{at % partitions}/messages"
        bodies.append(Body(post(path, encoded, BATCH_MEDIA_TYPE), len(some), fingerprint(some)))
    return bodies

"""Protocols beside HTTP: XADD, gRPC's publish stream and the duplex requests of HTTP/2, each
against its like in the same run.

`python -m benchmarks.protocols` measures these rows alone.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import alone, publish_stream, redis_benchmark
from benchmarks.connection import BadAnswer
from benchmarks.flows import CREDIT, PUBLISHERS, READERS, Duplexes, Flow, Sockets, Way
from benchmarks.payloads import Sent, fingerprint, json_bodies, sample
from benchmarks.processes import DevCluster, cpu_seconds
from benchmarks.publish import Load, check_all, create_topic, publish
from benchmarks.redis import Opened, Redis, add_all
from benchmarks.report import Report, Row, Target, number
from benchmarks.stream import finished

SECTION = "Protocols beside HTTP, 100 B a message"
STREAMS = 6
"""Of Redis, one partition each: as many as a topic has by default."""
INTRO = """Rows are medians of three rounds in which both sides take turns, so a machine that is
busy for a while is so for both. redis-benchmark sends to one stream of one partition; clients
that XADD one by one are spread over three nodes and six streams, as those of HTTP are over a
topic of six partitions. `PublishStream` is one stream of `grpc.aio` with up to 1,000 messages
that are not answered; the echo is `grpc.aio` that sends back the same bytes, to the same client.
Over HTTP/2 each message is a `POST /publish/TOPIC`, and is acked on `POST /subscribe/TOPIC`;
beside it, messages are published over HTTP/1.1 and acked on WebSockets. What was stored is read
back, and what was pushed must be what was published, each once, with nothing left to settle."""
ROUNDS = 3
WARM_UP_S = 0.5
WARM_UP_COMMANDS = 8_000
CLIENTS = 64
STORED = 40_000
XADD_TIMES, ONE_BY_ONE_TIMES, ECHO_TIMES, SOCKET_TIMES = 0.3, 1.5, 0.5, 1.0


async def measure(
    report: Report, folder: Path, seconds: float, *, quick: bool, with_peers: bool
) -> None:
    """A protocol whose library is not installed is told of, and has no rows."""
    report.intros[SECTION] = INTRO
    a_round = max(0.5, seconds / 2)
    with DevCluster(1, folder / "protocols") as cluster:
        if _is_there(report, cluster, "redis") and with_peers:
            await _pipelined(report, folder, cluster, a_round)
        if _is_there(report, cluster, "grpc"):
            await _published(report, cluster, a_round)
    with DevCluster(3, folder / "protocols") as cluster:
        await finished(cluster)
        if cluster.listeners("redis"):
            await _one_by_one(report, cluster, a_round)
        if _is_there(report, cluster, "h2"):
            await _acked(report, cluster, a_round)
            await _drained(report, cluster, STORED // 4 if quick else STORED)


def _is_there(report: Report, cluster: DevCluster, name: str) -> bool:
    if cluster.listeners(name):
        return True
    report.tell(f"The listener {name} isn't installed (goqueue-server[{name}]): no rows.")
    return False


# XADD


async def _pipelined(report: Report, folder: Path, cluster: DevCluster, seconds: float) -> None:
    """redis-benchmark's clients on one node, and on a Redis that syncs each write."""
    if not (redis_benchmark.installed() and Redis.installed()):
        report.tell("Redis and redis-benchmark aren't installed (apt install redis): no rows.")
        return
    (value,) = sample(100, 1)
    await create_topic(cluster, "added", partitions=1)
    with Redis(folder / "redis") as redis:
        await redis.ready()
        own = Adder(cluster.listeners("redis")[0], "added", value, cluster.pids())
        peer = Adder(("127.0.0.1", redis.port), "added", value, [redis.pid])
        peers, owns = await in_turns(lambda: peer.add(seconds), lambda: own.add(seconds))
        stored = await redis.stored(b"added")
        if stored != peer.sent:
            raise BadAnswer(f"redis was sent {peer.sent} and has {stored}")
    await check_all(cluster, ["added"], own.sent)
    shape = f"{redis_benchmark.CLIENTS} clients × {redis_benchmark.PIPELINED} pipelined"
    rate = add_row(report, f"Redis, fsync always: XADD, {shape}", peers)
    add_row(report, f"one node: XADD, {shape}", owns, (XADD_TIMES, "Redis'", rate))


class Adder:
    """redis-benchmark on one stream, as many commands as a while takes; the first time warms up."""

    def __init__(
        self, address: tuple[str, int], stream: str, value: bytes, pids: Sequence[int]
    ) -> None:
        self.sent = Sent()
        self._address = address
        self._stream = stream
        self._value = value
        self._pids = pids
        self._rate = 0.0

    async def add(self, seconds: float) -> Load:
        if not self._rate:
            self._rate = (await self._run(WARM_UP_COMMANDS)).rate
        return await self._run(round(self._rate * seconds))

    async def _run(self, count: int) -> Load:
        count = max(1, count // redis_benchmark.PIPELINED) * redis_benchmark.PIPELINED
        cpu_before = cpu_seconds(self._pids)
        rate = await redis_benchmark.add(self._address, self._stream, self._value, count)
        cpu_s = cpu_seconds(self._pids) - cpu_before
        self.sent = self.sent.plus(Sent(count, count * fingerprint([self._value])))
        return Load(count, count / rate, cpu_s, 0, [0.0])


async def _one_by_one(report: Report, cluster: DevCluster, seconds: float) -> None:
    """As many clients wait for each answer; over HTTP to a topic of as many partitions."""
    streams = [f"added-{at}" for at in range(STREAMS)]
    for stream in streams:
        await create_topic(cluster, stream, partitions=1)
    await create_topic(cluster, "single")
    bodies = json_bodies("single", 100, 1)
    places = cluster.listeners("redis")
    opened: list[Opened] = [
        await asyncio.open_connection(*places[at % len(places)]) for at in range(CLIENTS)
    ]
    added = [Sent()] * STREAMS
    published = Sent()

    async def add(seconds: float = seconds) -> Load:
        cpu_before, began = cpu_seconds(cluster.pids()), time.perf_counter()
        names = [stream.encode() for stream in streams]
        times, sent = await add_all(opened, names, 100, seconds)
        took_s = time.perf_counter() - began
        cpu_s = cpu_seconds(cluster.pids()) - cpu_before
        added[:] = [one.plus(more) for one, more in zip(added, sent, strict=True)]
        return Load(len(times), took_s, cpu_s, 0, times)

    async def single(seconds: float = seconds) -> Load:
        nonlocal published
        load = await publish(cluster, bodies, CLIENTS, seconds)
        published = published.plus(load.sent)
        return load

    await single(WARM_UP_S)
    await add(WARM_UP_S)
    singles, adds = await in_turns(single, add)
    for _, writer in opened:
        writer.close()
    await check_all(cluster, ["single"], published)
    for stream, sent in zip(streams, added, strict=True):
        await check_all(cluster, [stream], sent)
    rate = add_row(report, f"three nodes: HTTP, JSON 1 × 100 B, connections: {CLIENTS}", singles)
    name = f"three nodes: XADD one by one to {STREAMS} streams, clients: {CLIENTS}"
    add_row(report, name, adds, (ONE_BY_ONE_TIMES, "HTTP's", rate))


# gRPC


async def _published(report: Report, cluster: DevCluster, seconds: float) -> None:
    """One stream to a node, and one to a server that only sends back what it gets."""
    await create_topic(cluster, "streamed")
    (pid,) = cluster.pids()
    (address,) = cluster.listeners("grpc")
    sent = Sent()

    async def own(seconds: float = seconds) -> Load:
        nonlocal sent
        method = publish_stream.METHOD
        load = await publish_stream.publish(address, method, "streamed", 100, seconds, pid)
        sent = sent.plus(load.sent)
        return load

    async with publish_stream.bare_echo() as (place, echo_pid):

        async def echo(seconds: float = seconds) -> Load:
            method = publish_stream.ECHO_METHOD
            return await publish_stream.publish(place, method, "streamed", 100, seconds, echo_pid)

        await echo(WARM_UP_S)
        await own(WARM_UP_S)
        echoes, owns = await in_turns(echo, own)
    await check_all(cluster, ["streamed"], sent)
    rate = add_row(report, "grpc.aio that echoes, one stream", echoes)
    add_row(report, "one node: PublishStream, one stream", owns, (ECHO_TIMES, "the echo's", rate))


# HTTP/2 and WebSockets


async def _acked(report: Report, cluster: DevCluster, seconds: float) -> None:
    """All the way: published one by one, pushed, acked."""
    ways: dict[str, Way] = {"socket": Sockets(cluster), "h2": Duplexes(cluster)}
    flows = [Flow(cluster, kind, way) for kind, way in ways.items()]
    for flow in flows:
        await flow.publish_and_ack(WARM_UP_S)
    sockets, duplexes = await in_turns(*(partial(flow.publish_and_ack, seconds) for flow in flows))
    shape = f"{PUBLISHERS} publishers, {READERS} streams, credit {CREDIT}"
    rate = add_row(report, f"HTTP and WebSockets, published and acked: {shape}", sockets)
    name = f"HTTP/2, published and acked: {shape}"
    add_row(report, name, duplexes, (SOCKET_TIMES, "the WebSockets'", rate))


async def _drained(report: Report, cluster: DevCluster, count: int) -> None:
    """What was stored before, pushed and acked."""
    ways: dict[str, Way] = {"socket-stored": Sockets(cluster), "h2-stored": Duplexes(cluster)}
    flows = [Flow(cluster, kind, way) for kind, way in ways.items()]
    sockets, duplexes = await in_turns(*(partial(flow.drain, count) for flow in flows))
    shape = f"{count:,} that are stored acked: {READERS} streams, credit {CREDIT}"
    rate = add_row(report, f"WebSockets, {shape}", sockets)
    add_row(report, f"HTTP/2, {shape}", duplexes, (SOCKET_TIMES, "the WebSockets'", rate))


# rows


async def in_turns(*sides: Callable[[], Awaitable[Load]], rounds: int = ROUNDS) -> list[list[Load]]:
    """The loads of each side."""
    found: list[list[Load]] = [[] for _ in sides]
    for _ in range(rounds):
        for side, loads in zip(sides, found, strict=True):
            loads.append(await side())
    return found


def add_row(
    report: Report,
    name: str,
    loads: Sequence[Load],
    against: tuple[float, str, float] | None = None,
) -> float:
    """A row of the rounds' median, which it answers; `against`: at least so many times whose
    rate."""
    rates = [load.rate for load in loads]
    rate, target, note = statistics.median(rates), None, ""
    if against is not None:
        times, whose, other = against
        target = Target(
            f"≥ {times:g} × {whose} {number(other)}", lambda value: value >= times * other
        )
        note = f"{rate / other:.2f} ×; "
    note += f"rounds: {number(min(rates))} to {number(max(rates))}"
    cpu_us = statistics.median(load.cpu_us for load in loads)
    report.add(SECTION, Row(name, rate, "msg/s", target, cpu_us, note))
    return rate


if __name__ == "__main__":
    alone.run("protocols", __doc__, "half a second a round", SECTION, measure)

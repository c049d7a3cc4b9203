"""Rows of protocols beside HTTP: a real node is asked by each, and what is not as it was told fails
the run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from benchmarks import publish_stream
from benchmarks.connection import BadAnswer
from benchmarks.duplex import DATA, END_STREAM, HEADERS, Frame, Http2, encode, take_frames
from benchmarks.flows import Came, Duplexes, Flow, Publish, Sockets, Way, numbered_bodies
from benchmarks.handover import Watched
from benchmarks.payloads import Sent, fingerprint
from benchmarks.processes import DevCluster
from benchmarks.protocols import SECTION, add_row, in_turns
from benchmarks.publish import Load, check, create_topic
from benchmarks.redis import add_all
from benchmarks.redis_benchmark import rate_of
from benchmarks.report import Report
from tests.one_node import one_node

MOMENT_S = 0.02
PROTOCOLS = ("h2", "grpc", "redis")


class Cluster(DevCluster):
    """A node in this process in the place of others."""

    def __init__(self, port: int, listening: dict[str, int]) -> None:
        super().__init__(1, Path("/nonexistent"))
        self.urls = [f"http://127.0.0.1:{port}"]
        self._listening = listening

    def pids(self) -> list[int]:
        return [os.getpid()]

    def listeners(self, name: str) -> list[tuple[str, int]]:
        return [("127.0.0.1", self._listening[name])]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    settings: dict[str, object] = {f"listeners.{name}.enabled": True for name in PROTOCOLS}
    settings |= {f"listeners.{name}.port": 0 for name in PROTOCOLS}
    async with one_node(None, None, **settings) as node:
        await node.broker.upgrade.finish_level()
        ports = {name: node.listeners.of[name].port for name in PROTOCOLS}
        yield Cluster(node.front.port, ports)


@pytest.mark.parametrize("way", [Sockets, Duplexes])
async def test_what_is_published_is_pushed_and_acked(cluster: Cluster, way: type[Way]) -> None:
    flow = Flow(cluster, "t", way(cluster))  # type: ignore[call-arg]

    load = await flow.publish_and_ack(MOMENT_S)

    assert load.count >= 64
    await check(cluster, "t-1", load)


@pytest.mark.parametrize("way", [Sockets, Duplexes])
async def test_what_is_stored_is_pushed_and_acked(cluster: Cluster, way: type[Way]) -> None:
    flow = Flow(cluster, "t", way(cluster))  # type: ignore[call-arg]

    load = await flow.drain(1000)

    assert load.count == 1000


class Untrue(Sockets):
    """Its publishers tell of a message that nobody stores, in the place of the first."""

    async def publishers(self, stack: AsyncExitStack, topic: str) -> list[Publish]:
        publish, *others = await super().publishers(stack, topic)
        told = iter([b"000000000000 another"])
        return [lambda value: publish(next(told, value)), *others]


async def test_another_message_than_was_published_fails_the_run(cluster: Cluster) -> None:
    flow = Flow(cluster, "t", Untrue(cluster))

    with pytest.raises(BadAnswer, match="or others"):
        await flow.publish_and_ack(MOMENT_S)


async def test_a_refused_publish_and_subscription_fail_the_run(cluster: Cluster) -> None:
    link = await Http2.open(cluster.listeners("h2")[0])

    with pytest.raises(BadAnswer, match=r"404.*unknown_topic"):
        await link.ask("/publish/nothing", b"x")
    link.subscribe("/subscribe/nothing?credit=0")
    with pytest.raises(BadAnswer, match="40"):
        while await link.heard():
            pass
    link.close()


async def test_a_request_that_is_asked_again_is_understood(cluster: Cluster) -> None:
    await create_topic(cluster, "t", partitions=1)
    link = await Http2.open(cluster.listeners("h2")[0])

    for _ in range(3):
        await link.ask("/publish/t", b"x")
    link.close()

    await check(cluster, "t", Load(3, 1.0, 0.0, 3 * fingerprint([b"x"]), []))


def test_frames_are_taken_as_they_become_whole() -> None:
    first, second = encode(HEADERS, END_STREAM, 1, b"head"), encode(DATA, 0, 3, b"body")
    received = bytearray(first + second[:-1])

    assert take_frames(received) == [Frame(HEADERS, END_STREAM, 1, b"head")]
    received += second[-1:]
    assert take_frames(received) == [Frame(DATA, 0, 3, b"body")]
    assert not received


async def test_each_message_of_a_publish_stream_is_stored(cluster: Cluster) -> None:
    await create_topic(cluster, "t")
    (address,) = cluster.listeners("grpc")

    load = await publish_stream.publish(
        address, publish_stream.METHOD, "t", 100, MOMENT_S, os.getpid()
    )

    assert load.count >= publish_stream.VALUES
    await check(cluster, "t", load)


async def test_a_message_that_a_publish_stream_refuses_fails_the_run(cluster: Cluster) -> None:
    (address,) = cluster.listeners("grpc")

    with pytest.raises(BadAnswer, match="unknown_topic"):
        await publish_stream.publish(
            address, publish_stream.METHOD, "nothing", 100, MOMENT_S, os.getpid()
        )


async def test_what_was_added_one_by_one_is_in_its_streams(cluster: Cluster) -> None:
    for stream in ("a", "b"):
        await create_topic(cluster, stream, partitions=1)
    (place,) = cluster.listeners("redis")
    opened = [await asyncio.open_connection(*place) for _ in range(3)]

    times, sent = await add_all(opened, [b"a", b"b"], 100, MOMENT_S)
    for _, writer in opened:
        writer.close()

    assert len(times) == sent[0].count + sent[1].count
    for stream, one in zip("ab", sent, strict=True):
        await check(cluster, stream, Load(one.count, 1.0, 0.0, one.print, []))


async def test_a_refused_command_fails_the_run(cluster: Cluster) -> None:
    (place,) = cluster.listeners("redis")
    opened = [await asyncio.open_connection(*place)]

    with pytest.raises(ExceptionGroup) as raised:
        await add_all(opened, [b"no!name"], 100, MOMENT_S)
    opened[0][1].close()
    assert raised.group_contains(RuntimeError, match="XADD was answered")


def test_the_rate_is_read_of_what_redis_benchmark_says() -> None:
    head = '"test","rps","avg_latency_ms"\n'

    assert rate_of(f'WARNING: x\n{head}"XADD s * value a, b","61538.46","12.1"\n') == 61538.46
    for other in ("", head, 'Could not connect\n"XADD","1","2"\n'):
        with pytest.raises(RuntimeError, match="redis-benchmark said"):
            rate_of(other)


def test_bodies_of_numbered_messages_are_each_their_own() -> None:
    bodies = numbered_bodies("t", 2500)

    assert [body.count for body in bodies] == [1000, 1000, 500]
    assert len({body.print for body in bodies}) == 3


async def test_who_waits_for_a_count_is_told_when_it_came() -> None:
    came = Came()
    waiting = asyncio.ensure_future(came.until(3))

    came.add([b"a", b"b"])
    await asyncio.sleep(0)
    assert not waiting.done()
    came.add([b"c"])
    await waiting

    assert came.sent == Sent(3, fingerprint([b"a", b"b", b"c"]))


async def test_sides_take_turns_and_a_row_is_their_median() -> None:
    order: list[str] = []
    rates = {"own": iter([10, 30, 20]), "peer": iter([100, 40, 50])}

    async def side(name: str) -> Load:
        order.append(name)
        return Load(next(rates[name]), 1.0, 0.0, 0, [])

    owns, peers = await in_turns(lambda: side("own"), lambda: side("peer"))
    report = Report(load=0.0)
    peer = add_row(report, "peer", peers)
    add_row(report, "own", owns, (0.3, "the peer's", peer))
    add_row(report, "own again", owns, (0.5, "the peer's", peer))

    assert order == ["own", "peer"] * 3
    assert [(row.figure, row.verdict) for row in report.sections[SECTION]] == [
        (50, "–"),
        (20, "pass"),
        (20, "**miss**"),
    ]
    assert report.sections[SECTION][1].note == "0.40 ×; rounds: 10 to 30"


def test_waits_are_counted_from_when_a_message_was_stored() -> None:
    watched = Watched(killed_s=10.0)
    watched.begun = {(0, 0): 0.9, (0, 1): 9.8, (0, 2): 11.9, (1, 0): 10.1, (1, 1): 9.9}
    watched.published = {(0, 0): 1.0, (0, 1): 9.9, (0, 2): 12.0, (1, 0): 10.5, (1, 1): 10.2}
    watched.came = {(0, 0): 1.1, (0, 1): 19.0, (0, 2): 12.5, (1, 0): 12.0, (1, 1): 13.5}

    assert watched.wait_s() == 1.5, "one that was asked for before the kill is not counted"
    assert watched.last_s() == 9.0
    assert watched.missing() == []
    watched.published[1, 3] = 12.0
    assert watched.missing() == [(1, 3)]

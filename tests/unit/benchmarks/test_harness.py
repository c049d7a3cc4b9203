"""The benchmark harness: a figure counts only if what was acknowledged is there."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.connection import BadAnswer, Connection, get
from benchmarks.payloads import batch_bodies, fingerprint, json_bodies, numbered, sample
from benchmarks.processes import DevCluster
from benchmarks.publish import Load, check, create_topic, percentile, publish
from benchmarks.read import check_json, read_back
from benchmarks.receive import Receiver
from benchmarks.report import Report, Row, Target
from benchmarks.settling import Settled, work_until
from tests.one_node import serving


class Cluster(DevCluster):
    """A node in this process in the place of others."""

    def __init__(self, url: str) -> None:
        super().__init__(1, Path("/nonexistent"))
        self.urls = [url]

    def pids(self) -> list[int]:
        return [os.getpid()]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with serving() as url:
        yield Cluster(url)


async def loaded(cluster: Cluster, topic: str, *, binary: bool) -> Load:
    await create_topic(cluster, topic)
    bodies = batch_bodies(topic, 100, 50, 6) if binary else json_bodies(topic, 100, 50)
    return await publish(cluster, bodies, 4, 30.0, count_max=1000)


@pytest.mark.parametrize("binary", [False, True])
async def test_what_was_published_is_found_again(cluster: Cluster, binary: bool) -> None:
    load = await loaded(cluster, "t", binary=binary)

    assert load.count == 1000
    await check(cluster, "t", load)
    await check_json(cluster, "t", load)


@pytest.mark.parametrize("verify", [check, check_json])
async def test_a_lost_a_doubled_and_a_changed_message_fail_the_run(
    cluster: Cluster, verify: object
) -> None:
    load = await loaded(cluster, "t", binary=True)
    assert callable(verify)

    for wrong in (
        replace(load, count=load.count + 1),
        replace(load, count=load.count - 1),
        replace(load, print=load.print ^ 1),
    ):
        with pytest.raises(BadAnswer):
            await verify(cluster, "t", wrong)


@pytest.mark.parametrize("binary", [False, True])
async def test_reading_back_counts_messages(cluster: Cluster, binary: bool) -> None:
    await loaded(cluster, "t", binary=True)

    load = await read_back(cluster, "t", binary=binary, seconds=0.1)

    assert load.count >= len(load.latencies_s) > 0


async def test_an_answer_that_is_no_success_fails_the_run(cluster: Cluster) -> None:
    connection = await Connection.open(cluster.addresses[0])

    with pytest.raises(BadAnswer, match="404"):
        await connection.ask(get("/v1/topics/nothing"))
    connection.close()


async def test_a_broken_connection_fails_the_run() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    connection = await Connection.open(server.sockets[0].getsockname())

    with pytest.raises(BadAnswer, match="broke"):
        await connection.ask(get("/"))
    server.close()


async def receiving(cluster: Cluster) -> Receiver:
    """A hundred messages of one topic, received by two connections and acked."""
    receiver = Receiver(cluster, "t", "g", 10, wait_s=0.0, shuffled=True)
    await create_topic(cluster, "t", partitions=1)
    await receiver.open()
    await publish(cluster, batch_bodies("t", 100, 50, 1)[:1], 1, 30.0, count_max=100)
    receiver.expect([100])
    load = await receiver.work(2, 30.0)
    assert load.count == 100
    return receiver


async def test_what_was_received_and_acked_is_what_was_stored(cluster: Cluster) -> None:
    receiver = await receiving(cluster)

    await receiver.check()
    assert receiver.settled[0].numbers == list(range(100))


async def test_another_content_and_another_count_of_acks_fail_the_run(cluster: Cluster) -> None:
    receiver = await receiving(cluster)

    receiver.print ^= 1
    with pytest.raises(BadAnswer, match="not what was stored"):
        await receiver.check()
    receiver.print ^= 1
    receiver.settled[0].count -= 1
    with pytest.raises(BadAnswer, match="99 acked"):
        await receiver.check()


def test_a_message_received_twice_fails_the_run() -> None:
    settled = Settled(3)
    settled.add([0, 2])

    with pytest.raises(BadAnswer, match="message 2 came twice"):
        settled.add([1, 2])
    assert settled.numbers == [0, 1, 2]


async def test_a_queue_that_ran_empty_does_not_slow_its_figure() -> None:
    left = [10] * 5

    async def begin(_: str) -> None:
        return

    async def turn(_: str) -> int:
        if left:
            return left.pop()
        await asyncio.sleep(0.2)
        return 0

    load = await work_until(["a", "b"], begin, turn, [os.getpid()], 30.0)

    assert load.count == 50
    assert load.seconds < 0.2


def test_numbered_values_are_all_different() -> None:
    values = numbered(100, 1000)

    assert {len(value) for value in values} == {100}
    assert [int(value[:12]) for value in values] == list(range(1000))


def test_values_have_their_exact_size_and_the_fingerprint_ignores_order() -> None:
    values = sample(100, 500)

    assert {len(value) for value in values} == {100}
    assert fingerprint(values) == fingerprint(reversed(values))
    assert fingerprint(values) != fingerprint(values[1:])
    assert fingerprint([b"a", b"a"]) != fingerprint([b"b", b"b"])


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([3, 1, 2, 4], 0.5) == 3
    assert percentile([1.0], 0.99) == 1.0


def test_a_report_says_pass_and_miss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(load=3.0)
    report.add("S", Row("fast", 200, "msg/s", Target.at_least(100, "msg/s"), 1.25))
    report.add("S", Row("slow", 30, "ms", Target.at_most(25, "ms")))

    report.write(tmp_path / "b.md", "make bench", 12)

    text = (tmp_path / "b.md").read_text()
    assert "| fast | 200 msg/s | ≥ 100 msg/s | pass | 1.2 µs |  |" in text
    assert "| slow | 30 ms | ≤ 25 ms | **miss** | – |  |" in text
    assert text.endswith("## Missed targets\n\n- slow (≤ 25 ms)\n")
    assert "busy with other work: load 3.0" in text
    assert "pass" in capsys.readouterr().out


def test_a_section_by_another_command_outlives_a_new_report(tmp_path: Path) -> None:
    path, report, other = tmp_path / "report.md", Report(load=0.1), Report(load=0.1)
    report.add("One", Row("first", 1.0, "msg/s"))
    other.add("Spark", Row("read", 2.0, "rows/s"))

    report.write(path, "python -m benchmarks", 1.0)
    other.write_section("Spark", "What it is.", path, "python -m benchmarks.spark_read", 1.0)
    other.write_section("Spark", "What it is.", path, "python -m benchmarks.spark_read", 1.0)
    other.add("Small", Row("put", 3.0, "/s"))
    other.write_section("Small", "What that is.", path, "python -m benchmarks.directory", 1.0)
    other.write_section("Spark", "What it is.", path, "python -m benchmarks.spark_read", 1.0)
    report.write(path, "python -m benchmarks", 1.0)

    text = path.read_text()
    assert (text.count("## Small"), text.count("| put | 3 /s"), text.count("| read |")) == (1, 1, 1)
    assert text.count("## One") == text.count("## Spark") == 1
    assert (
        text.index("## Missed targets") < text.index("## Spark") < text.index("| read | 2 rows/s")
    )
    report.add("Spark", Row("read", 4.0, "rows/s"))
    report.write(path, "python -m benchmarks", 1.0)
    text = path.read_text()
    assert (text.count("## Spark"), text.count("## Small"), text.count("| read | 4 ")) == (1, 1, 1)

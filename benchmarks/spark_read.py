"""`python -m benchmarks.spark_read`: Spark reads a topic, beside Parquet and a source of tuples.

All three answer the same query in the same session, over and over; each answer, a count, a sum of
lengths and a sum of checksums, must equal what was published. The figures take the section
about Spark in docs/reference/benchmarks.md, which `make bench` leaves as it is.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.payloads import batch_bodies
from benchmarks.processes import ROOT, DevCluster
from benchmarks.publish import PARTITIONS, check, create_topic, publish
from benchmarks.report import Report, Row, Target
from benchmarks.spark_tuples import TupleSource
from goqueue import AsyncClient
from pipeline.session import session

SECTION = "Spark"
MESSAGES = 1_000_000
TOPIC = "bench-spark"
ROUNDS = 5
RATE = 400_000
TIMES_TUPLES = 2.0
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass(frozen=True, slots=True)
class Truth:
    """What every query must answer."""

    count: int
    length: int
    checksum: int


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_read", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--data", type=Path, default=ROOT / ".benchmarks", help="scratch folder")
    parser.add_argument("--write", type=Path, default=ROOT / "docs/reference/benchmarks.md")
    given = parser.parse_args()
    report, began = Report(), time.monotonic()
    folder = given.data.resolve() / "spark"
    with DevCluster(given.nodes, folder / "cluster") as cluster:
        truth = asyncio.run(fill(cluster, given.messages))
        measure(report, cluster, folder, truth, given.rounds)
    command = f"python -m benchmarks.spark_read --messages {given.messages}"
    report.write_section(SECTION, INTRO, given.write, command, time.monotonic() - began)


INTRO = f"""Spark's `local[2]`, nodes and harness share the cores. Each row reads the same messages
of 100 B in {PARTITIONS} partitions and computes their count, the sum of their lengths and the sum
of their CRC-32, which must equal what was published. The first round warms up; a figure is the
median of the others. Parquet reads the value's column alone, as Spark tells Python sources
nothing of the columns it needs."""


async def fill(cluster: DevCluster, count: int) -> Truth:
    """Publish, read everything back and compare."""
    await create_topic(cluster, TOPIC)
    load = await publish(cluster, batch_bodies(TOPIC, 100, 1000, PARTITIONS), 4, 300.0, count)
    await check(cluster, TOPIC, load)
    if load.count != count:
        raise RuntimeError(f"{load.count} of {count} messages in time")
    length = checksum = 0
    async with AsyncClient(cluster.urls) as client:
        for partition in range(PARTITIONS):
            async for page in client.pages(TOPIC, partition, limit=100_000):
                for message in page:
                    length += len(message.value)
                    checksum += zlib.crc32(message.value)
    return Truth(count, length, checksum)


def measure(report: Report, cluster: DevCluster, folder: Path, truth: Truth, rounds: int) -> None:
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "client")])
    spark = session("goqueue-benchmark", master="local[2]", settings=SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(TupleSource)
    try:
        options = {"servers": ",".join(cluster.urls), "subscribe": TOPIC}
        parquet = str(folder / "parquet")

        def read(form: str) -> Callable[[], Any]:
            return lambda: spark.read.format(form).options(**options).load()

        read("goqueue")().write.mode("overwrite").parquet(parquet)
        ours = rate(read("goqueue"), truth, rounds)
        narrow = rate(
            lambda: spark.read.format("goqueue").schema("value binary").options(**options).load(),
            truth,
            rounds,
        )
        stored = rate(lambda: spark.read.parquet(parquet), truth, rounds)
        tuples = rate(read("goqueue-tuples"), truth, rounds)
    finally:
        spark.stop()
    at_least = Target.at_least(RATE, "rows/s")
    twice = Target.at_least(TIMES_TUPLES, "×")
    add(report, "goqueue, all columns", ours, at_least)
    add(report, "goqueue, a schema of the value alone", narrow)
    add(report, "Parquet, the value's column, from the page cache", stored)
    add(report, "a Python source of tuples over the same HTTP", tuples)
    report.add(
        SECTION, Row("goqueue against the source of tuples", ours[0] / tuples[0], "×", twice)
    )


def add(
    report: Report, name: str, found: tuple[float, float], target: Target | None = None
) -> None:
    report.add(SECTION, Row(name, found[0], "rows/s", target, None, f"best {found[1]:,.0f}"))


def rate(read: Callable[[], Any], truth: Truth, rounds: int) -> tuple[float, float]:
    """Messages a second: the median of the rounds after the first, and the best."""
    from pyspark.sql import functions as f

    seconds: list[float] = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        value = f.col("value")
        (row,) = read().agg(f.count(value), f.sum(f.length(value)), f.sum(f.crc32(value))).collect()
        seconds.append(time.perf_counter() - began)
        if Truth(*row) != truth:
            raise RuntimeError(f"{row} was read, {truth} was published")
    warm = sorted(seconds[1:])
    return truth.count / warm[len(warm) // 2], truth.count / warm[0]


if __name__ == "__main__":
    main()

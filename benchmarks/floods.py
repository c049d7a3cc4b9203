"""How others fare while one client floods a node, and how long its loop stalls meanwhile.

`python -m benchmarks.floods` prints these rows alone. The flood comes from an address and a process
of its own: small bodies that expand, pages of escapes a hundred times their stored size, uploads
that never end and answers that nobody reads, all again and again. A client that floods has a
machine of its own; here its process gives way to the others, and to the node, so that what it costs
them is what it makes the node do, and not what it computes itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import multiprocessing
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

from benchmarks.connection import Connection, get, post
from benchmarks.counters import figures
from benchmarks.processes import ROOT, DevCluster
from benchmarks.publish import create_topic, percentile
from benchmarks.report import Report, Row, Target
from goqueue.wire.batch import BATCH_MEDIA_TYPE
from goqueue.wire.encoding import encode_columns

HONEST, FLOODED = "others", "flooded"
SOURCE = "127.0.1.1"
RATE = 50.0
"""Publishes a second of the others: far below what a node does alone."""
CONNECTIONS = 4
TIMES_MAX, STALL_MS_MAX = 3.0, 100.0
FLOOD_WAITS_S = 20.0
LOWEST_PRIORITY = 19
WORST_STALL = "goqueue_loop_lag_worst_seconds"
MIB = 1 << 20
ROWS = gzip.compress(b'{"messages":[' + b",".join([b"{}"] * (5 * MIB)) + b"]}", 9)


async def measure(report: Report, folder: Path, *, quick: bool) -> None:
    seconds = 6.0 if quick else 20.0
    section = "One client floods, others publish: one node"
    with DevCluster(1, folder / "floods") as cluster:
        for topic in (HONEST, FLOODED):
            await create_topic(cluster, topic, partitions=1)
        await store(cluster)
        await publish(cluster, 2.0)
        quiet = percentile(await publish(cluster, seconds), 0.99)
        with flood(cluster.addresses[0]):
            await asyncio.sleep(1.0)
            times = await publish(cluster, seconds)
            stall_s = await worst_stall_s(cluster)
    flooded = percentile(times, 0.99)
    note = f"{quiet * 1e3:.1f} ms alone, {flooded * 1e3:.1f} ms in the flood"
    limit = Target.at_most(TIMES_MAX, "times")
    report.add(section, Row("publish p99 of others", flooded / quiet, "times", limit, note=note))
    limit = Target.at_most(STALL_MS_MAX, "ms")
    note = "the latest timer of the last ten seconds"
    report.add(section, Row("longest stall of the loop", stall_s * 1e3, "ms", limit, note=note))


async def store(cluster: DevCluster) -> None:
    """A few KiB that are 60 MiB as they are read."""
    link = await Connection.open(cluster.addresses[0])
    batch = encode_columns([bytes(MIB)] * 15, codec="zstd") * 4
    await link.ask(post(f"/v1/topics/{FLOODED}/partitions/0/messages", batch, BATCH_MEDIA_TYPE))
    link.close()


async def publish(cluster: DevCluster, seconds: float) -> list[float]:
    """Seconds from when each was due to its answer: who waits in line is late, too."""
    links: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        links.put_nowait(await Connection.open(cluster.addresses[0]))
    body = b'{"messages":[{"value":"%s"}]}' % (b"x" * 100)
    request = post(f"/v1/topics/{HONEST}/messages", body, "application/json")
    times: list[float] = []
    began = time.perf_counter()

    async def send(due: float) -> None:
        link = await links.get()
        await link.ask(request)
        times.append(time.perf_counter() - due)
        links.put_nowait(link)

    async with asyncio.TaskGroup() as tasks:
        for number in range(int(seconds * RATE)):
            due = began + number / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(send(due))
    while not links.empty():
        links.get_nowait().close()
    return times


async def worst_stall_s(cluster: DevCluster) -> float:
    return (await figures(cluster.addresses[0], [WORST_STALL]))[WORST_STALL]


@contextlib.contextmanager
def flood(address: tuple[str, int]) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_flood, args=address, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _flood(host: str, port: int) -> None:
    """Every kind on a few connections, until it is killed."""
    give_way()
    media = "application/json\r\nContent-Encoding: gzip"
    rows = post(f"/v1/topics/{FLOODED}/messages", ROWS, media)
    page = get(f"/v1/topics/{FLOODED}/partitions/0/messages?offset=0&limit=1000")
    begun = post(f"/v1/topics/{FLOODED}/messages", bytes(MIB), "application/json")[: MIB // 2]
    work = [(rows, True)] * 4 + [(page, True)] * 4 + [(page, False)] * 4 + [(begun, False)] * 4
    threads = [Thread(target=_repeat, args=(host, port, *one)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def give_way() -> None:
    """Compute only what nobody else has a use for. Linux weighs sessions against each other, and
    processes only within one (sched(7), autogroups): the node has one of its own."""
    os.setsid()
    os.nice(LOWEST_PRIORITY)
    with contextlib.suppress(OSError):  # a system that does not weigh sessions has no such file
        Path("/proc/self/autogroup").write_text(str(LOWEST_PRIORITY))


def _repeat(host: str, port: int, request: bytes, reads: bool) -> None:
    while True:
        with contextlib.suppress(OSError), socket.socket() as link:
            link.settimeout(FLOOD_WAITS_S)
            link.bind((SOURCE, 0))
            link.connect((host, port))
            link.sendall(request)
            if reads:
                while link.recv(1 << 18):
                    pass
            else:
                time.sleep(1.0)


async def alone(quick: bool) -> None:
    report = Report()
    await measure(report, ROOT / ".benchmarks", quick=quick)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floods", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="six seconds each instead of twenty")
    asyncio.run(alone(parser.parse_args().quick))
